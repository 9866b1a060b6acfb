"""Tasks as callers see them, made from rows of the table, and the checks of arguments."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from standfast import serial
from standfast.core import keys, leases
from standfast.core.checks import NAME_MAX, PRIORITY_MAX, whole
from standfast.core.journal import Event
from standfast.core.receipts import Receipt
from standfast.db.contract import Row, Tx
from standfast.errors import InvalidInput
from standfast.models import Model

STATES = ("open", "snoozed", "accepted", "closed")
TITLE_MAX = 1_000
TEXT_MAX = 100_000
LABELS_MAX = 20
LABEL_MAX = 60

_UNFIT = "[\x00\ud800-\udfff]"  # characters that no engine can store; compiled on first use


class Task(Model):
    """One episode of a problem and its state."""

    id: str
    scope: str
    repository: str
    """The id of the repository that it belongs to; empty outside any."""
    fingerprint: str
    episode: int
    state: str
    """open, snoozed, accepted or closed. When a snooze has ended, the task reads as open."""
    reason: str | None
    """The reason why the task was closed or accepted."""
    title: str
    body: str | None
    kind: str
    source: str
    priority: int
    """0 comes first."""
    labels: tuple[str, ...]
    branch: str | None
    assignee: str | None
    parent_id: str | None
    session_id: str | None
    result: serial.Json
    occurrences: int
    first_seen_us: int
    last_seen_us: int
    cool_down_us: int | None
    snoozed_until_us: int | None
    due_us: int | None
    holder: str | None
    agent: str | None
    """The agent that holds it or held it last; for a closed task, the agent that closed it."""
    lease_until_us: int | None
    fence: int
    created_us: int
    updated_us: int
    closed_us: int | None
    standing: str
    """The state of its lease: free, live, over (its time ran out) or gone (its process is dead)."""
    suspect: bool
    """The task is claimed, and its holder has exited, is late, or has not renewed the lease for long."""
    sighting: str | None = None
    """The result of `add`: new, again, returned (the next episode), or cooling (counted on the closed one)."""
    receipt: Receipt | None = None

    @property
    def reclaimable(self) -> bool:
        """Whether its holder is late or has exited, so that the next worker may claim it."""
        return self.standing in ("over", "gone")

    @property
    def held_by(self) -> str | None:
        """The holder, marked if it is gone, late or suspect."""
        if self.holder is None:
            return None
        words = {"gone": " (gone: reclaimable)", "over": " (late: reclaimable)"}
        return leases.holder_text(self.holder) + words.get(self.standing, " (suspect)" if self.suspect else "")

    def as_json(self) -> dict[str, Any]:
        return {**self.as_dict(), "reclaimable": self.reclaimable}

    @staticmethod
    def columns() -> tuple[str, ...]:
        return "id", "priority p", "state", "occurrences seen", "last_seen_us last", "held_by", "labels", "title"

    @property
    def place(self) -> str:
        """The cursor of a list: pass it as `after=`."""
        return f"{self.priority}:{self.created_us}:{self.id}:{len(self.scope)}:{self.scope}{self.repository}"


class Note(Model):
    """A note on a task."""

    id: str
    task_id: str
    text: str
    agent: str
    created_us: int
    receipt: Receipt | None = None


class Other(Model):
    """A related task in short."""

    id: str
    title: str
    state: str
    episode: int


class Progress(Model):
    """The counts of the tasks below a goal. A goal below it is not counted, but its tasks are."""

    total: int
    closed: int
    accepted: int
    held: int

    @property
    def share(self) -> float:
        """The share of closed tasks among those that are not accepted; 1.0 if there are none."""
        asked = self.total - self.accepted
        return self.closed / asked if asked else 1.0

    def as_json(self) -> dict[str, Any]:
        return {**self.as_dict(), "share": self.share}


class Goal(Model):
    """A task with tasks below it."""

    task: Task
    progress: Progress


class Shown(Model):
    """One task with its notes, its related tasks, its episodes and its newest changes."""

    task: Task
    notes: tuple[Note, ...]
    needs: tuple[Other, ...]
    needed_by: tuple[Other, ...]
    children: tuple[Other, ...]
    progress: Progress | None
    """None if the task has no subtasks."""
    episodes: tuple[Other, ...]
    """All episodes of this problem, the first one first."""
    history: tuple[Event, ...]
    """The newest changes, in order."""

    def as_json(self) -> dict[str, Any]:
        fields = self.as_dict()
        return {**fields.pop("task").as_json(), **fields}


class Swept(Model):
    """The result of one sweep of a source."""

    source: str
    n: int
    """The number of this sweep of the source."""
    seen: int
    opened: tuple[str, ...]
    """The ids of new problems, and of new episodes of old ones."""
    closed: tuple[str, ...]
    """The ids of problems that were absent from `absent_max` sweeps."""
    receipt: Receipt | None = None


_STORED = Task.column_names()[: Task.field_names().index("standing")]
_STATE, _LABELS, _RESULT = (_STORED.index(name) for name in ("state", "labels", "result"))


def task(tx: Tx, row: Row, receipt: Receipt | None = None, *, sighting: str | None = None) -> Task:
    """The model of a row, with derived values: whether its snooze has ended, and the state of its lease."""
    standing = leases.judge(tx, row).state
    values = list(map(row.__getitem__, _STORED))
    if row["state"] == "snoozed" and row["snoozed_until_us"] <= tx.now_us():
        values[_STATE] = "open"
    values[_LABELS] = tuple(row["labels"][1:-1].split(",")) if row["labels"] else ()
    if row["result"] is not None:
        values[_RESULT] = serial.read(row["result"])
    suspect = standing in ("over", "gone") or (standing == "live" and _quiet(tx, row))
    return Task.from_values([*values, standing, suspect, sighting, receipt])


def _quiet(tx: Tx, row: Row) -> bool:
    """Whether the lease was not renewed for half of its duration, at most for the duration of an actor's lease."""
    return leases.since_renewal_us(tx, row) > min(int(row["lease_for_us"]) // 2, leases.ACTOR_US)


# -- checks of arguments -------------------------------------------------------------------------------


def checked_title(title: object) -> str:
    """One line: runs of white space become one space."""
    if not isinstance(title, str):
        raise InvalidInput(f"a task's title is text, not {type(title).__name__}")
    return keys.line(" ".join(title.split()), "a task's title", limit=TITLE_MAX)


def checked_text(text: object, what: str) -> str:
    if not isinstance(text, str):
        raise InvalidInput(f"{what} is text, not {type(text).__name__}")
    if len(text) > TEXT_MAX:
        raise InvalidInput(
            f"{what} has {len(text):,} characters, and the limit is {TEXT_MAX:,}", "keep it as an artifact"
        )
    if found := re.search(_UNFIT, text):
        raise InvalidInput(f"{what} holds the character U+{ord(found[0]):04X}, which cannot be stored")
    return text


def checked_name(text: str | None, what: str) -> str | None:
    return None if text is None else keys.checked(text, what, limit=NAME_MAX)


def checked_priority(priority: object) -> int:
    return whole(priority, "a priority", least=0, most=PRIORITY_MAX, hint="0 comes first; 2 is usual")


def joined_labels(labels: Iterable[str]) -> str:
    """The labels between commas, so that `LIKE '%,ci,%'` finds one."""
    if isinstance(labels, str):
        raise InvalidInput("labels are a list of texts, not one text", f"labels=[{labels[:LABEL_MAX]!r}]")
    unique = sorted({checked_label(label) for label in labels})
    if len(unique) > LABELS_MAX:
        raise InvalidInput(f"{len(unique)} labels, and the limit is {LABELS_MAX}")
    return f",{','.join(unique)}," if unique else ""


def checked_label(label: object) -> str:
    fits = isinstance(label, str) and 0 < len(label) <= LABEL_MAX and label.isprintable()
    if not fits or "," in str(label) or label != str(label).strip():
        raise InvalidInput(
            f"{serial.clean(str(label), 60)!r} is not a label", f"1 to {LABEL_MAX} characters without a comma"
        )
    return str(label)


def like_label(label: str | None) -> str:
    """The LIKE pattern of a label; empty without a label."""
    if label is None:
        return ""
    escaped = checked_label(label).replace("!", "!!").replace("%", "!%").replace("_", "!_")
    return f"%,{escaped},%"
