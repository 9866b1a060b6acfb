"""Threads of graphs: checkpoints with small headers, values kept once, and what tasks wrote meanwhile.

A checkpoint here is its user's record, not a fold of ours: nobody may delete it to save room. Its
header is small; each channel's value is a row that says what changed since the value before it, so
that a list that grows by a message grows by a message on disk. A deleted thread leaves a tombstone.
Nothing here knows LangGraph: values are bytes with the name of their encoding.
"""

from __future__ import annotations

from standfast.record.threads.nouns import Checkpoint, Stored, Thread, Write
from standfast.record.threads.room import Threads
from standfast.record.threads.sealing import Seal

__all__ = ["Checkpoint", "Seal", "Stored", "Thread", "Threads", "Write"]
