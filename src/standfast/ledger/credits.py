"""Credits: an append-only ledger with one entry per key.

A key names the outside event of an entry: `monthly:invoice_2026_11` for the grant of a month, `topup:payment_77` for a
top-up. A repeated call with a key adds nothing, in any order and from any process, so the balance stays the same. The
same key with another account, unit or amount is refused.

`grant`, `refund` and `spend(below_zero=True)` record events that have happened, so the balance never refuses them.
`spend` alone is refused (`Conflict`, `insufficient`) if the balance does not cover it; then nothing is written. Spends
of one account take turns, so two of them cannot both take the last credit. A repeated call returns the recorded spend
at any balance.

Amounts are whole numbers: count in the smallest unit (cents, tokens, seconds).
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from standfast import crash, hints, serial
from standfast.clock import Time, iso
from standfast.core import gap, journal, keys
from standfast.core.checks import REASON_MAX, page_size, past_us
from standfast.core.receipts import Receipt
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.db.store import Resource, query, transactional
from standfast.errors import Conflict, InvalidInput, KeyConflict, NotFound
from standfast.ids import is_id, new_id
from standfast.models import Model

SQL = load(__name__)

UNIT = "credits"
UNIT_MAX = 60
ACCOUNT_MAX = 200
KEY_MAX = 450
"""Characters of a key. The key of a refund is `refund:` and this key, and must fit into 500."""
AMOUNT_MAX = 10**12
"""The largest amount of one entry. The sum of nine million of them fits into 64 bits."""
SUMMED_AT = 200
"""After this many entries since the last stored sum, the next entry stores a sum. So a balance reads about this many
entries at most."""
SUMS = "standfast.credits"
"""The fold name of stored sums in table `snapshot`. They can be deleted, because entries never change."""
REFUND = "refund:"


class CreditEntry(Model):
    """One entry of the ledger. It never changes."""

    seq: int
    id: str
    scope: str
    account: str
    unit: str
    amount: int
    """The amount added to the balance: below 0 for a debit or a reversal."""
    key: str
    reason: str | None
    agent: str
    created_us: int
    occurred_us: int
    fresh: bool = False
    """True if this call made the entry."""
    receipt: Receipt | None = None

    @staticmethod
    def columns() -> tuple[str, ...]:
        return "seq", "occurred_us when", "account", "amount", "unit", "key", "reason"


class Balance(Model):
    """The balance of an account in one unit."""

    account: str
    unit: str
    balance: int
    entries: int
    last_us: int | None
    """The time of the account's latest entry; None without entries."""

    @staticmethod
    def columns() -> tuple[str, ...]:
        return "account", "balance", "unit", "entries", "last_us"

    @property
    def place(self) -> tuple[str, str]:
        """Where a list continues: `after=`."""
        return self.account, self.unit


# Inside the resource class `list` is a method, so annotations there use these names instead of `list[…]`.
EntryList: TypeAlias = "list[CreditEntry]"
BalanceList: TypeAlias = "list[Balance]"


class _Wanted(NamedTuple):
    account: str
    unit: str
    amount: int
    key: str
    reason: str | None
    occurred_us: int | None

    @property
    def hash(self) -> str:
        """The hash that is compared when a key is used again: reason and time do not count."""
        return serial.hash({"account": self.account, "unit": self.unit, "amount": self.amount})


class _Sum(NamedTuple):
    """The sum of an account up to one entry. Entries are committed in the order of their numbers."""

    balance: int
    entries: int
    last_us: int | None
    seq: int


