"""Subjects: the action of an effect or approval in one line, with its session and its repository.

Screens, the recovery report and the brief use it. This module also finds the ids that a text names.
"""

from __future__ import annotations

from collections.abc import Iterable

from standfast import serial
from standfast.config.scope import Label
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.db.store import Resource, query
from standfast.ids import is_id, like_suffix
from standfast.ledger import subjects
from standfast.ledger.subjects import Action
from standfast.models import Model
from standfast.views.coverage import named

SQL = load(__name__)


class Subject(Model):
    """The action of an effect or approval, its session and its repository."""

    id: str
    about: str
    """The command, or the tool and its arguments."""
    session_key: str | None
    agent: str | None
    repository: str
    """The repository and the scope; empty outside any."""
    directory: str | None
    """The directory in which a command runs."""

    def names(self) -> dict[str, str | None]:
        """The fields that a screen shows beside those of the effect or approval."""
        return {"about": self.about, "session_key": self.session_key, "repository": self.repository}


class Subjects(Resource):
    """Find ids and the actions of effects and approvals."""

    __slots__ = ()

    @query
    def of(self, tx: Tx, ids: Iterable[str]) -> dict[str, Subject]:
        """The subject of each effect and approval among these ids."""
        return {id: found for id in ids if (found := of(tx, id)) is not None}

    @query
    def find(self, tx: Tx, text: str) -> list[str]:
        """The ids that `text` names: an id, the end of one, or the key of a session, effect, loop or task."""
        return found_ids(tx, text)


def of(tx: Tx, id: str) -> Subject | None:
    """The subject of one effect or approval; None for any other id."""
    row = _row(tx, id)
    if row is None:
        return None
    did = action_of(row)
    repository = named(Label(row["git_dir"], row["origin"]), row["scope"])
    directory = _dict(serial.read(row["context"])).get("cwd")
    return Subject(id, did.text, row["session_key"], row["agent"], repository, directory)


def _row(tx: Tx, id: str) -> Row | None:
    statement = {"eff": SQL.effect, "apr": SQL.approval}.get(id[:3])
    return tx.maybe(statement, id=id) if statement is not None else None


def action_of(row: Row) -> Action:
    """The action of an approval by its stored question, and that of an effect by its intent."""
    if row["question"] is not None:
        asked = _dict(serial.read(row["question"]))
        return subjects.action(str(asked.get("tool", row["tool"])), asked.get("action"))
    by = _dict(serial.read(row["context"])).get("by")
    return subjects.action(row["tool"], serial.read(row["intent"]), by)


def _dict(value: serial.Json) -> dict[str, serial.Json]:
    return value if isinstance(value, dict) else {}


def found_ids(tx: Tx, text: str) -> list[str]:
    """The ids that `text` names, of every kind that has a screen."""
    if is_id(text):
        return [text]
    rows = tx.all(SQL.by_key, key=text)
    if (suffix := like_suffix(text)) is not None:
        prefix = f"{text.strip().lower()[:3]}_" if text.strip()[3:4] == "_" else ""
        rows += tx.all(SQL.by_suffix, pattern=f"{prefix}%{suffix}")
    return list(dict.fromkeys(str(row["id"]) for row in rows))
