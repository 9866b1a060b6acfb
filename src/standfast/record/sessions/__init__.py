"""Sessions: work that outlives the processes that do it.

    (nothing) ──open──▶ active ──leave the block──▶ completed ─┐
                         │ ├──an exception──▶ failed ──────────┤
                         │ └──pause, in doubt, approval──▶ waiting
                         │                                     │
                         ◀───────────── open again ────────────┘

A session is identified by its key in its scope. Opening the key again resumes it. One owner at a time holds its lease,
and the fencing token grows with each opening. `crashed` is no state of the table: it is an active session whose holder
has exited or whose lease has expired. The next process that opens it takes it over and journals that.

    models.py     a session as callers see it, and the result of resuming one
    queries.py    by key, by id, in pages
    ownership.py  open, take over, end
    forks.py      another session that shares the past, by pointer
    resource.py   sf.sessions: the methods

`with sf.session(key)` returns `record/open_session.py`. `nodes`, `messages` and `steps` have the contents of a session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast.record.sessions.models import InDoubt, OpenDecision, Opened, Resumed, SessionRecord

if TYPE_CHECKING:
    from standfast.record.sessions.resource import Sessions

__all__ = ["InDoubt", "OpenDecision", "Opened", "Resumed", "SessionRecord", "Sessions"]


def __getattr__(name: str) -> object:
    """Import the resource on first use: a hook that only opens a session starts sooner without it."""
    if name == "Sessions":
        from standfast.record.sessions.resource import Sessions

        return Sessions
    raise AttributeError(name)
