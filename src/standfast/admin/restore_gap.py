"""Opening the gap of a store that was put back in time, and closing it: `restore`, `restore promote`, `restore finish`.

`open_gap` runs in one transaction: a new epoch begins, leases end, active loops are paused and their slots in the gap
abandoned, grants that were not used expire, and the journal continues after the highest sequence number that was seen.
etcd does the last with `snapshot restore --bump-revision`.

Only a person may close the gap. `nothing_was_sent` also settles each effect that is in doubt only because of the gap.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from standfast import crash, log
from standfast.config.people import for_people
from standfast.core import gap as gaps
from standfast.core import journal
from standfast.core.gap import Gap
from standfast.core.receipts import Receipt
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.db.store import Store
from standfast.db.store_memory import replaced
from standfast.errors import Conflict, StorageError
from standfast.ledger.effects import texts, transitions
from standfast.ledger.effects.models import Effect, made
from standfast.record.loops import fire

SQL = load(__name__)

DOUBTS_MAX = 1000
"""Effects that `restore finish` shows and settles at a time."""


class Epochs(NamedTuple):
    """The present and the next epoch of a store. They are equal if a restored copy already has its new epoch."""

    old: int
    new: int


def open_gap(tx: Tx, gap: Gap, epochs: Epochs, salt: bytes) -> bool:
    """Begin the next epoch of the store with this gap. Returns False if another process did it first."""
    left = tx.maybe(SQL.next_epoch, old=str(epochs.old), new=str(epochs.new))
    copy = tx.maybe(SQL.forget_copy)
    if left is None or (epochs.old == epochs.new and copy is None):
        return False
    if copy is not None:
        tx.run(SQL.forget_move)
    before = gaps.read(tx)
    if before is not None:  # restored again before the gap was closed: both gaps become one
        seen, from_us = max(gap.seen, before.seen), min(gap.from_us, before.from_us)
        gap = gap._replace(seen=seen, from_us=from_us, carried=gap.carried and before.carried)
    tx.run(SQL.set_meta, key=gaps.KEY, value=gap.dumps())
    why = f"the store was restored from {gap.copy}" if gap.copy else "the store was put back in time"
    now_us = tx.now_us()
    for statement in _LEASES:
        tx.run(statement)
    tx.run(SQL.end_runs, reason=why, now_us=now_us)
    for row in tx.all(SQL.active_loops):
        fire.abandon(tx, row, gap.to_us, why)
    tx.run(SQL.pause_loops, reason=why, now_us=now_us)
    tx.run(SQL.expire_grants)
    about: Row = {"copy": gap.copy or "store", "summary": why, "data": gap.dumps(), "salt": salt}
    who = {"actor": tx.caller.actor, "holder": tx.caller.holder}
    tx.run(SQL.restored, seq=gap.seen + 1, now_us=now_us, **about, **who)
    if tx.dialect == "postgres":
        tx.run(SQL.continue_after, seq=gap.seen + 1)
    return True


def salt() -> bytes:
    """A random salt for `open_gap`, whose body may run twice and must write the same row."""
    return os.urandom(journal.SALT_BYTES)


def of_store(tx: Tx, copy: str, seen: int) -> Gap:
    """The gap from the last row of the store until now."""
    last = tx.maybe(SQL.last) or {"seq": 0, "time_us": 0}
    return Gap(copy, last["seq"], max(last["seq"], seen), last["time_us"], tx.now_us())


_LEASES = (
    SQL.end_effects,
    SQL.end_holds,
    SQL.end_locks,
    SQL.end_mail,
    SQL.end_sessions,
    SQL.end_tasks,
    SQL.end_webhooks,
)


def gone_back(store: Store) -> bool:
    """Open the gap if the store lacks a row that this host saw: another tool put it back in time.

    Returns False if standfast itself restored it: then this host remembers an older epoch. The caller opens the handle
    again.
    """
    known = store.memory.known() if store.memory is not None else None
    if known is None or known.epoch < store.pin[1]:
        return False
    if not known.seq or store.read(lambda tx: journal.remembered(tx, known.seq, known.hash)):
        return False  # another process has opened the gap and noted a row of the new epoch since we looked
    why = f"went back in time: it lacks journal row {known.seq}, which this host saw"
    _begin(store, Epochs(store.pin[1], known.epoch + 1), known.seq, why)
    return True


def took_place(store: Store, before: str) -> bool:
    """Open the gap of a store that took the place of `before`. It has no record of the effects that `before` sent."""
    last = store.read(lambda tx: tx.maybe(SQL.last)) or {"seq": 0}
    why = f"took the place of {before}, which this host used here"
    _begin(store, Epochs(store.pin[1], store.pin[1] + 1), last["seq"], why)
    return True


def _begin(store: Store, epochs: Epochs, seq: int, why: str) -> None:
    """Open the gap unless another process does it first. This handle must be opened again in both cases."""
    fresh, engine = salt(), store.engine
    crash.point("restore.before_gap")
    try:
        done = store.write(lambda tx: open_gap(tx, of_store(tx, "", seq + gaps.UNSEEN), epochs, fresh))
    except StorageError as error:
        if error.code != "store_replaced":
            raise
        done = False
    engine.dead = replaced(store.shown, store.pin, (store.pin[0], epochs.new))
    if done:
        log.warning(
            f"standfast: the store at {store.shown} {why}. Effects that may have been sent without its record are in "
            "doubt, loops are paused: standfast restore finish"
        )


# -- end of a gap -------------------------------------------------------------------------------------


class Open(NamedTuple):
    """An open gap, and the effects that are in doubt because of it."""

    gap: Gap
    effects: list[Effect]


def look(store: Store) -> Open:
    """The open gap and its effects. Raises Conflict if no gap is open."""

    def asked(tx: Tx) -> Open:
        gap = _current(tx)
        return Open(gap, [made(tx, row) for row in _doubts(tx)])

    return store.read(asked)


@for_people("restores the store")
def nothing_was_sent(store: Store) -> Receipt:
    """Close the gap: a person says that nothing else was sent. Raises Conflict if none is open."""
    crash.point("restore.before_finish")
    return store.write(_closed)


def _closed(tx: Tx) -> Receipt:
    gap = _current(tx)
    while rows := _doubts(tx):
        for row in rows:
            transitions.resolve(tx, row, None, "restore finish: nothing was sent in the gap")
    tx.run(SQL.close_gap)
    summary = f"the gap {gap.shown} is closed: nothing else was sent"
    return journal.append(tx, "store.gap_closed", gap.copy or "store", summary=summary, scope="", source="said")


def _current(tx: Tx) -> Gap:
    found = gaps.read(tx)
    if found is None:
        raise Conflict("no gap is open: the store has a record of everything it did", "standfast restore --here")
    return found


def _doubts(tx: Tx) -> list[Row]:
    return tx.all(SQL.doubts, like=f"{texts.IN_GAP} %", limit=DOUBTS_MAX)
