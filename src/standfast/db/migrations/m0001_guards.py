"""The rules that triggers enforce on PostgreSQL, for every role. Their text is the `.sql` file beside this module."""

from __future__ import annotations

from standfast.db.sql import beside

GUARDS = beside(__name__)

ON_POSTGRES = "\n".join(f"{line} -- [postgres]" for line in GUARDS.splitlines())
"""The rules as lines of a migration, marked for PostgreSQL."""
