"""Finding a task, changing it, closing it: bodies of transactions, each on a row that is locked.

A change asks first whether somebody else is at it. What the caller holds is known by its holder, by
its actor (`claim` in one shell, `done` in another), and, where a claimed `Task` is given, by its
fence: a holder that slept too long is refused even under its own name.
"""

from __future__ import annotations

from typing import Any

from standfast import crash, serial
from standfast.config.scope import scope_of
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.errors import IllegalTransition, InvalidInput, LeaseLost, NotFound, StandfastError
from standfast.footings import journal, leases, naming
from standfast.footings.journal import Receipt
from standfast.ids import new_id, short
from standfast.record.tasks.nouns import (
    REASON_MAX,
    Note,
    Task,
    checked_text,
    task,
)

SQL = load(__name__)

Which = str | Task
"""A task as callers name it: its id, the end of its id, its fingerprint, or the task itself."""


# -- finding -----------------------------------------------------------------------------------------


def find(tx: Tx, which: Which) -> Row | StandfastError:
    """By id, by fingerprint in this scope (its newest episode), or by the end of an id."""
    name = which.id if isinstance(which, Task) else which
    row = naming.row_of(
        tx,
        name,
        by_id=SQL.by_id,
        by_key=lambda text: tx.maybe(SQL.by_fingerprint, scope=tx.caller.home, fingerprint=text),
        ends=SQL.by_suffix,
        prefix="tsk",
        noun="task",
    )
    return row if row is not None else _unknown(name)


def _unknown(name: str) -> NotFound:
    return NotFound(
        f"there is no task {serial.clean(name, 80)!r} in this scope", "standfast task list    (--all: every scope)"
    )


def locked(tx: Tx, which: Which, *, alone: bool = False) -> Row | StandfastError:
    """The row, and nobody else changes it until this transaction ends.

    `alone` also keeps sightings of the same problem out, for what opens or closes an episode.
    """
    if isinstance(which, Task):
        id, scope, fingerprint = which.id, which.scope, which.fingerprint  # on PostgreSQL a round trip less
    else:
        row = find(tx, which)
        if isinstance(row, StandfastError):
            return row
        id, scope, fingerprint = row["id"], row["scope"], row["fingerprint"]
    if alone:
        be_alone(tx, scope, fingerprint)
    return tx.maybe(SQL.by_id_for_update, id=id) or _unknown(id)


def be_alone(tx: Tx, scope: str, name: str) -> None:
    tx.run(SQL.alone, name=f"task {scope} {name}")


def current(tx: Tx, row: Row) -> Row | None:
    """The newest episode of the same problem."""
    return tx.maybe(SQL.by_fingerprint, scope=row["scope"], fingerprint=row["fingerprint"])


# -- whose it is -------------------------------------------------------------------------------------


def refusal(tx: Tx, row: Row, which: Which) -> LeaseLost | None:
    """Why the caller may not change this task now, if so."""
    claimed = isinstance(which, Task) and which.holder == tx.caller.holder
    if claimed and row["fence"] != which.fence:  # type: ignore[union-attr]
        return leases.lost(named(row), row, which.fence)  # type: ignore[union-attr]
    if row["holder"] is None or leases.acts_for(tx, row) or not leases.stand(tx, row).live:
        return None
    return LeaseLost(
        f"{named(row)} is held by {leases.who(row['holder'])} with fence {row['fence']}, not by {tx.caller.actor}",
        f"wait for its holder, or end the hold: standfast task release {short(row['id'])} --force",
    )


def outsider(tx: Tx, row: Row) -> int:
    """1 if a change by the caller has to fence off a holder that is late or gone."""
    return int(row["holder"] is not None and not leases.acts_for(tx, row))


def fenced_off(tx: Tx, row: Row) -> dict[str, serial.Json]:
    """What the journal says about that holder."""
    return {"fenced_off": row["holder"], "fence": row["fence"] + 1} if outsider(tx, row) else {}


# -- changing ----------------------------------------------------------------------------------------


