"""What a session is, and what was found in it."""

from __future__ import annotations

from typing import NamedTuple

from standfast import serial
from standfast.config.scope import Label
from standfast.footings.journal import Receipt
from standfast.record.nodes import Lineage, Node

STATES = ("active", "waiting", "completed", "failed")
REASON_MAX = 500


class SessionRecord(NamedTuple):
    """A session as it stands. `standing` is how its lease stands: live, free, over or gone."""

    id: str
    scope: str
    key: str
    state: str
    reason: str | None
    agent: str | None
    preview: str | None
    command: tuple[str, ...] | None
    cwd: str | None
    cursor: serial.Json
    parent_id: str | None
    cut_node_id: str | None
    cut_position: int | None
    openings: int
    holder: str | None
    actor: str | None
    lease_until_us: int | None
    fence: int
    created_us: int
    updated_us: int
    ended_us: int | None
    git_dir: str | None
    origin: str | None
    """The repository it was first opened in: its git directory and its origin."""
    standing: str
    receipt: Receipt | None = None

    @property
    def crashed(self) -> bool:
        """Active, and its holder is gone or silent: derived, never stored."""
        return self.state == "active" and self.standing in ("gone", "over")

    @property
    def label(self) -> Label:
        return Label(self.git_dir, self.origin)

    @property
    def place(self) -> str:
        """Where a list goes on: `after=`."""
        return f"{self.updated_us}:{self.id}"


class InDoubt(NamedTuple):
    """An effect of the session that was sent, and nobody knows whether it arrived."""

    id: str
    tool: str
    key: str
    dispatched_us: int | None


class OpenDecision(NamedTuple):
    """A decision that was taken and whose outcome is not recorded."""

    id: str
    what: str


class Resumed(NamedTuple):
    """What was found when a session was opened again."""

    state: str
    """As it was left: active, waiting, completed or failed."""
    crashed: bool
    """It was active and its holder was gone, or had let its lease run out."""
    reason: str | None
    since_us: int
    """Since when it stood so; for a crash, the last sign of life."""
    by: str
    """Who had it last, as people say it."""
    openings: int
    """How often it had been opened before."""
    steps: int
    effects: int
    messages: int
    in_doubt: tuple[InDoubt, ...]
    decisions: tuple[OpenDecision, ...]


class Opened(NamedTuple):
    """An opening as the store wrote it: what the session is now, and what it was."""

    record: SessionRecord
    before: SessionRecord | None
    """None if it is new."""
    root: Node
    lineage: Lineage
