"""Imports the PostgreSQL driver before the fork: see `warm`."""

from __future__ import annotations

import standfast.db.postgres.registry  # noqa: F401  imported for what it costs
from standfast_prove.campaigns.warm import ready

__all__ = ["ready"]