class Credits(Resource):
    """Credits: grant, spend and refund, each once per key, and read balances."""

    __slots__ = ()

    @transactional
    def grant(
        self,
        tx: Tx,
        account: str,
        amount: int,
        *,
        key: str,
        unit: str = UNIT,
        reason: str | None = None,
        occurred: Time | None = None,
    ) -> CreditEntry:
        """Grant an amount to an account, once per key. A repeated call returns the first entry.

        - `key`: record it once per key: monthly:invoice_7, topup:payment_9.
        - `unit`: the unit: credits, tokens, eur-cent.
        - `reason`: record this reason; a repeated call may give another one.
        - `occurred`: the time when it happened.  [default: now]

        Raises KeyConflict if the key belongs to another account, unit or amount.
        """
        occurred_us = past_us(occurred, tx.now_us(), "occurred")
        wanted = _wanted(account, _amount(amount), key, unit, reason, occurred_us)
        return _add(tx, self.scope, wanted, "credit.granted")

    def spend(
        self,
        account: str,
        amount: int,
        *,
        key: str,
        unit: str = UNIT,
        reason: str | None = None,
        occurred: Time | None = None,
        below_zero: bool = False,
    ) -> CreditEntry:
        """Take an amount from an account, once per key, if the balance covers it.

        - `key`: record it once per key: run:fix-42.
        - `unit`: the unit: credits, tokens, eur-cent.
        - `reason`: record this reason; a repeated call may give another one.
        - `occurred`: the time when it happened.  [default: now]
        - `below_zero`: record it even if the balance gets negative.

        A repeated call returns the first entry, at any balance. Raises Conflict (`insufficient`) if the balance
        does not cover it: nothing is written, and the same key may be used later. Raises KeyConflict as `grant` does.
        """
        occurred_us = past_us(occurred, self.store.caller.clock.now_us(), "occurred")
        wanted = _wanted(account, -_amount(amount), key, unit, reason, occurred_us)
        return self._write(lambda tx: _add(tx, self.scope, wanted, "credit.spent", covered=not below_zero))

    @transactional
    def refund(
        self,
        tx: Tx,
        of: str,
        *,
        amount: int | None = None,
        reason: str | None = None,
        occurred: Time | None = None,
    ) -> CreditEntry:
        """Reverse the entry with this key, once: pay a spend back, or take a grant back.

        - `amount`: refund only this part.
        - `reason`: record this reason.
        - `occurred`: the time when it happened.  [default: now]

        The key of the refund is `refund:` and this key. Raises NotFound if there is no such entry, InvalidInput for
        more than its amount, KeyConflict for another amount than the first time.
        """
        occurred_us = past_us(occurred, tx.now_us(), "occurred")
        found = tx.maybe(SQL.by_key, scope=self.scope, key=keys.checked(of, "a credit's key"))
        if found is None:
            raise _unknown(of)
        most = abs(found["amount"])
        part = most if amount is None else _amount(amount)
        if part > most:
            raise InvalidInput(f"{serial.clean(of, 80)!r} was {most}: {part} is more than can be refunded")
        sign = -1 if found["amount"] > 0 else 1
        account, unit = found["account"], found["unit"]
        key = f"{REFUND}{found['key']}"
        wanted = _wanted(account, sign * part, key, unit, reason, occurred_us, limit=keys.KEY_MAX)
        return _add(tx, self.scope, wanted, "credit.refunded")

    @query
    def balance(self, tx: Tx, account: str, *, unit: str = UNIT, at: Time | None = None) -> Balance:
        """The balance of an account; with `at`, of the entries that had happened by then. An unknown account has 0."""
        return _balance(tx, self.scope, account, unit, past_us(at, tx.now_us(), "at"))

    @query
    def balances(
        self,
        tx: Tx,
        account: str | None = None,
        *,
        unit: str | None = None,
        at: Time | None = None,
        after: tuple[str, str] | None = None,
        limit: int = 50,
    ) -> BalanceList:
        """Show the balance of ACCOUNT, or of all accounts, by unit.

        - `account`: only list this account.
        - `unit`: only list this unit of ACCOUNT.
        - `at`: show the balance at this time: "tue 03:00".

        `after` is the last (account, unit) you have.
        """
        at_us = past_us(at, tx.now_us(), "at")
        if unit is not None and account is None:
            raise InvalidInput("--unit needs an account", "standfast credit balance ACCOUNT --unit UNIT")
        if unit is not None and account is not None:
            return [_balance(tx, self.scope, account, unit, at_us)]
        asked: Row = {"scope": self.scope, "limit": page_size(limit)}
        asked["at_us"] = serial.INT_MAX if at_us is None else _moment(at_us)
        asked["account"], asked["unit"] = after or ("", "")
        if account is None:
            rows = tx.all(SQL.balances, **asked)
        else:
            rows = tx.all(SQL.balances_of, **(asked | {"account": _account(account)}))
        return [Balance(*(row[name] for name in Balance.field_names())) for row in rows]

    @query
    def get(self, tx: Tx, which: str) -> CreditEntry:
        """Show the entry with this key or id.

        Raises NotFound.
        """
        row = tx.maybe(SQL.by_id, id=which) if is_id(which) else None
        row = row or tx.maybe(SQL.by_key, scope=self.scope, key=keys.checked(which, "a credit's key"))
        if row is None:
            raise _unknown(which)
        return CreditEntry.from_row(row)

    @query
    def list(
        self, tx: Tx, account: str | None = None, *, unit: str | None = None, after: int | None = None, limit: int = 50
    ) -> EntryList:
        """List the entries of one account, or of all, the newest first.

        - `account`: only list entries of this account.
        - `unit`: only list entries of this unit.
        - `after`: start after this `seq`, the last one of the page before.
        """
        asked: Row = {
            "scope": self.scope,
            "unit": "" if unit is None else _unit(unit),
            "seq": serial.INT_MAX if after is None else after,
            "limit": page_size(limit),
        }
        if account is None:
            return [CreditEntry.from_row(row) for row in tx.all(SQL.page, **asked)]
        return [CreditEntry.from_row(row) for row in tx.all(SQL.page_of, account=_account(account), **asked)]


