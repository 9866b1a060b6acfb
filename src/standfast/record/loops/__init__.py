"""Loops: schedules. Each slot of a schedule gets exactly one row, also after a crash.

    add ─▶ active ◀──────── resume ─────────┐
            │  │                            │
            │  ├─ pause, or too many ─▶ paused      slots are skipped, with the reason
            │  │  failures in a row
            │  └─ its only time is past ─▶ finished
            └─ remove ─▶ removed                    its runs stay, its name is free

The first process that sees a due slot fires it: `fire` writes its row.

    schedule.py   the slots of a schedule: pure arithmetic
    fire.py       the rows of due slots
    runs.py       sf.runs: the attempts of queued runs
    edit.py       add, find, change, pause, resume, remove
    resource.py   sf.loops
    models.py     what callers see
"""

from __future__ import annotations

from standfast.record.loops.models import Absent, Job, Loop, Run
from standfast.record.loops.resource import Loops

__all__ = ["Absent", "Job", "Loop", "Loops", "Run"]
