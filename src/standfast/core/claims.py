"""Claims of mail, tasks and webhook events: one holder at a time has a row, with a lease and a fence.

The rows of a process that is known to be dead are ready at once. The claim of an actor ends by time. A new holder gets
the next fence, and the old holder is refused from then on. A caller is recognised by its holder, by its actor (`claim`
in one shell, `done` in another) and, if it passes the claimed model, by the fence of that.

This module finds, locks, renews and expires rows, and refuses callers that do not hold them. Each resource decides
which row is ready, and how a claim begins and ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar, cast

from standfast.core import leases, lookup
from standfast.db.contract import Row, Tx
from standfast.db.sql import statement
from standfast.db.store import Store
from standfast.errors import LeaseLost
from standfast.ids import PREFIXES, short

HOLDERS_MAX = 1000
"""The most processes that are checked at each claim, of those that hold rows of the table."""
FREE: Row = dict.fromkeys(("holder", "lease_until_us", "lease_boot", "lease_mono_us", "lease_for_us"))
"""The columns of a row without a holder."""


class Claimable(Protocol):
    """The claim fields of a model."""

    @property
    def id(self) -> str: ...

    @property
    def holder(self) -> str | None: ...

    @property
    def fence(self) -> int: ...


M = TypeVar("M", bound=Claimable)


class Claims(Generic[M]):
    """The claims of one table, which is that of the ids with `prefix`.

    `by_key` looks up a name that is no id, `otherwise` one that is no end of an id either. `hints` are three commands:
    to list rows, to claim one by its id, and to act on the holder of one. `renewal` is SQL for further columns that
    a renewal sets.
    """

    def __init__(
        self,
        model: type[M],
        prefix: str,
        *,
        by_key: Callable[[Tx, str], Row | None],
        named: Callable[[Row], str],
        hints: tuple[str, Callable[[str], str], Callable[[str], str]],
        otherwise: Callable[[Tx, str], Row | None] = lambda tx, name: None,
        renewal: str = "",
    ) -> None:
        table = PREFIXES[prefix]
        leases.renewed(table)
        self.model, self._prefix = model, prefix
        self._by_key, self._otherwise, self._named = by_key, otherwise, named
        self._list_hint, self._claim_hint, self._held_hint = hints
        self.by_id = statement(f"SELECT {{columns:{table}}} FROM {table} WHERE id = :id", name=f"{table}_by_id")
        self.by_id_for_update = statement(
            f"SELECT {{columns:{table}}} FROM {table} WHERE id = :id {{for_update}}", name=f"{table}_for_update"
        )
        # This query has no time parameter, so that PostgreSQL gets it in one round trip with BEGIN.
        self.processes = statement(
            f"SELECT DISTINCT holder FROM {table} WHERE holder IS NOT NULL AND holder LIKE 'p:%' AND holder <> :own"
            " AND lease_until_us > 0 LIMIT :limit",
            name=f"{table}_processes",
        )
        # The holder stays, because the journal row of the next holder names it.
        self.expire_lease = statement(
            f"UPDATE {table} SET lease_until_us = 0, lease_boot = NULL, lease_mono_us = 0 WHERE holder = :holder",
            name=f"{table}_expire_lease",
        )
        self.extend_lease = statement(
            f"UPDATE {table} SET lease_until_us = :lease_until_us, lease_boot = :lease_boot,"
            f" lease_mono_us = :lease_mono_us, lease_for_us = :lease_for_us{renewal}"
            " WHERE id = :id AND fence = :fence AND holder = :holder RETURNING id",
            name=f"{table}_extend_lease",
        )

    # -- lookup --------------------------------------------------------------------------------------

    def find(self, tx: Tx, which: str | M) -> Row:
        """Find a row by its id, by the caller's key, or by the end of its id. Raises NotFound."""
        name = str(which.id) if isinstance(which, self.model) else cast("str", which)
        row = lookup.row_of(tx, name, self._prefix, by_key=lambda text: self._by_key(tx, text))
        return row or self._otherwise(tx, name) or self._refuse_unknown(tx, name)

    def locked(self, tx: Tx, which: str | M) -> Row:
        """The row; no other transaction changes it until this one ends. Raises NotFound."""
        # With a model no lookup is needed, which saves a round trip to PostgreSQL.
        return self.lock(tx, which.id if isinstance(which, self.model) else self.find(tx, which)["id"])

    def lock(self, tx: Tx, id: str) -> Row:
        return tx.maybe(self.by_id_for_update, id=id) or self._refuse_unknown(tx, id)

    def _refuse_unknown(self, tx: Tx, name: object) -> Row:
        raise lookup.unknown(tx, PREFIXES[self._prefix].replace("_", " "), name, self._list_hint)

    # -- the holder ----------------------------------------------------------------------------------

    def claimed(self, tx: Tx, which: str | M) -> M | None:
        """`which`, if it is a model that this holder claimed. Then its fence is compared."""
        return which if isinstance(which, self.model) and which.holder == tx.caller.holder else None

    def refusal(self, tx: Tx, row: Row, which: str | M) -> LeaseLost | None:
        """Why the caller may not change this row now: its claim was lost, or another live holder has the row."""
        claim = self.claimed(tx, which)
        if claim is not None and row["fence"] != claim.fence:
            return leases.lost(self._named(row), row, claim.fence)
        if row["holder"] is None or leases.may_act_for(tx, row) or not leases.judge(tx, row).live:
            return None
        return self._held_by_another(tx, row)

    def _held_by_another(self, tx: Tx, row: Row) -> LeaseLost:
        return LeaseLost(
            f"{self._named(row)} is held by {leases.holder_text(row['holder'])} with fence {row['fence']},"
            f" not by {tx.caller.actor}",
            self._held_hint(short(row["id"])),
        )

    def own(self, tx: Tx, which: str | M) -> Row:
        """The locked row, if no other live holder has it. Raises NotFound, LeaseLost."""
        row = self.locked(tx, which)
        self.check(tx, row, which)
        return row

    def check(self, tx: Tx, row: Row, which: str | M) -> None:
        """Raises LeaseLost if the caller may not change this row now."""
        refused = self.refusal(tx, row, which)
        if refused is not None:
            raise refused

    def check_held(self, tx: Tx, row: Row) -> None:
        """Raises LeaseLost if the caller does not hold this row."""
        if leases.may_act_for(tx, row):
            return
        if row["holder"] is not None:
            raise self._held_by_another(tx, row)
        hint = self._claim_hint(short(row["id"]))
        raise LeaseLost(f"{self._named(row)} is not held by {tx.caller.actor}", hint)

    def ended_by_caller(self, tx: Tx, row: Row, which: str | M) -> bool:
        """Whether this claim ended the row; without a claim, whether this actor did. Raises LeaseLost."""
        claim = self.claimed(tx, which)
        if claim is None:
            return bool(row["actor"] == tx.caller.actor)
        if row["fence"] != claim.fence:
            raise leases.lost(self._named(row), row, claim.fence)
        return True

    # -- leases --------------------------------------------------------------------------------------

    def renew(self, tx: Tx, which: str | M, for_us: int | None) -> Row:
        """The row with a lease that begins now. Not journalled. Raises NotFound, LeaseLost."""
        row = self.own(tx, which)
        self.check_held(tx, row)
        return self.extend(tx, row, leases.new_lease(tx, for_us or row["lease_for_us"], row["holder"]))

    def extend(self, tx: Tx, row: Row, term: Row) -> Row:
        tx.defer(self.extend_lease, found, id=row["id"], fence=row["fence"], **term)
        return row | term

    def dead(self, tx: Tx) -> list[str]:
        """Processes that hold rows of this table and are known to be dead."""
        rows = tx.all(self.processes, own=tx.caller.holder, limit=HOLDERS_MAX)
        return [row["holder"] for row in rows if leases.is_gone(row["holder"], tx.caller.clock)]

    def expire_dead(self, tx: Tx) -> None:
        """End the leases of processes that are known to be dead."""
        for holder in self.dead(tx):
            tx.run(self.expire_lease, holder=holder)


def keep_while_alive(store: Store, tx: Tx | None, holder: str | None) -> None:
    """Start the thread that renews the leases of this process; inside a transaction, after its commit."""
    if holder != store.caller.holder or not store.caller.holder.startswith("p:"):
        return
    start = leases.renewer(store).start
    if tx is None:
        start()
    else:
        tx.after = [*(tx.after or ()), start]


def found(row: Row) -> None:
    """Do nothing: the row is locked, so the compare-and-set finds it. `defer` asserts that it returned a row."""
