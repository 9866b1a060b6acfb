"""Budgets, their holds, and what a model call adds to `usage`. Its text is the `.sql` file beside this module."""

from __future__ import annotations

from standfast.db.migrations.migration import Migration
from standfast.db.sql import beside

MIGRATION = Migration(version=3, name="budgets", text=beside(__name__))
