"""Threads as callers see them: their checkpoints, values and writes."""

from __future__ import annotations

from standfast.models import Model

Value = tuple[str, bytes]
"""The name of an encoding, and the encoded bytes."""


class Thread(Model):
    """One conversation of a graph, identified by its key in its scope."""

    id: str
    scope: str
    key: str
    life: int
    created_us: int
    updated_us: int
    checkpoints: int


class Write(Model):
    """One write of a task to a channel, at the checkpoint that was current then."""

    task_id: str
    task_path: str
    idx: int
    channel: str
    value: Value

    @property
    def order(self) -> tuple[str, str, int]:
        """The order in which a graph applies the writes of one step."""
        return (self.task_path, self.task_id, self.idx)


class Checkpoint(Model):
    """One checkpoint with the values of its channels and the writes at it."""

    thread: str
    namespace: str
    id: str
    parent_id: str | None
    header: bytes
    metadata: bytes
    values: dict[str, Value]
    writes: list[Write]


class Stored(Model):
    """The result of a put: the reference of each channel's value, and the bytes that were written."""

    checkpoint_id: str
    parts: dict[str, str]
    written_bytes: int


class Ancestry(Model):
    """The writes to one channel at the ancestors of a checkpoint, the oldest first, and the value before them."""

    writes: list[Write]
    seed: Value | None
