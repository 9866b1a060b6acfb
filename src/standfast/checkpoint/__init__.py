"""Checkpoints: folds of long histories. Deletable; lost, nothing is gone but time."""
