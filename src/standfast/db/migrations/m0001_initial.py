"""The whole schema, in one step. Its text is the `.sql` file beside this module."""

from __future__ import annotations

from standfast.db.migrations.migration import Migration
from standfast.db.sql import beside

MIGRATION = Migration(version=1, name="initial", text=beside(__name__))
