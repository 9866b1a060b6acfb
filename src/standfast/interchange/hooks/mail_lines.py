"""One line about waiting mail, for the agent whose hook runs: "1 mail from reviewer: …".

An agent's session reads these boxes: its own name (`claude-code:ID`), its session, its kind (`claude-code`), and every
name from `standfast agent name`, also as a role. Each session sees the line about a mail once, and again with each
prompt until an agent reads the mail. The line claims nothing: the first agent that reads the mail gets it.
"""

from __future__ import annotations

from standfast import hints, serial
from standfast.core import authors, journal
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.ids import short
from standfast.interchange.hooks.payloads import Heard

SQL = load(__name__)

EVENTS = frozenset({"SessionStart", "UserPromptSubmit", "BeforeAgent", "PostToolUse", "AfterTool"})
"""Hooks whose answer may add text to the agent's context."""
TYPE = "mail.announced"
BOXES_MAX = 12
NAMES_MAX = 3
MAILS_MAX = 20


def waiting(tx: Tx, heard: Heard, session_id: str) -> list[Row]:
    """The mail that this agent can read now. Except with a prompt, only mail that the session has not seen."""
    rows = tx.all(SQL.waiting, now_us=tx.now_us(), scope=tx.caller.scope, limit=MAILS_MAX, **_boxes(tx, heard))
    if heard.kind == "prompt":
        return rows
    asked = {"type": TYPE, "session_id": session_id}
    return [row for row in rows if tx.maybe(SQL.announced, subject=row["id"], **asked) is None]


def announce(tx: Tx, rows: list[Row], session_id: str) -> str:
    """Record that the session saw the line, and return the line."""
    for row in rows:
        journal.append(tx, TYPE, row["id"], session_id=session_id, summary=f"to {row['box']}", state=row["state"])
    return line(rows)


def line(rows: list[Row]) -> str:
    """The number of mails, the writer and text of the first one, and the command that reads it."""
    row = rows[0]
    about = row["subject"] or _one_line(serial.read(row["body"]))
    writer = authors.of(serial.read(row["provenance"]).get("actor"))
    count = f"{len(rows)}{'+' * (len(rows) == MAILS_MAX)} mail{'s' * (len(rows) > 1)}"
    first = ", the first" if len(rows) > 1 else ""
    return (
        f"standfast: {count} for you{first} from {authors.name(row['sender'])}, written by {writer}: "
        f"{authors.quoted(about)}. Read it: {hints.command('mail', 'read', short(row['id']))}"
    )


def _boxes(tx: Tx, heard: Heard) -> Row:
    names = tx.all(SQL.names, scope=tx.caller.scope, holder=tx.caller.holder, limit=NAMES_MAX)
    found = [tx.caller.actor, f"session:{heard.key}", heard.agent, f"role:{heard.agent}"]
    found += [box for row in names for box in (row["name"], f"role:{row['name']}")]
    return {f"box_{n}": box for n, box in enumerate((found + [""] * BOXES_MAX)[:BOXES_MAX])}


def _one_line(body: serial.Json) -> str:
    return body if isinstance(body, str) else serial.canonical(body)
