"""Look up tool calls without an answer: did the action happen?

An agent that was killed during `git push` resumes without the answer. When it starts again, its hook reads its last
calls, asks the probe of each known action, and shows the agent the result. A probe may take long, so there are three
steps:

    waiting(store, …)                reads the calls, in one short transaction
    observations(asked, within_s)    asks all probes at the same time, within the hook's deadline, without the store
    keep(store, seen)                writes `call.observed` into the journal, as `seen` by standfast

The hook sends nothing and settles nothing. The next call of an effect in doubt, or a person, settles it.
"""

from __future__ import annotations

import json
import shlex
import threading
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from standfast import serial
from standfast.actions import doubts, table
from standfast.actions.action import Answer, CannotTell, Facts, Place, absent, unknown
from standfast.actions.shell_text import known_actions
from standfast.actions.table import Known
from standfast.clock import DAY_US, parse_duration
from standfast.core import journal
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.db.store import Store
from standfast.interchange.hooks.payloads import command_of

SQL = load(__name__)

EVENTS_MAX = 100
CALLS_MAX = 10
"""The last calls of a session that are looked up."""
LATELY_US = 7 * DAY_US
OBSERVED = "call.observed"
HEAD = "## Observed by standfast: calls that were never answered"
_SETTLED = ("arrived", "absent")


class Call(NamedTuple):
    """One call without an answer."""

    subject: str
    session_id: str
    text: str
    sent_us: int
    known: tuple[Known, ...] = ()
    facts: Facts | None = None
    """The facts that `standfast once` read before it ran the command."""


class Seen(NamedTuple):
    """The result of looking up one call."""

    call: Call
    happened: bool | None
    evidence: str

    @property
    def line(self) -> str:
        """The line for the agent, with an advice if the outcome is unknown."""
        command = serial.clean(self.call.text, 200).replace("`", "'")
        then = "" if self.happened is not None else ": look before you repeat it"
        return f"`{command}` {doubts.WORDS[self.happened]} ({serial.clean(self.evidence, 300)}){then}"


def waiting(store: Store, session_id: str, cwd: str | None, now_us: int) -> list[Call]:
    """The last known actions of a session that have no answer, and its `once` commands in doubt; the oldest first."""

    def read(tx: Tx) -> list[Call]:
        found = [*calls(tx, session_id, cwd), *_effects(tx, session_id)]
        return [one for one in found if one.sent_us > now_us - LATELY_US][:CALLS_MAX]

    return sorted(store.read(read), key=lambda call: call.sent_us)


def calls(tx: Tx, session_id: str, cwd: str | None) -> list[Call]:
    """The last known actions of a session that have no answer."""
    rows = tx.all(SQL.recent, session_id=session_id, limit=EVENTS_MAX)
    found = (_call(tx, row, session_id, cwd) for row in _unanswered(rows))
    return [call for call in found if call is not None]


def observed(tx: Tx, session_id: str) -> list[str]:
    """The observations since the last call of a session, the oldest first."""
    lines = []
    for row in tx.all(SQL.recent, session_id=session_id, limit=EVENTS_MAX):
        if row["type"] == "tool.called":
            break
        if row["type"] == OBSERVED and row["state"] in _SETTLED:
            lines.append(row["summary"])
    return lines[::-1]


def _unanswered(rows: list[Row]) -> list[Row]:
    """The calls without a later record of the same subject. The rows are ordered from new to old."""
    open_: list[Row] = []
    heard: set[str] = set()
    for row in rows:
        if row["type"] == "tool.called" and row["subject"] not in heard:
            open_.append(row)
        if row["type"] in ("tool.called", "tool.answered", "tool.denied", "gate.held"):
            heard.add(row["subject"])
        if row["type"] == OBSERVED and row["state"] in _SETTLED:
            heard.add(row["subject"])
    return open_


def _call(tx: Tx, row: Row, session_id: str, cwd: str | None) -> Call | None:
    called = tx.maybe(SQL.called, id=row["subject"])
    if called is not None and called["status"] != "pending":
        return None
    text = _command(called["input"]) if called is not None else _summary(row)
    known = known_actions(text, cwd) if text and cwd else []
    return Call(row["subject"], session_id, text or "", row["occurred_us"], tuple(known)) if known else None


