"""State: values by key, each with a version.

A value belongs to a namespace. The namespace of a session's values is the session's id. Each change gives the value its
next version. A version is never used twice, also not after a delete, so of two concurrent `swap` calls one succeeds. A
value may expire, may have a JSON schema, and may have a command that verifies it. The journal has every version, so a
fork of a session sees its parent's values as they were at the cut.

    models     an entry as callers see it, and the checks of arguments
    schemas    the part of JSON Schema that is checked here
    values     one value inside a transaction: write, read, delete, verify
    resource   `sf.state`
    session    `s.state`, the values of one session as a dictionary
"""

from __future__ import annotations

from standfast.record.state.models import Entry, Namespace
from standfast.record.state.resource import State
from standfast.record.state.session import SessionState

__all__ = ["Entry", "Namespace", "SessionState", "State"]
