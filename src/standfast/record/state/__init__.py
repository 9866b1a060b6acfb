"""State: values by name, each with a version.

A value lives in a namespace of a scope; a session's own are in the namespace of its id. Every
change gives it the next version, and versions are never given twice, also not after a delete:
`swap` therefore decides safely between two writers. A value may end by time, may have to fit a
JSON schema, and may carry a command that verifies it against the world. The journal keeps every
version, so that a fork sees its parent's values as they were at the cut.

    models     an entry as callers see it, and what they may give
    schemas    the part of JSON Schema that is checked here
    values     writing and reading one value inside a transaction
    resource   `sf.state`
    session    `s.state`, the values of one session as a dictionary
"""

from __future__ import annotations

from standfast.record.state.models import Entry, Namespace
from standfast.record.state.resource import State
from standfast.record.state.session import SessionState

__all__ = ["Entry", "Namespace", "SessionState", "State"]
