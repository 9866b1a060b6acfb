"""The author of a text, for an LLM that reads it.

An LLM reads stored text beside its own instructions. So standfast quotes each such text, on one line or with a mark on
each line. It names the author and the kind of author: `person`, `agent` or `unknown`. A person is an actor of the form
`user@host:terminal`; standfast never gives this form to a process that has an agent's variables (`config/actor.py`).
An actor is a name, not a proof: docs/operating/security.md says what an agent can still do.
"""

from __future__ import annotations

import json
import re
from typing import Literal

from standfast import serial
from standfast.config.actor import AGENTS, is_person
from standfast.core.checks import NAME_MAX
from standfast.db.contract import Tx
from standfast.db.sql import load
from standfast.models import Model

SQL = load(__name__)

Kind = Literal["person", "agent", "unknown"]

TEXT_MAX = 200
LINE_MAX = 100_000
ACTORS_MAX = 100
TASK_TEXT = ("task.opened", "task.seen", "task.edited")
"""The events that write a task's title or body."""
_PLAIN = r"[\w.:/@+-]+"


class Author(Model):
    """The actor that wrote a text, as one clean line; empty if the store does not say."""

    name: str
    kind: Kind

    def __str__(self) -> str:
        return f"{name(self.name)} ({self.kind})" if self.name else "an unknown author"


def of(actor: object) -> Author:
    """The author that an actor column names."""
    if not isinstance(actor, str) or not actor:
        return Author("", "unknown")
    return Author(serial.clean(actor, NAME_MAX), _kind(actor))


def of_events(tx: Tx, subject: str, *types: str) -> Author:
    """The author of a text that up to three types of events wrote. If several actors wrote, one that is no person."""
    one, two, three = (types * 3)[:3]
    rows = tx.all(SQL.wrote, subject=subject, one=one, two=two, three=three, limit=ACTORS_MAX)
    authors = [of(row["actor"]) for row in rows]
    if len(authors) == ACTORS_MAX:
        return Author(authors[0].name, "unknown")
    return next((author for author in authors if author.kind != "person"), authors[0] if authors else of(None))


def quoted(text: str, limit: int = TEXT_MAX) -> str:
    """The text on one line in double quotes, with the quotes inside it escaped."""
    return json.dumps(serial.clean(text, limit), ensure_ascii=False)


def name(text: str) -> str:
    """A name; in quotes if an LLM could read it as more than a name."""
    clean = serial.clean(text, NAME_MAX)
    return clean if re.fullmatch(_PLAIN, clean) else json.dumps(clean, ensure_ascii=False)


def quoted_lines(text: str) -> str:
    """A text of several lines, each after `> `, without characters that move the cursor or are invisible."""
    return "\n".join(f"> {clean_line(line)}".rstrip() for line in text.splitlines() or [""])


def clean_line(line: str) -> str:
    """One line without characters that move the cursor or are invisible. Its indentation stays."""
    indent = line[: len(line) - len(line.lstrip(" \t"))]
    return indent.expandtabs(4) + serial.clean(line, LINE_MAX)


def _kind(actor: str) -> Kind:
    if is_person(actor):
        return "person"
    return "agent" if actor.partition(":")[0] in {agent.name for agent in AGENTS} else "unknown"
