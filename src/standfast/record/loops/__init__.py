"""Loops: schedules, and that each of their slots leaves exactly one row, after any crash.

    add ─▶ active ◀──────── resume ─────────┐
            │  │                            │
            │  ├─ pause, or too many ─▶ paused      slots are skipped, with the reason
            │  │  failures in a row
            │  └─ its one moment is past ─▶ finished
            └─ remove ─▶ removed                    its runs stay, its name is free

A slot is fired once, by the first process: `fire` gives it its row, `standfast.record.runs` takes
queued runs through their attempts to their end.

    schedule.py   which moments are slots: pure arithmetic
    fire.py       what becomes of the slots that are due
    edit.py       adding, finding, changing, pausing
    resource.py   sf.loops
    models.py     what callers see
"""

from __future__ import annotations

from standfast.record.loops.models import Absent, Job, Loop, Run
from standfast.record.loops.resource import Loops

__all__ = ["Absent", "Job", "Loop", "Loops", "Run"]
