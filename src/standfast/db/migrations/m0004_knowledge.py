"""Knowledge: texts with their sources and vectors. Its text is the `.sql` file beside this module."""

from __future__ import annotations

from standfast.db.migrations.migration import Migration
from standfast.db.sql import beside

MIGRATION = Migration(version=4, name="knowledge", text=beside(__name__))
