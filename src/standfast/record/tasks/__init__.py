"""Tasks: what is to be done, known by what it says; one per problem, however often it is seen.

            add                    done, sweep                     add, after the cool-down
    (never) ───▶ open ────────────────────────────▶ closed ────────────────────────────────▶ open, episode 2
                 │ ▲ ▲                                │ ▲
                 │ │ └───────────── reopen ───────────┘ └─ add, within the cool-down: counted, stays closed
                 │ └─ reopen, or its time comes
                 ├─ snooze ─▶ snoozed      counted, not handed out
                 └─ accept ─▶ accepted     counted, never handed out

Claimed is no state: it is a lease. One worker gets a task, with a fence; a dead process's task is
ready again at once, an actor's when its time is over, and whoever comes late is refused.

    fingerprint.py   when two sightings are of the same problem
    sightings.py     one statement opens or counts; sweeps close what is no longer seen
    claims.py        what is ready, and who gets it
    changes.py       finding, changing, closing
    graph.py         needs and goals: what waits for what
    looking.py       pages, and everything about one
    room.py          sf.tasks
    nouns.py         what callers see
"""

from __future__ import annotations

from standfast.record.tasks.fingerprint import fingerprint
from standfast.record.tasks.nouns import Goal, Note, Progress, Shown, Swept, Task
from standfast.record.tasks.room import Tasks

__all__ = ["Goal", "Note", "Progress", "Shown", "Swept", "Task", "Tasks", "fingerprint"]
