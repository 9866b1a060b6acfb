"""Modules that all resources share: the journal, leases, claims, artifacts, and checks of arguments."""