def change(tx: Tx, row: Row, type: str, *, data: serial.Json = None, **columns: Any) -> Task:
    """Set some columns of a locked row and journal it."""
    row = row | columns | {"updated_us": tx.now_us()}
    tx.defer(SQL.change, _there, now_us=tx.now_us(), **row)
    return task(tx, row, told(tx, row, type, data=data))


def close(
    tx: Tx,
    row: Row,
    reason: str,
    *,
    result: str | None = None,
    cool_down_us: int | None = None,
    data: dict[str, serial.Json] | None = None,
) -> Task:
    """Close a locked row that is not closed. Whoever held it and is not the caller is fenced off."""
    crash.point("task.before_close")
    grow = outsider(tx, row)
    data = {**(data or {}), **fenced_off(tx, row)} or None
    written: Row = {
        "reason": serial.clean(reason, REASON_MAX),
        "result": result,
        "cool_down_us": row["cool_down_us"] if cool_down_us is None else cool_down_us,
        "actor": tx.caller.actor,
    }
    tx.defer(SQL.close, _there, id=row["id"], fence=row["fence"], grow=grow, now_us=tx.now_us(), **written)
    nobody = dict.fromkeys(("holder", "lease_until_us", "lease_boot", "lease_mono_us", "lease_for_us"))
    row = row | written | nobody | {"state": "closed", "snoozed_until_us": None, "fence": row["fence"] + grow}
    row |= {"closed_us": tx.now_us(), "updated_us": tx.now_us()}
    return task(tx, row, told(tx, row, "task.closed", data=data))


def let_go(tx: Tx, row: Row, *, grow: int = 0) -> Row:
    """The row without its holder. Not journalled: whoever asks says why."""
    tx.defer(SQL.let_go, _there, id=row["id"], fence=row["fence"], grow=grow, now_us=tx.now_us())
    nobody = dict.fromkeys(("holder", "lease_until_us", "lease_boot", "lease_mono_us", "lease_for_us"))
    return row | nobody | {"fence": row["fence"] + grow, "updated_us": tx.now_us()}


def rest(
    tx: Tx, which: Which, state: str, type: str, *, data: dict[str, serial.Json] | None = None, **columns: Any
) -> Task | StandfastError:
    """Snoozed or accepted: nobody works on it for now."""
    row = locked(tx, which)
    if isinstance(row, StandfastError):
        return row
    refused = refusal(tx, row, which) or _is_closed(row, state)
    if refused is not None:
        return refused
    crash.point("task.before_change")
    data = {**(data or {}), **fenced_off(tx, row)} or None
    if row["holder"] is not None:
        row = let_go(tx, row, grow=outsider(tx, row))
    return change(tx, row, type, data=data, state=state, **columns)


def note(tx: Tx, which: Which, text: str) -> Note | StandfastError:
    row = find(tx, which)
    if isinstance(row, StandfastError):
        return row
    text = checked_text(text, "a note")
    if not text.strip():
        return InvalidInput("a note is empty", "say it in words")
    id = new_id("tno")
    tx.run(SQL.note, id=id, task_id=row["id"], text=text, actor=tx.caller.actor, now_us=tx.now_us())
    receipt = told(tx, row, "task.noted", summary=text)
    return Note(id, row["id"], text, tx.caller.actor, tx.now_us(), receipt)


def told(
    tx: Tx, row: Row, type: str, *, summary: str | None = None, data: serial.Json = None, source: str = "seen"
) -> Receipt:
    title = row["title"] if not row["reason"] else f"{serial.clean(row['title'], 120)}: {row['reason']}"
    return journal.append(
        tx,
        type,
        row["id"],
        summary=summary or title,
        data=data,
        session_id=row["session_id"],
        state=row["state"],
        source=source,
        scope=scope_of(row["scope"]),
    )


def named(row: Row) -> str:
    return f"task {short(row['id'])} ({serial.clean(row['title'], 60)})"


def _is_closed(row: Row, wanted: str) -> IllegalTransition | None:
    if row["state"] != "closed":
        return None
    return IllegalTransition(
        f"{named(row)} is closed and cannot become {wanted}: {row['reason']}",
        f"standfast task reopen {short(row['id'])}",
    )


def _there(row: Row) -> None:
    """The row was locked, so the compare-and-set has found it; `defer` asserts that."""
