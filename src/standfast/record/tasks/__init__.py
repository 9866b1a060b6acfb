"""Tasks: work to do, identified by its text; one per problem, however often it is reported.

            add                    done, sweep                     add, after the cool-down
    (never) ───▶ open ────────────────────────────▶ closed ────────────────────────────────▶ open, episode 2
                 │ ▲ ▲                                │ ▲
                 │ │ └───────────── reopen ───────────┘ └─ add, within the cool-down: counted, stays closed
                 │ └─ reopen, or its time comes
                 ├─ snooze ─▶ snoozed      counted, not handed out
                 └─ accept ─▶ accepted     counted, never handed out

Claimed is no state: it is a lease. One worker gets a task, with a fence; a dead process's task is
ready again at once, an actor's when its lease expires, and a late holder is refused.

    fingerprint.py   when two sightings are of the same problem
    sightings.py     one statement opens or counts; sweeps close problems that are no longer seen
    claims.py        which tasks are ready, and who gets them
    changes.py       finding, changing, closing
    graph.py         needs and goals: what waits for what
    queries.py       pages, and everything about one
    resource.py      sf.tasks
    models.py        what callers see
"""

from __future__ import annotations

from standfast.record.tasks.fingerprint import fingerprint
from standfast.record.tasks.models import Goal, Note, Progress, Shown, Swept, Task
from standfast.record.tasks.resource import Tasks

__all__ = ["Goal", "Note", "Progress", "Shown", "Swept", "Task", "Tasks", "fingerprint"]