def _command(text: str | None) -> str:
    """The command of a shell tool's input."""
    try:
        given = json.loads(text) if text else None
    except ValueError:
        return ""
    found = command_of(given)
    if isinstance(found, list):
        return found[-1] if found[:2] in (["bash", "-lc"], ["sh", "-c"], ["bash", "-c"]) else shlex.join(found)
    return found


def _summary(row: Row) -> str | None:
    """The command of a call without an id: the journal has a short command as its summary."""
    text, tool = row["summary"] or "", (serial.read(row["data"]) or {}).get("tool")
    return text.removeprefix(f"{tool} ") if tool and text.startswith(f"{tool} ") and len(text) < 190 else None


def _effects(tx: Tx, session_id: str) -> list[Call]:
    """The commands of `standfast once` in this session that are in doubt."""
    from standfast.ledger.effects import begin

    found = []
    for doubt in begin.unsettled(tx, session_id):
        row = doubt.row
        context, intent = serial.read(row["context"]), serial.read(row["intent"])
        facts = context.get("action") if isinstance(context, dict) else None
        if row["tool"] == "once" and isinstance(facts, dict) and isinstance(intent, dict):
            text = shlex.join(map(str, intent.get("argv") or []))
            found.append(Call(row["id"], session_id, text, row["dispatched_us"] or row["updated_us"], facts=facts))
    return found


# -- questions ---------------------------------------------------------------------------------------------


def observations(asked: Sequence[Call], now_us: int, within_s: float) -> list[Seen]:
    """Ask all probes at the same time. A probe without an answer after `within_s` seconds counts as unknown."""
    found: dict[int, Answer] = {}
    until_s = time.monotonic() + within_s

    def ask(at: int, call: Call) -> None:
        found[at] = _answer(call, now_us, until_s)

    threads = [threading.Thread(target=ask, args=one, daemon=True) for one in enumerate(asked)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_left_s(until_s))
    late = unknown(f"its probe did not answer within {within_s:.1f} s")
    answers = [found.get(at, late) for at in range(len(asked))]
    return [Seen(call, answer.happened, answer.evidence) for call, answer in zip(asked, answers, strict=True)]


def _left_s(until_s: float) -> float:
    return max(until_s - time.monotonic(), 0.0)


def _answer(call: Call, now_us: int, until_s: float) -> Answer:
    """Ask the probes of one call, one after the other, within the time that is left."""
    if call.facts is not None:
        place = Place("/", call.sent_us, _left_s(until_s))
        return _counted(table.check(call.facts, place), call, call.facts, now_us)
    sent_us, answer = call.sent_us, unknown("no fact about the call is known")
    for known in call.known:
        try:
            facts = known.before(sent_us, _left_s(until_s))
        except CannotTell as error:
            return unknown(str(error))
        place = Place(known.cwd, call.sent_us, _left_s(until_s))
        answer = _counted(table.check(facts, place), call, facts, now_us)
        if not answer.happened:
            return answer
        if known.action.name == "git commit":
            sent_us = now_us  # HEAD is the commit of this call, so a later push of this call pushed it
    return answer


def _counted(answer: Answer, call: Call, facts: Facts, now_us: int) -> Answer:
    """The answer of the probe. "Not there" counts only if `settle` has passed since the call."""
    action = table.named(facts.get("action"))
    settle_us = parse_duration(action.settle) if action is not None else 0
    if answer.happened is False and now_us - call.sent_us < settle_us:
        return unknown(f"{answer.evidence}, but it may still be on its way")
    return absent(answer.evidence) if answer.happened is False else answer


# -- storage -----------------------------------------------------------------------------------------------


def keep(store: Store, seen: Sequence[Seen]) -> None:
    """Write each observation into the journal."""
    states = {True: "arrived", False: "absent", None: "unknown"}

    def write(tx: Tx) -> None:
        for one in seen:
            data: dict[str, Any] = {"action": one.call.text[:500], "evidence": one.evidence}
            journal.append(
                tx,
                OBSERVED,
                one.call.subject,
                session_id=one.call.session_id,
                state=states[one.happened],
                summary=one.line,
                data=data,
            )

    if seen:
        store.write(write)


def text(seen: Sequence[Seen]) -> str:
    """The text that the agent reads after its brief."""
    return "\n".join([HEAD, *(f"- {one.line}" for one in seen)]) if seen else ""
