"""The models of decisions, and the checks of what callers give."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NamedTuple

from standfast import serial
from standfast.core import keys
from standfast.core.checks import NAME_MAX
from standfast.core.journal import Event
from standfast.core.receipts import Receipt
from standfast.db.contract import Row
from standfast.errors import InvalidInput
from standfast.models import Model

STATES = ("open", "done", "failed", "standing", "withdrawn")
WHAT_MAX = 4_000
TEXT_MAX = 20_000
TAGS_MAX = 20
TAG_MAX = 60
_UNFIT = "[\x00\ud800-\udfff]"  # characters that no store can hold; compiled on first use


class Decision(Model):
    """One decision and its outcome."""

    id: str
    scope: str
    repository: str
    """The id of the repository that it belongs to; empty outside any."""
    session_id: str | None
    node_id: str | None
    position: int | None
    """The position of the next message when it was decided."""
    what: str
    why: str | None
    then: str | None
    n: int
    state: str
    outcome: str | None
    agent: str
    """The agent that decided; if none was named, the one that recorded it."""
    tags: tuple[str, ...]
    created_us: int
    closed_us: int | None
    session_key: str | None = None
    session_state: str | None = None
    receipt: Receipt | None = None

    @staticmethod
    def columns() -> tuple[str, ...]:
        return "id", "state", "created_us when", "agent by", "session_key session", "what", "why", "outcome"


class Caught(Model):
    """A decision that was made but not recorded, and the control that noticed it."""

    what: str
    control: str
    notes: str | None
    session_id: str | None
    agent: str
    time_us: int
    seq: int | None
    receipt: Receipt | None = None

    @staticmethod
    def columns() -> tuple[str, ...]:
        return "seq", "time_us when", "control", "what", "notes"


class Unwritten(Model):
    """An effect that was sent while its session had no open decision."""

    effect_id: str
    session_id: str
    tool: str
    key: str
    state: str
    dispatched_us: int
    agent: str | None

    @property
    def place(self) -> str:
        """The cursor of a list behind this effect."""
        return self.effect_id

    @staticmethod
    def columns() -> tuple[str, ...]:
        return "effect_id", "dispatched_us when", "tool", "state"


# -- rows -----------------------------------------------------------------------------------------


def decision_of(row: Row) -> Decision:
    tags = tuple(tag for tag in row["tags"].split(",") if tag)
    return Decision.from_row(row, then=row["plan"], tags=tags, agent=row["agent"] or row["actor"])


def caught_of(event: Event) -> Caught:
    data = event.data or {}
    return Caught(
        what=data.get("what", event.summary or ""),
        control=data.get("control", ""),
        notes=data.get("notes"),
        session_id=event.session_id,
        agent=event.agent,
        time_us=event.time_us,
        seq=event.seq,
    )


# -- checks of arguments --------------------------------------------------------------------------


class Said(NamedTuple):
    """A decision's own words, checked."""

    what: str
    why: str | None
    then: str | None
    tags: str
    agent: str | None
    identity: str


def checked(what: str, why: str | None, then: str | None, tags: Collection[str], agent: str | None) -> Said:
    what = checked_text(what, "what", WHAT_MAX)
    why = checked_text(why, "why", TEXT_MAX) if why is not None else None
    then = checked_text(then, "then", TEXT_MAX) if then is not None else None
    agent = None if agent is None else keys.checked(agent, "an agent's name", limit=NAME_MAX)
    return Said(what, why, then, _tags(tags), agent, serial.hash([what, then]))


def checked_text(text: object, what: str, limit: int) -> str:
    if not isinstance(text, str):
        raise InvalidInput(f"{what} is text, not {type(text).__name__}", "write a sentence")
    if not text.strip():
        raise InvalidInput(f"{what} is empty", "write a sentence")
    if len(text) > limit:
        raise InvalidInput(
            f"{what} has {len(text):,} characters, and the limit is {limit:,}", "keep the rest elsewhere"
        )
    if found := re.search(_UNFIT, text):
        raise InvalidInput(f"{what} holds the character U+{ord(found[0]):04X}, which cannot be stored")
    return text


def _tags(tags: object) -> str:
    """The tags, joined by commas with a comma at both ends, so that `LIKE '%,ci,%'` finds one."""
    # A generator is refused: the transaction body that reads it may run twice.
    if isinstance(tags, str) or not isinstance(tags, Collection):
        raise InvalidInput(f"tags are a list of texts, not {type(tags).__name__}", 'tags=["ci"]')
    unique = sorted({checked_tag(tag) for tag in tags})
    if len(unique) > TAGS_MAX:
        raise InvalidInput(f"{len(unique)} tags, and the limit is {TAGS_MAX}")
    return f",{','.join(unique)}," if unique else ""


def checked_tag(tag: object) -> str:
    if not isinstance(tag, str):
        raise InvalidInput(f"a tag is text, not {type(tag).__name__}", 'tags=["ci"]')
    if not tag or len(tag) > TAG_MAX or not tag.isprintable() or "," in tag or tag != tag.strip():
        raise InvalidInput(f"{serial.clean(tag, 60)!r} is not a tag", f"1 to {TAG_MAX} characters without a comma")
    return tag


def outcome_text(outcome: object) -> str | None:
    """The outcome as text that can be stored. It never raises, so that a decision can always be closed."""
    if outcome is None:
        return None
    if isinstance(outcome, str):
        text = outcome
    else:
        try:
            text = serial.canonical(outcome)
        except InvalidInput:
            text = str(outcome)
    text = re.sub(_UNFIT, "", text)
    return text if len(text) <= TEXT_MAX else text[: TEXT_MAX - 1] + "…"


def last_line(error: BaseException) -> str:
    """The last line that Python prints for an exception."""
    from traceback import format_exception_only

    notes, error_text = getattr(error, "__notes__", []), "".join(format_exception_only(error)).strip()
    lines = error_text.splitlines()
    # Notes come after the line itself.
    lines = lines[: len(lines) - sum(len(str(note).splitlines()) for note in notes)] or lines
    return serial.clean(" ".join(lines), 500) or type(error).__name__
