"""Checkpoints: folds of long histories, and the search index. If they are deleted, only time is lost."""