# -- new entries -------------------------------------------------------------------------------------


def _add(tx: Tx, scope: str, wanted: _Wanted, type: str, *, covered: bool = False) -> CreditEntry:
    """One entry; with `covered`, only if the balance covers it."""
    crash.point("credit.before_add")
    # Entries of one account take turns. Without this lock, two spends on PostgreSQL would not see each other.
    tx.run(SQL.alone, name=f"credit {scope}\n{wanted.account}\n{wanted.unit}")
    found = tx.maybe(SQL.by_key, scope=scope, key=wanted.key)
    if found is None:
        gap.refuse(tx, f"credit {wanted.key!r}")
    place: Row = {"scope": scope, "account": wanted.account, "unit": wanted.unit}
    before, unsummed = (None, 0) if found is not None else _summed(tx, place)
    if before is not None and covered:
        _refuse_uncovered(wanted, before.balance)
    row = found or tx.maybe(
        SQL.add,
        id=new_id("crd"),
        scope=scope,
        account=wanted.account,
        unit=wanted.unit,
        amount=wanted.amount,
        key=wanted.key,
        hash=wanted.hash,
        reason=wanted.reason,
        actor=tx.caller.actor,
        now_us=tx.now_us(),
        occurred_us=tx.now_us() if wanted.occurred_us is None else wanted.occurred_us,
        **tx.caller.labelled(),
    )
    if found is not None or row is None:  # the key has an entry: an earlier one, or one for another account just now
        return _same_or_conflict(found or tx.one(SQL.by_key, scope=scope, key=wanted.key), wanted)
    if before is not None and unsummed >= SUMMED_AT:
        _keep_sum(tx, place, before)
    return CreditEntry.from_row(row).replace(fresh=True, receipt=_journal_change(tx, row, type))


def _summed(tx: Tx, place: Row) -> tuple[_Sum, int]:
    """The sum of an account, and how many of its entries are in no stored sum."""
    kept = tx.maybe(SQL.kept_sum, scope=place["scope"], fold=SUMS, stream=_stream(place))
    balance, entries, at_us = (0, 0, None) if kept is None else serial.loads(kept["data"])
    known = _Sum(balance, entries, at_us, 0 if kept is None else kept["version"])
    row = tx.one(SQL.balance_since, seq=known.seq, **place)
    last_us = max((us for us in (known.last_us, row["last_us"]) if us is not None), default=None)
    found = _Sum(
        known.balance + row["balance"], known.entries + row["entries"], last_us, max(known.seq, row["last_seq"])
    )
    return found, row["entries"]


