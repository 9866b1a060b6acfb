"""Finding a task, changing it, closing it: bodies of transactions, each on a row that is locked.

`core/claims.py` says who may change a row.
"""

from __future__ import annotations

from typing import Any

from standfast import crash, hints, serial
from standfast.config.scope import Keyspace
from standfast.core import journal, leases, removed
from standfast.core.checks import REASON_MAX
from standfast.core.claims import FREE, Claims, found
from standfast.core.receipts import Receipt
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.errors import IllegalTransition, InvalidInput
from standfast.ids import new_id, short
from standfast.record.tasks.models import (
    Note,
    Task,
    checked_text,
    task,
)

SQL = load(__name__)

Which = str | Task
"""How callers name a task: by its id, the end of its id, its fingerprint, or the task itself."""


# -- lookup ------------------------------------------------------------------------------------------


def named(row: Row) -> str:
    return f"task {short(row['id'])} ({serial.clean(row['title'], 60)})"


def _by_fingerprint(tx: Tx, fingerprint: str) -> Row | None:
    """The newest episode of a fingerprint."""
    return tx.maybe(SQL.by_fingerprint, fingerprint=fingerprint, **tx.caller.keyspace._asdict())


CLAIMS = Claims(
    Task,
    "tsk",
    by_key=_by_fingerprint,
    named=named,
    hints=(
        "standfast task list --all",
        lambda id: hints.command("task", "claim", id),
        lambda id: f"wait for its holder, or end the hold: {hints.command('task', 'release', id, '--force')}",
    ),
)
find, locked = CLAIMS.find, CLAIMS.locked


def locked_alone(tx: Tx, which: Which) -> Row:
    """The locked row, for a change that opens or closes an episode. Reports of the same problem wait."""
    if isinstance(which, Task):
        id, keyspace, fingerprint = which.id, Keyspace(which.scope, which.repository), which.fingerprint
    else:
        row = find(tx, which)
        id, keyspace, fingerprint = row["id"], keyspace_of(row), row["fingerprint"]
    lock_fingerprint(tx, keyspace, fingerprint)
    return CLAIMS.lock(tx, id)


def lock_fingerprint(tx: Tx, keyspace: Keyspace, name: str) -> None:
    tx.run(SQL.alone, name=f"task {keyspace.scope} {keyspace.repository} {name}")


def keyspace_of(row: Row) -> Keyspace:
    return Keyspace(row["scope"], row["repository"])


def current(tx: Tx, row: Row) -> Row | None:
    """The newest episode of the same problem."""
    return tx.maybe(SQL.by_fingerprint, fingerprint=row["fingerprint"], **keyspace_of(row)._asdict())


# -- the holder -------------------------------------------------------------------------------------


def outsider(tx: Tx, row: Row) -> int:
    """1 if the caller's change takes the task from a holder that is late or has exited, else 0."""
    return int(row["holder"] is not None and not leases.may_act_for(tx, row))


def fenced_off(tx: Tx, row: Row) -> dict[str, serial.Json]:
    """The data about that holder for the journal."""
    return {"fenced_off": row["holder"], "fence": row["fence"] + 1} if outsider(tx, row) else {}


# -- changes -----------------------------------------------------------------------------------------


def change(tx: Tx, row: Row, type: str, *, data: serial.Json = None, **columns: Any) -> Task:
    """Set some columns of a locked row and journal it."""
    new = row | columns | {"updated_us": tx.now_us()}
    tx.defer(SQL.change, found, now_us=tx.now_us(), **new)
    receipt = journal_change(tx, new, type, data=data)
    removed.keep(tx, "task", row, new)
    return task(tx, new, receipt)


def close(
    tx: Tx,
    row: Row,
    reason: str,
    *,
    result: str | None = None,
    cool_down_us: int | None = None,
    data: dict[str, serial.Json] | None = None,
) -> Task:
    """Close a locked row that is not closed. Another holder is fenced off: its later calls are refused."""
    crash.point("task.before_close")
    grow = outsider(tx, row)
    data = {**(data or {}), **fenced_off(tx, row)} or None
    written: Row = {
        "reason": serial.clean(reason, REASON_MAX),
        "result": result,
        "cool_down_us": row["cool_down_us"] if cool_down_us is None else cool_down_us,
        "actor": tx.caller.actor,
    }
    tx.defer(SQL.close, found, id=row["id"], fence=row["fence"], grow=grow, now_us=tx.now_us(), **written)
    new = row | written | FREE | {"state": "closed", "snoozed_until_us": None, "fence": row["fence"] + grow}
    new |= {"closed_us": tx.now_us(), "updated_us": tx.now_us()}
    receipt = journal_change(tx, new, "task.closed", data=data)
    removed.keep(tx, "task", row, new)
    return task(tx, new, receipt)


def let_go(tx: Tx, row: Row, *, grow: int = 0) -> Row:
    """Clear the holder. Not journalled: the caller journals the reason."""
    tx.defer(SQL.let_go, found, id=row["id"], fence=row["fence"], grow=grow, now_us=tx.now_us())
    return row | FREE | {"fence": row["fence"] + grow, "updated_us": tx.now_us()}


def rest(
    tx: Tx, which: Which, state: str, type: str, *, data: dict[str, serial.Json] | None = None, **columns: Any
) -> Task:
    """Make a task snoozed or accepted, without a holder. `next` does not list it."""
    row = CLAIMS.own(tx, which)
    _refuse_closed(row, state)
    crash.point("task.before_change")
    data = {**(data or {}), **fenced_off(tx, row)} or None
    if row["holder"] is not None:
        row = let_go(tx, row, grow=outsider(tx, row))
    return change(tx, row, type, data=data, state=state, **columns)


def note(tx: Tx, which: Which, text: str) -> Note:
    row = find(tx, which)
    text = checked_text(text, "a note")
    if not text.strip():
        raise InvalidInput("a note is empty", "write a sentence")
    id = new_id("tno")
    tx.run(SQL.note, id=id, task_id=row["id"], text=text, actor=tx.caller.actor, now_us=tx.now_us())
    receipt = journal_change(tx, row, "task.noted", summary=text)
    return Note(id, row["id"], text, tx.caller.actor, tx.now_us(), receipt)


def journal_change(
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
        scope=row["scope"],
    )


def _refuse_closed(row: Row, wanted: str) -> None:
    if row["state"] == "closed":
        raise IllegalTransition(
            f"{named(row)} is closed and cannot become {wanted}: {row['reason']}",
            hints.command("task", "reopen", short(row["id"])),
        )
