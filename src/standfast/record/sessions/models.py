"""Sessions as callers see them, and the result of opening one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from standfast import serial
from standfast.config.scope import Label
from standfast.core.receipts import Receipt
from standfast.ledger.openings import Lineage
from standfast.models import Model
from standfast.record.nodes import Node

if TYPE_CHECKING:
    from standfast.record.messages import Message

STATES = ("active", "waiting", "completed", "failed")


class SessionRecord(Model):
    """A session and its state. `standing` is the state of its lease: live, free, over or gone."""

    id: str
    scope: str
    key: str
    state: str
    reason: str | None
    agent: str | None
    """The agent given with the session, else the actor that opened it last."""
    preview: str | None
    command: tuple[str, ...] | None
    cwd: str | None
    cursor: serial.Json
    parent_id: str | None
    cut_node_id: str | None
    cut_position: int | None
    openings: int
    holder: str | None
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

    def as_json(self) -> dict[str, Any]:
        return {**self.as_dict(), "crashed": self.crashed}

    @property
    def crashed(self) -> bool:
        """Whether it is active and its holder has exited or its lease has expired."""
        return self.state == "active" and self.standing in ("gone", "over")

    @property
    def label(self) -> Label:
        return Label(self.git_dir, self.origin)

    @property
    def place(self) -> str:
        """The cursor of a list: pass it as `after=`."""
        return f"{self.updated_us}:{self.id}"


class Shown(Model):
    """A session with its sub-agents and a page of its messages."""

    session: SessionRecord
    nodes: tuple[Node, ...]
    messages: tuple[Message, ...]

    def as_json(self) -> dict[str, Any]:
        fields = self.as_dict()
        return {**fields.pop("session").as_json(), **fields}


class InDoubt(Model):
    """An effect of the session that was sent and whose outcome is unknown."""

    id: str
    tool: str
    key: str
    dispatched_us: int | None


class OpenDecision(Model):
    """A decision without a recorded outcome."""

    id: str
    what: str


class Resumed(Model):
    """The state of a session before it was opened again, and the counts of its contents."""

    state: str
    """The session's state at that time: active, waiting, completed or failed."""
    crashed: bool
    """The session was active, and its holder had exited or its lease had expired."""
    reason: str | None
    since_us: int
    """The time of that state; for a crash, the last sign of life."""
    by: str
    """The last holder, for people."""
    openings: int
    """The number of earlier openings."""
    steps: int
    effects: int
    messages: int
    in_doubt: tuple[InDoubt, ...]
    decisions: tuple[OpenDecision, ...]


class Opened(Model):
    """The result of an opening: the session now and before."""

    record: SessionRecord
    before: SessionRecord | None
    """None if the session is new."""
    root: Node
    lineage: Lineage