def _keep_sum(tx: Tx, place: Row, found: _Sum) -> None:
    asked: Row = {"scope": place["scope"], "fold": SUMS, "stream": _stream(place), "version": found.seq}
    data = serial.dumps([found.balance, found.entries, found.last_us], what="data")
    tx.run(SQL.keep_sum, data=data, now_us=tx.now_us(), **asked)
    tx.run(SQL.drop_sums, **asked)


def _stream(place: Row) -> str:
    return f"{place['unit']} {place['account']}"


def _refuse_uncovered(wanted: _Wanted, balance: int) -> None:
    if balance + wanted.amount >= 0:
        return
    raise Conflict(
        f"{wanted.account} has {balance} {wanted.unit}, and {-wanted.amount} are to be spent",
        "grant some, then ask again with the same key: "
        f"{hints.command('credit', 'add', wanted.account, 'AMOUNT', '--unit', wanted.unit)} --key topup:…",
        code="insufficient",
    )


def _same_or_conflict(row: Row, wanted: _Wanted) -> CreditEntry:
    if row["hash"] == wanted.hash:
        return CreditEntry.from_row(row)
    names = ("account", "unit", "amount")
    differ = [
        f"{name} {row[name]}, not {getattr(wanted, name)}" for name in names if row[name] != getattr(wanted, name)
    ]
    raise KeyConflict(
        f"the key {serial.clean(row['key'], 80)!r} is used for another entry since {iso(row['created_us'])}: "
        f"{'; '.join(differ)}",
        hints.command("credit", "list", row["account"]),
    )


def _journal_change(tx: Tx, row: Row, type: str) -> Receipt:
    about = {name: row[name] for name in ("account", "unit", "amount", "key")}
    summary = f"{row['account']} {row['amount']:+} {row['unit']} ({row['key']})"
    return journal.append(
        tx, type, row["id"], scope=row["scope"], summary=summary, data=about, occurred_us=row["occurred_us"]
    )


# -- private functions -------------------------------------------------------------------------------


def _wanted(
    account: str,
    amount: int,
    key: str,
    unit: str,
    reason: str | None,
    occurred_us: int | None,
    *,
    limit: int = KEY_MAX,
) -> _Wanted:
    if reason is not None and not isinstance(reason, str):
        raise InvalidInput(f"a reason is text, not {type(reason).__name__}")
    words = None if not reason else serial.clean(reason, REASON_MAX)
    when = None if occurred_us is None else _moment(occurred_us)
    return _Wanted(
        _account(account), _unit(unit), amount, keys.checked(key, "a credit's key", limit=limit), words, when
    )


def _balance(tx: Tx, scope: str, account: str, unit: str, at_us: int | None) -> Balance:
    place: Row = {"scope": scope, "account": _account(account), "unit": _unit(unit)}
    if at_us is None:
        found, _ = _summed(tx, place)
        return Balance(place["account"], place["unit"], found.balance, found.entries, found.last_us)
    row = tx.one(SQL.balance_at, at_us=_moment(at_us), **place)
    return Balance(place["account"], place["unit"], row["balance"], row["entries"], row["last_us"])


def _account(text: str) -> str:
    return keys.checked(text, "an account", limit=ACCOUNT_MAX)


def _unit(text: str) -> str:
    return keys.checked(text, "a unit", limit=UNIT_MAX)


def _amount(number: object) -> int:
    if isinstance(number, bool) or not isinstance(number, int):
        raise InvalidInput(
            f"an amount is a whole number, not {type(number).__name__}", "count in the smallest unit: cents, tokens"
        )
    if not 0 < number <= AMOUNT_MAX:
        raise InvalidInput(f"an amount is from 1 to {AMOUNT_MAX:,}", "grant adds, spend takes away")
    return int(number)


def _moment(us: int) -> int:
    if us < 0:
        raise InvalidInput(f"a credit has no time before 1970 (got {iso(us)})")
    return us


def _unknown(key: str) -> NotFound:
    return NotFound(f"no credit has the key {serial.clean(key, 80)!r} in this scope", "standfast credit list")
