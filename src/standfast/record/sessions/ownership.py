"""Ownership of a session: open, resume, take over, end."""

from __future__ import annotations

from collections.abc import Mapping

from standfast import hints, serial
from standfast.core import journal, leases, repositories
from standfast.core.checks import REASON_MAX
from standfast.core.receipts import Receipt
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.errors import Conflict, EffectInDoubt, InProgress
from standfast.ids import is_id, new_id
from standfast.ledger.openings import Opening, lineage_of
from standfast.record import nodes
from standfast.record.sessions import queries
from standfast.record.sessions.models import InDoubt, OpenDecision, Opened, Resumed, SessionRecord
from standfast.record.sessions.queries import record

SQL = load(__name__)

leases.renewed("session")

IN_DOUBT_MAX = 100
HANDED_OVER = "handed over"
"""The reason of a session that continues in another store begins with these words."""
Stops = Mapping[str, tuple[str, str]]
"""Effect ids, each with the code and the message of the error that a call raised."""
_TERM = ("holder", "lease_until_us", "lease_boot", "lease_mono_us", "lease_for_us")


def open_or_resume(tx: Tx, key: str, wanted: Row, *, alone: bool, join: str | None) -> Opened:
    """Open the session of this key, new or not. Raises InProgress while another live holder has it."""
    found = find_to_open(tx, key)
    if found is None:
        named: Row = {"id": new_id("ses"), "scope": tx.caller.scope, "key": key, **tx.caller.labelled()}
        made = tx.maybe(SQL.create, now_us=tx.now_us(), **named, **wanted)
        if made is not None:
            return new(tx, made)
        found = queries.by_key(tx, key)  # another process created it meanwhile
        assert found is not None
    row = tx.one(queries.SQL.by_id_for_update, id=found["id"])
    return open_again(tx, row, wanted, alone=alone, joins=join in (row["id"], row["key"]))


def find_to_open(tx: Tx, key: str) -> Row | None:
    """The row of a key or an id. An unknown id raises NotFound: it never becomes the key of a new session."""
    if is_id(key):
        return queries.find_by_id(tx, key)
    return queries.by_key(tx, key)


def new(tx: Tx, row: Row) -> Opened:
    root = nodes.add_root(tx, row["id"])
    return Opened(record(tx, row, journal_change(tx, row, "session.opened")), None, root, ())


def open_again(tx: Tx, row: Row, wanted: Row, *, alone: bool, joins: bool) -> Opened:
    if row["state"] == "completed" and (row["reason"] or "").startswith(HANDED_OVER):
        raise Conflict(
            f"session {row['key']!r} was {row['reason']}: it continues in the store that imported the bundle",
            "use another key here",
            code="handed_over",
        )
    standing = leases.judge(tx, row)
    before = record(tx, row)
    same = standing.live and row["holder"] == tx.caller.holder
    if same and (row["holder"].startswith("a:") or (joins and alone)):
        term = {name: wanted[name] for name in _TERM}
        kept = tx.one(SQL.extend, id=row["id"], fence=row["fence"], **term)
        return _opened(tx, kept, _found_by_this_opening(tx, before) if joins else before, None)
    if standing.live and not _ours(tx, row, alone=alone):
        raise held(tx, row)
    taken = tx.one(SQL.take_over, id=row["id"], fence=row["fence"], now_us=tx.now_us(), **wanted)
    return _opened(tx, taken, before, _journal_opening(tx, taken, before))


def _ours(tx: Tx, row: Row, *, alone: bool) -> bool:
    """Whether the caller may continue a live hold. True if this process dropped the hold, or if the caller's actor
    has it."""
    if row["holder"] == tx.caller.holder:
        return alone
    return bool(row["holder"] == leases.actor_holder(tx.caller.actor))


def _journal_opening(tx: Tx, taken: Row, before: SessionRecord) -> Receipt:
    """Journal the state that this opening found. No row stores that a session crashed."""
    if before.crashed:
        data = {"holder": before.holder, "was": before.standing, "since_us": alive_us(before)}
        return journal_change(tx, taken, "session.taken_over", data=data)
    data = {"state": before.state, "reason": before.reason, "by": before.agent, "since_us": before.updated_us}
    return journal_change(tx, taken, "session.resumed", data=data)


def _found_by_this_opening(tx: Tx, now: SessionRecord) -> SessionRecord | None:
    """The session before the current opening, from the journal; None if it was new then."""
    told = tx.maybe(SQL.opened, id=now.id)
    if told is None or told["type"] == "session.opened":
        return None
    data = serial.read(told["data"])
    was: Row = {"openings": now.openings - 1, "updated_us": data["since_us"], "lease_until_us": None}
    if told["type"] == "session.taken_over":
        return now.replace(state="active", holder=data["holder"], standing=data["was"], **was)
    return now.replace(
        state=data["state"], reason=data["reason"], agent=data["by"], holder=None, standing="free", **was
    )


def alive_us(crashed: SessionRecord) -> int:
    """The last sign of life: when it was opened, or its lease renewed."""
    if crashed.lease_until_us is None:
        return crashed.updated_us
    return max(crashed.updated_us, crashed.lease_until_us - leases.default_us(crashed.holder or ""))


