"""Threads of LangGraph: checkpoints, the values of their channels, and the writes of tasks.

A checkpoint is the user's record, so no sweep deletes it to save space. It has a small header. The value of a channel
is stored as the difference from its previous value, so a list that grows by one message adds one message on disk. A
deleted thread leaves a tombstone. This package does not import LangGraph: a value is bytes and the name of an encoding.

    deltas.py       the difference between two values
    values.py       segments of differences, and the cache
    encryption.py   plain or encrypted bytes of a row
    rows.py         the rows of a thread, and its refusals
    resource.py     sf.threads
    models.py       what callers see
"""

from __future__ import annotations

from standfast.record.threads.encryption import Seal
from standfast.record.threads.models import Checkpoint, Stored, Thread, Write
from standfast.record.threads.resource import Threads

__all__ = ["Checkpoint", "Seal", "Stored", "Thread", "Threads", "Write"]
