"""What a thread is made of."""

from __future__ import annotations

from standfast.models import Model

Value = tuple[str, bytes]
"""The name of an encoding, and bytes in it."""


class Thread(Model):
    """One conversation of a graph, known by its key in its scope."""

    id: str
    scope: str
    key: str
    life: int
    created_us: int
    updated_us: int
    checkpoints: int


class Write(Model):
    """What one task wrote to one channel, while its checkpoint was the current one."""

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
    """One checkpoint with everything it speaks of."""

    thread: str
    namespace: str
    id: str
    parent_id: str | None
    header: bytes
    metadata: bytes
    values: dict[str, Value]
    writes: list[Write]


class Stored(Model):
    """What a put left behind: which value each channel has, and how many bytes went to disk."""

    checkpoint_id: str
    parts: dict[str, str]
    written_bytes: int


class Ancestry(Model):
    """What one channel got along the parents of a checkpoint, the oldest first, and where that begins."""

    writes: list[Write]
    seed: Value | None