def _opened(tx: Tx, row: Row, before: SessionRecord | None, receipt: Receipt | None) -> Opened:
    lineage = lineage_of(tx, row["id"]) if row["parent_id"] is not None else ()
    return Opened(record(tx, row, receipt), before, nodes.root(tx, row["id"]), lineage)


def held(tx: Tx, row: Row) -> InProgress:
    refusal = leases.in_progress(tx, f"session {row['key']!r}", row)
    own = row["holder"] == tx.caller.holder
    return InProgress(
        refusal.message + (" (this process: another thread, or a block that is still open)" if own else ""),
        f"wait for it to end; to end its hold: {hints.command('session', 'take', row['key'])}",
    )


def let_go(
    tx: Tx, row: Row, state: str, reason: str | None, type: str, *, grow: int = 0, data: serial.Json = None
) -> SessionRecord:
    reason = None if reason is None else serial.clean(reason, REASON_MAX)
    ended = tx.one(
        SQL.let_go,
        id=row["id"],
        fence=row["fence"],
        grow=grow,
        state=state,
        reason=reason,
        now_us=tx.now_us(),
        ended_us=None if state == "waiting" else tx.now_us(),
    )
    return record(tx, ended, journal_change(tx, ended, type, data=data))


def exit_outcome(code: int) -> tuple[str, str | None]:
    """The state and the reason of a session after a command's exit code. After Ctrl-C it waits: it did not fail."""
    if code == 0:
        return "completed", None
    import signal  # on use: it takes 1 ms

    if code in (-signal.SIGINT, 128 + signal.SIGINT):
        return "waiting", "interrupted"
    if code > 0:
        return "failed", f"exit code {code}"
    return "failed", f"ended by {_signal_name(-code)}"


def _signal_name(number: int) -> str:
    import signal

    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def expected(tx: Tx, row: Row, stops: Stops | None = None) -> str | None:
    """The open question that a person has to settle before the session can continue; None if there is none.

    `stops` has the errors that calls of this opening raised.
    """
    for effect_id, (code, message) in (stops or {}).items():
        effect = tx.maybe(SQL.effect, id=effect_id)
        open_as = ("dispatched",) if code == EffectInDoubt.code else ("planned", "failed")
        if effect is not None and effect["state"] in open_as:
            return message
    asked = tx.maybe(SQL.asked, scope=row["scope"], id=row["id"], now_us=tx.now_us())
    if asked is not None:
        return f"{asked['tool']} waits for approval"
    if tx.maybe(SQL.dispatched, id=row["id"], limit=1) is None:  # for most sessions; saves a hook the import below
        return None
    from standfast.ledger.effects import begin as effects

    doubts = effects.unsettled(tx, row["id"])
    return f"{doubts[0].row['tool']} is in doubt" if doubts else None


def proceed(tx: Tx, session_id: str, reason: str | None) -> tuple[InDoubt, ...]:
    """Journal each effect in doubt after which the program continues."""
    from standfast.ledger.effects import begin as effects
    from standfast.ledger.effects import transitions

    said = None if reason is None else serial.clean(reason, REASON_MAX)
    rows = [doubt.row for doubt in effects.unsettled(tx, session_id)]
    for row in rows:
        transitions.proceed(tx, row, session_id, said)
    return tuple(InDoubt(*(row[name] for name in InDoubt.field_names())) for row in rows)


def in_doubt(tx: Tx, session_id: str) -> tuple[InDoubt, ...]:
    sent = tx.all(SQL.dispatched, id=session_id, limit=IN_DOUBT_MAX)
    doubted = [row for row in sent if row["gave_up_us"] is not None or not leases.judge(tx, row).live]
    return tuple(InDoubt(*(row[name] for name in InDoubt.field_names())) for row in doubted)


def journal_change(tx: Tx, row: Row, type: str, *, data: serial.Json = None) -> Receipt:
    summary = f"{row['key']}: {row['reason']}" if row["reason"] else row["key"]
    return journal.append(
        tx,
        type,
        row["id"],
        session_id=row["id"],
        state=row["state"],
        summary=summary,
        data=data,
        scope=row["scope"],
        label=repositories.labelled(row),
    )


def found(tx: Tx, before: SessionRecord) -> Resumed:
    """The earlier state and the counts of a resumed session."""
    counts = tx.one(SQL.counts, id=before.id)
    decisions = tx.all(SQL.open_decisions, id=before.id, limit=IN_DOUBT_MAX)
    return Resumed(
        state=before.state,
        crashed=before.crashed,
        reason=before.reason,
        since_us=alive_us(before) if before.crashed else before.updated_us,
        by=leases.holder_text(before.holder) if before.holder else before.agent or "no agent",
        openings=before.openings,
        steps=counts["steps"],
        effects=counts["effects"],
        messages=int(counts["messages"]),
        in_doubt=in_doubt(tx, before.id),
        decisions=tuple(OpenDecision(row["id"], row["what"]) for row in decisions),
    )


def move(tx: Tx, opening: Opening, cursor: str) -> None:
    """Set the cursor, while this opening owns the session. Raises LeaseLost."""
    moved = tx.maybe(SQL.move, cursor=cursor, now_us=tx.now_us(), holder=opening.holder, **opening.guarded())
    if moved is None:
        opening.check(tx)
        return
    data = {"cursor": serial.read(cursor)}
    journal.append(tx, "session.moved", opening.session_id, session_id=opening.session_id, data=data)
