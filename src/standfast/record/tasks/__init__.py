"""Tasks: work to do, identified by its text. One problem is one task, no matter how often it is reported.

            add                    done, sweep                     add, after the cool-down
    (never) ───▶ open ────────────────────────────▶ closed ────────────────────────────────▶ open, episode 2
                 │ ▲ ▲                                │ ▲
                 │ │ └───────────── reopen ───────────┘ └─ add, within the cool-down: counted, stays closed
                 │ └─ reopen, or the snooze ends
                 ├─ snooze ─▶ snoozed      counted, not handed out
                 └─ accept ─▶ accepted     counted, never handed out

Claimed is no state: it is a lease. One worker gets a task, with a fencing token. If a process dies, its task is ready
again at once. The task of an actor is ready again when its lease expires. A late holder is refused.

    fingerprint.py   the identity of a task
    sightings.py     reports: one statement opens or counts; sweeps close problems that are no longer reported
    claims.py        which tasks are ready, and how a worker claims one
    changes.py       find, change, close
    graph.py         needs and goals
    queries.py       pages, and one task in full
    resource.py      sf.tasks
    models.py        what callers see
"""

from __future__ import annotations

from standfast.record.tasks.fingerprint import fingerprint
from standfast.record.tasks.models import Goal, Note, Progress, Shown, Swept, Task
from standfast.record.tasks.resource import Tasks

__all__ = ["Goal", "Note", "Progress", "Shown", "Swept", "Task", "Tasks", "fingerprint"]
