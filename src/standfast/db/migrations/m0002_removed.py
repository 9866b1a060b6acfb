"""Before-images and digests of the journal. Its text is the `.sql` file beside this module."""

from __future__ import annotations

from standfast.db.migrations.migration import Migration
from standfast.db.sql import beside

MIGRATION = Migration(version=2, name="removed", text=beside(__name__))
