"""The whole schema, in one step. Its text is the `.sql` file beside this module."""

from __future__ import annotations

from standfast.db.migrations.m0001_guards import ON_POSTGRES
from standfast.db.migrations.migration import Migration
from standfast.db.sql import beside

MIGRATION = Migration(version=1, name="initial", text=f"{beside(__name__)}\n{ON_POSTGRES}\n")
