"""Loops: schedules, and that each of their slots leaves exactly one row, whatever happens.

    add ─▶ active ◀──────── resume ─────────┐
            │  │                            │
            │  ├─ pause, or too many ─▶ paused      slots are skipped, with the reason
            │  │  failures in a row
            │  └─ its one moment is past ─▶ finished
            └─ remove ─▶ removed                    its runs stay, its name is free

A slot is fired once, by whoever comes first: `firing` gives it its row, `standfast.record.runs` takes
what is queued through its attempts to its end.

    schedule.py   which moments are slots: pure arithmetic
    firing.py     what becomes of the slots that are due
    keeping.py    adding, finding, changing, pausing
    room.py       sf.loops
    nouns.py      what callers see
"""

from __future__ import annotations

from standfast.record.loops.nouns import Absent, Job, Loop, Run
from standfast.record.loops.room import Loops

__all__ = ["Absent", "Job", "Loop", "Loops", "Run"]
