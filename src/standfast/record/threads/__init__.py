"""Threads of graphs: checkpoints with small headers, values kept once, and what tasks wrote meanwhile.

A checkpoint here is its user's record, not a fold of ours: no sweep may delete it to save space. Its
header is small; each channel's value is a row that says what changed since the value before it, so
that a list that grows by a message grows by a message on disk. A deleted thread leaves a tombstone.
Nothing here knows LangGraph: values are bytes with the name of their encoding.
"""

from __future__ import annotations

from standfast.record.threads.encoding import Seal
from standfast.record.threads.models import Checkpoint, Stored, Thread, Write
from standfast.record.threads.resource import Threads

__all__ = ["Checkpoint", "Seal", "Stored", "Thread", "Threads", "Write"]
