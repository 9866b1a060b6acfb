"""Shared by all resources: the journal, leases, claims, artifacts, and checks of arguments."""
