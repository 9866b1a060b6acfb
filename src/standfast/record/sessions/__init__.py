"""Sessions: work that outlives the processes that do it.

    (nothing) ──open──▶ active ──leave the block──▶ completed ─┐
                         │ ├──an exception──▶ failed ──────────┤
                         │ └──pause, in doubt, approval──▶ waiting
                         │                                     │
                         ◀───────────── open again ────────────┘

A session is known by its key in its scope; opening the key again resumes it. It is held by a
lease: one owner at a time, and a fence that grows with each opening. `crashed` is no state of
the table: it is an active session whose holder has exited or whose lease has expired, and the process that
opens it next takes it over and journals that.

    models.py    what a session is, and what was found in it
    queries.py   by key, by id, in pages
    ownership.py  opening, taking over, giving back
    forks.py     another session that shares the past, by pointer
    resource.py  sf.sessions: the methods

`live` is what `with sf.session(key)` gives; `nodes`, `messages` and `steps` are what it holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast.record.sessions.models import InDoubt, OpenDecision, Opened, Resumed, SessionRecord

if TYPE_CHECKING:
    from standfast.record.sessions.resource import Sessions

__all__ = ["InDoubt", "OpenDecision", "Opened", "Resumed", "SessionRecord", "Sessions"]


def __getattr__(name: str) -> object:
    """The resource when it is entered: a hook that only opens a session starts sooner without it."""
    if name == "Sessions":
        from standfast.record.sessions.resource import Sessions

        return Sessions
    raise AttributeError(name)
