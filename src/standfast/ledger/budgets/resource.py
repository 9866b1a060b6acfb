"""`sf.budgets`: set limits, reserve before a call, settle after it.

A reservation counts in the budget of its subject, in the budgets around that one, and in `all`. Each of them must have
enough left, so an inner budget can only narrow an outer one. One transaction checks all limits and reserves, in the
order of the ids.

If a call used more than it reserved, all of it is booked, and the next reservation is refused. A hold whose holder is
gone stays, because the call may have been billed. Usage that is seen later settles it, or a person does.
"""

from __future__ import annotations

from typing import NamedTuple

from standfast import crash, hints, serial
from standfast.clock import Duration
from standfast.config import people
from standfast.config.people import for_people
from standfast.core import claims, gap, journal, keys, leases, lookup
from standfast.core.checks import NAME_MAX, REASON_MAX, one_of, page_size
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.db.store import Resource, query, transactional
from standfast.errors import (
    Conflict,
    IllegalTransition,
    InProgress,
    InvalidInput,
    KeyConflict,
    LeaseLost,
    NotFound,
    StandfastError,
)
from standfast.ids import new_id, short
from standfast.ledger.budgets import amounts
from standfast.ledger.budgets.amounts import PERIODS, Amounts, Usd
from standfast.ledger.budgets.models import Budget, BudgetList, BudgetReport, Hold, HoldList, budget_of, hold_of

SQL = load(__name__)
leases.renewed("hold")

EVERYTHING = "all"
"""The budget in which every reservation and every usage counts."""
ACTIONS = ("warn", "block")
DEPTH_MAX = 8
"""The most budgets that may be nested."""
HOLDS_SHOWN = 50
HOLDERS_NAMED = 3
"""Holders that a refusal names."""
_AFTER_ALL = "hld_~"
"""A text that sorts after every id of a hold."""


class Subjects(NamedTuple):
    """The subjects of a call: the name that the caller gave, its session and its agent. "" is none."""

    subject: str
    session: str = ""
    agent: str = ""
    session_id: str | None = None


class Asked(NamedTuple):
    """One reservation."""

    subjects: Subjects
    most: Amounts
    key: str | None
    note: str | None

    @property
    def hash(self) -> str:
        """The hash that is compared when a key is used again."""
        return serial.hash({"subject": self.subjects.subject, "most": dict(self.most.known)})


class Budgets(Resource):
    """Limits of tokens, money, calls and time: set, reserve, settle, release."""

    __slots__ = ()

    @transactional
    def set(
        self,
        tx: Tx,
        name: str,
        *,
        tokens: int | None = None,
        usd: Usd | None = None,
        calls: int | None = None,
        time: Duration | None = None,
        per: str | None = None,
        within: str | None = None,
        action: str | None = None,
    ) -> Budget:
        """Limit what NAME may use. A limit that is not given stays as it is.

        - `name`: agent:NAME, session:KEY, task:ID, all, or the name of a group.
        - `tokens`: allow at most N tokens, input and output together.
        - `usd`: allow at most this many US dollars: 2.50.
        - `calls`: allow at most N calls.
        - `time`: allow calls that take at most this time together: 2h.
        - `per`: refill the budget each hour, day, week or month of UTC.  [default: never]
        - `within`: the parent budget; both must have enough left.
        - `action`: warn or block when usage that hooks count exceeds the limit.  [default: warn]

        A command of an agent that raises a limit is refused (ApprovalRequired). Raises NotFound for an unknown
        `within`, and InvalidInput if the budget would be inside itself.
        """
        wanted = _wanted(name, amounts.given(tokens, usd, calls, time), per, within, action)
        crash.point("budget.before_set")
        found = tx.maybe(SQL.by_name_for_update, scope=self.scope, name=name)
        _check_parents(tx, self.scope, name, within)
        if found is None:
            return _added(tx, self.scope, wanted)
        new = {column: found[column] if value is None else value for column, value in wanted.items()}
        if new == {column: found[column] for column in new}:
            return budget_of(tx, found)
        if _widens(found, new) and (refusal := people.refusal("raises or removes a budget")) is not None:
            raise refusal
        row = tx.one(SQL.change, id=found["id"], actor=tx.caller.actor, now_us=tx.now_us(), **_without_name(new))
        return _journal_change(tx, row, "budget.set")

    @for_people("raises or removes a budget")
    @transactional
    def remove(self, tx: Tx, name: str) -> Budget:
        """Remove the limit of NAME. Its holds stay, and they still count in the budgets around it.

        Raises NotFound. The command is refused to agents.
        """
        crash.point("budget.before_set")
        found = _budget(tx, self.scope, name)
        row = tx.maybe(SQL.remove, id=found["id"], actor=tx.caller.actor, now_us=tx.now_us())
        if row is None:
            raise _unknown(name)
        return _journal_change(tx, row, "budget.removed")

    @query
    def get(self, tx: Tx, name: str) -> Budget:
        """The budget of this name. Raises NotFound."""
        return budget_of(tx, _budget(tx, self.scope, name))

    @query
    def list(self, tx: Tx, *, after: str = "", limit: int = 50) -> BudgetList:
        """List the budgets by name, with the amounts spent, held and left.

        - `after`: start after this name, the last one of the page before.
        """
        rows = tx.all(SQL.page, scope=self.scope, after=after, limit=page_size(limit))
        return [budget_of(tx, row) for row in rows]

    @query
    def report(self, tx: Tx, name: str) -> BudgetReport:
        """Show how much is left of NAME, who holds how much of it, and which holds are in doubt.

        Raises NotFound.
        """
        row = _budget(tx, self.scope, name)
        found = [hold_of(tx, one) for one in _held(tx, self.scope, row["id"], limit=1000)]
        doubtful = [one.most for one in found if one.in_doubt]
        parents = [one["name"] for one in _around(tx, self.scope, row["parent"])]
        return BudgetReport(
            budget=budget_of(tx, row),
            holds=tuple(found[:HOLDS_SHOWN]),
            in_doubt=_sum(doubtful),
            parents=tuple(parents),
        )

    def reserve(
        self,
        subject: str,
        *,
        tokens: int | None = None,
        usd: Usd | None = None,
        calls: int = 1,
        time: Duration | None = None,
        key: str | None = None,
        note: str | None = None,
    ) -> Hold:
        """Reserve the most that a call may use, if every budget in which it counts has enough left.

        - `subject`: the budget: agent:NAME, session:KEY, task:ID, or the name of a group.
        - `tokens`: reserve at most N tokens.
        - `usd`: reserve at most this many US dollars: 0.50.
        - `time`: reserve at most this time.
        - `key`: reserve it once per key; a repeated call returns the first hold.
        - `note`: record the purpose of the call.

        Raises Conflict (`budget_exhausted`), which says how much is left and who holds the rest; then nothing is
        written. Raises NotFound if the subject has no budget, InProgress while a live holder has the key, KeyConflict
        if the key reserved other amounts, and InvalidInput if a limited unit is not given.
        """
        asked = asked_for(Subjects(checked_name(subject)), amounts.given(tokens, usd, calls, time), key, note)
        return self.hold_for(asked, known=True)

    def hold_for(self, asked: Asked, *, known: bool = False) -> Hold:
        """Reserve for a session. With `known`, the subject must have a budget."""
        hold = self._write(lambda tx: _reserve(tx, self.scope, asked, known=known))
        claims.keep_while_alive(self.store, self.tx, hold.holder)
        if self.tx is None:
            crash.point("hold.after_reserve")
        return hold

    def settle(
        self,
        which: str | Hold,
        *,
        tokens: int | None = None,
        usd: Usd | None = None,
        calls: int | None = None,
        time: Duration | None = None,
        note: str | None = None,
    ) -> Hold:
        """Book what a call used, and give the rest of its hold back. A unit that is not given counts as reserved.

        - `which`: the hold: its id, the end of its id, or its key.
        - `tokens`: the number of tokens that were used, input and output together.
        - `usd`: the cost in US dollars: 0.12.
        - `calls`: the number of calls that were made.
        - `time`: the time that was used.
        - `note`: record how you know it, for a hold in doubt.

        Settling the same amounts again returns the hold. Raises NotFound, LeaseLost while another holder has it, and
        IllegalTransition if it was settled with other amounts. The program that sees the usage later settles a hold
        in doubt, or a person does. The command is refused to agents.
        """
        spent = amounts.given(tokens, usd, calls, time)
        return self._end(which, "settled", spent, note)

    def release(self, which: str | Hold, *, note: str | None = None) -> Hold:
        """Give a whole hold back: the call was not made, and nothing was used.

        - `which`: the hold: its id, the end of its id, or its key.
        - `note`: record how you know it, for a hold in doubt.

        Raises as `settle` does.
        """
        return self._end(which, "released", Amounts(0, 0, 0, 0), note)

    def _end(self, which: str | Hold, state: str, spent: Amounts, note: str | None) -> Hold:
        words = _note(note)
        ended = self._write(lambda tx: end_hold(tx, self.scope, which, state, spent, words))
        if self.tx is None:
            crash.point("hold.after_settle")
        return ended

    @transactional
    def give_up(self, tx: Tx, which: str | Hold, *, note: str | None = None) -> Hold:
        """Record that the outcome of the call is unknown. The hold is in doubt at once.

        - `note`: the reason.

        Raises NotFound, LeaseLost, IllegalTransition if it has ended.
        """
        row = _own(tx, self.scope, which)
        if row["state"] != "held":
            raise _ended(row, "given up")
        row = tx.one(SQL.give_up, id=row["id"], note=_note(note))
        return _journal_hold_change(tx, row, "hold.gave_up", f"{row['subject']}: the outcome is unknown")

    @query
    def hold(self, tx: Tx, which: str) -> Hold:
        """One hold by its id, the end of its id, or its key (the newest with it). Raises NotFound."""
        return hold_of(tx, _hold(tx, self.scope, which))

    @query
    def holds(
        self, tx: Tx, name: str | None = None, *, ended: bool = False, after: str | None = None, limit: int = 50
    ) -> HoldList:
        """List holds, the oldest first: those of the budget NAME, or all.

        - `name`: only list holds of this budget.
        - `ended`: include settled and released holds, the newest first.
        - `after`: start after this id, the last one of the page before.
        """
        budget = "%" if name is None else f"%{_budget(tx, self.scope, name)['id']}%"
        asked: Row = {"scope": self.scope, "budget": budget, "limit": page_size(limit)}
        rows = (
            tx.all(SQL.holds, after=after or _AFTER_ALL, **asked)
            if ended
            else tx.all(SQL.held, after=after or "", **asked)
        )
        return [hold_of(tx, row) for row in rows]


# -- limits -----------------------------------------------------------------------------------------


def _wanted(name: str, limit: Amounts, per: str | None, within: str | None, action: str | None) -> Row:
    """The columns that a call sets. None leaves a column as it is."""
    if per is not None:
        one_of(per, PERIODS, "per")
    if action is not None:
        one_of(action, ACTIONS, "action")
    parent = None if within is None else checked_name(within)
    columns = amounts.columns("max", limit, unknown=None)
    return {"name": checked_name(name), "parent": parent, "per": per, "action": action, **columns}


def checked_name(name: str) -> str:
    """A budget's name. Raises InvalidInput."""
    return keys.checked(name, "a budget's name", limit=NAME_MAX)


def _added(tx: Tx, scope: str, wanted: Row) -> Budget:
    if all(wanted[f"max_{unit}"] is None for unit in amounts.UNITS):
        raise InvalidInput(
            f"the budget {wanted['name']!r} limits nothing",
            f"{hints.command('budget', 'set', wanted['name'])} --tokens 1000000 --per day",
        )
    own: Row = {"id": new_id("bud"), "scope": scope, "actor": tx.caller.actor, "now_us": tx.now_us()}
    own["window_us"] = amounts.window_us(wanted["per"], tx.now_us())
    row = tx.maybe(SQL.add, **wanted | {"action": wanted["action"] or "warn"}, **own, **tx.caller.labelled())
    if row is None:
        raise Conflict(f"the budget {wanted['name']!r} was set at the same moment", "set it again")
    return _journal_change(tx, row, "budget.set")


def _widens(found: Row, new: Row) -> bool:
    """Whether the change lets a caller use more."""
    limits = [(found[f"max_{unit}"], new[f"max_{unit}"]) for unit in amounts.UNITS]
    higher = any(old is not None and most > old for old, most in limits)
    other_window = found["per"] != new["per"]
    other_parent = found["parent"] is not None and found["parent"] != new["parent"]
    return higher or other_window or other_parent or (found["action"], new["action"]) == ("block", "warn")


def _without_name(columns: Row) -> Row:
    return {name: value for name, value in columns.items() if name != "name"}


def _check_parents(tx: Tx, scope: str, name: str, within: str | None) -> None:
    if within is None:
        return
    around = _around(tx, scope, within)
    if not around:
        raise _unknown(within)
    if within == name or any(one["name"] == name for one in around):
        raise InvalidInput(f"the budget {name!r} would be inside itself", "name another budget: --within NAME")
    if len(around) >= DEPTH_MAX:
        raise InvalidInput(f"the budget {name!r} would be inside {len(around)} others; the limit is {DEPTH_MAX - 1}")


def _around(tx: Tx, scope: str, parent: str | None) -> list[Row]:
    """The budget of this name and its parents, the nearest first."""
    found: list[Row] = []
    while parent is not None and len(found) < DEPTH_MAX:
        row = tx.maybe(SQL.by_name, scope=scope, name=parent)
        if row is None:
            break
        found.append(row)
        parent = row["parent"]
    return found


def _journal_change(tx: Tx, row: Row, type: str) -> Budget:
    made = budget_of(tx, row)
    per = f" per {made.per}" if made.per else ""
    within = f" within {made.parent}" if made.parent else ""
    data: Row = {"name": made.name, "limit": dict(made.limit.known), "per": made.per, "within": made.parent}
    receipt = journal.append(
        tx, type, made.id, scope=made.scope, summary=f"{made.name}: {made.limit}{per}{within}", data=data
    )
    return made.replace(receipt=receipt)


# -- reservation ------------------------------------------------------------------------------------


def asked_for(subjects: Subjects, most: Amounts, key: str | None, note: str | None) -> Asked:
    """A reservation with its arguments checked."""
    if key is not None:
        keys.checked(key, "a hold's key")
    return Asked(subjects, most, key, _note(note))


def _reserve(tx: Tx, scope: str, asked: Asked, *, known: bool) -> Hold:
    crash.point("hold.before_reserve")
    before = None if asked.key is None else tx.maybe(SQL.hold_by_key, scope=scope, key=asked.key)
    if before is not None and (same := _same(tx, before, asked)) is not None:
        return same
    gap.refuse(tx, f"a reservation of {asked.subjects.subject!r}")
    rows = chain(tx, scope, asked.subjects)
    if known and all(row["name"] != asked.subjects.subject for row in rows):
        raise _unknown(asked.subjects.subject)
    for row in rows:
        _check_left(tx, row, asked)
    hold = _inserted(tx, scope, asked, [row["id"] for row in rows], n=1 if before is None else before["n"] + 1)
    if hold is None:
        raise InProgress(
            f"the hold {asked.key!r} was reserved at the same moment", "look it up: standfast budget holds"
        )
    for row in rows:
        _open_window(tx, row)
        tx.defer(SQL.take, claims.found, id=row["id"], **amounts.columns("most", asked.most))
    return _journal_hold_change(tx, hold, "hold.reserved", f"{asked.subjects.subject}: {asked.most.used}").replace(
        fresh=True
    )


def _same(tx: Tx, row: Row, asked: Asked) -> Hold | None:
    """The hold of a key that was used before; None if the caller may reserve with it again."""
    if row["hash"] != asked.hash:
        found = amounts.of_row(row, "most")
        raise KeyConflict(
            f"the key {serial.clean(row['key'], 80)!r} held {found.used} for {row['subject']!r}, "
            f"not {asked.most.used} for {asked.subjects.subject!r}",
            "use another key",
        )
    if row["state"] == "settled":
        return hold_of(tx, row)
    if row["state"] == "held" and leases.judge(tx, row).live:
        held = leases.in_progress(tx, f"the hold {serial.clean(row['key'], 80)!r}", row)
        raise InProgress(held.message, "wait, or settle it: " + hints.command("budget", "settle", short(row["id"])))
    return None  # the hold was released, or it stays in doubt: the next call gets a new hold


def chain(tx: Tx, scope: str, subjects: Subjects) -> list[Row]:
    """Every budget in which a call of these subjects counts, locked, in the order of the ids."""
    names = {"subject": subjects.subject, "session": subjects.session, "agent": subjects.agent}
    return tx.all(SQL.chain, scope=scope, everything=EVERYTHING, **names)


def _check_left(tx: Tx, row: Row, asked: Asked) -> None:
    budget = budget_of(tx, row)
    for unit, left in budget.left.known.items():
        wanted = getattr(asked.most, unit)
        if wanted is None:
            raise InvalidInput(
                f"the budget {budget.name!r} limits {_UNIT_NAMES[unit]}, and no amount is given for this call",
                f"say how much it may need at most: {amounts.option(unit)}=…, in a shell --{amounts.option(unit)} …",
            )
        if wanted > left:
            raise _exhausted(tx, budget, unit, wanted, left)


_UNIT_NAMES = {"tokens": "tokens", "microusd": "money", "calls": "calls", "duration_us": "time"}


def _exhausted(tx: Tx, budget: Budget, unit: str, wanted: int, left: int) -> Conflict:
    per = f" per {budget.per}" if budget.per else ""
    limit, spent, held = (getattr(one, unit) for one in (budget.limit, budget.spent, budget.held))
    return Conflict(
        f"the budget {budget.name!r} has {amounts.shown(unit, left)} left of {amounts.shown(unit, limit)}{per}, "
        f"and this call may need {amounts.shown(unit, wanted)}: {amounts.shown(unit, spent)} spent, "
        f"{amounts.shown(unit, held)} held{_holders(tx, budget, unit)}",
        hints.command("budget", "show", budget.name),
        code="budget_exhausted",
    )


def _holders(tx: Tx, budget: Budget, unit: str) -> str:
    """The holders of this unit: ` by coder (300, process 7 on host), reviewer (200, in doubt) and 3 more`."""
    found = [hold_of(tx, row) for row in _held(tx, budget.scope, budget.id, limit=page_size(1000))]
    found = [one for one in found if getattr(one.most, unit)]
    named = [
        f"{one.agent} ({amounts.shown(unit, getattr(one.most, unit))}, {one.holder_name or 'in doubt'})"
        for one in found[:HOLDERS_NAMED]
    ]
    more = f" and {len(found) - len(named)} more" if len(found) > len(named) else ""
    return f" by {', '.join(named)}{more}" if named else ""


def _held(tx: Tx, scope: str, budget_id: str, *, limit: int) -> list[Row]:
    return tx.all(SQL.held, scope=scope, budget=f"%{budget_id}%", after="", limit=limit)


def _inserted(tx: Tx, scope: str, asked: Asked, budgets: list[str], *, n: int) -> Row | None:
    return tx.maybe(
        SQL.hold,
        id=new_id("hld"),
        scope=scope,
        subject=asked.subjects.subject,
        budgets=" ".join(budgets),
        session_id=asked.subjects.session_id,
        key=asked.key,
        n=n,
        hash=asked.hash,
        actor=tx.caller.actor,
        note=asked.note,
        now_us=tx.now_us(),
        **amounts.columns("most", asked.most),
        **leases.new_lease(tx),
        **tx.caller.labelled(),
    )


def _open_window(tx: Tx, row: Row) -> None:
    now = amounts.window_us(row["per"], tx.now_us())
    if now > row["window_us"]:
        tx.run(SQL.new_window, id=row["id"], window_us=now)


def count(tx: Tx, scope: str, subjects: Subjects, used: Amounts) -> list[Budget]:
    """Book usage that was not reserved, in every budget in which it counts. Returns those that are used up now."""
    if not used.known:
        return []
    rows = chain(tx, scope, subjects)
    nothing = amounts.columns("most", Amounts())
    for row in rows:
        _open_window(tx, row)
        tx.run(SQL.give_back, id=row["id"], **nothing, **amounts.columns("spent", used))
    return [budget for budget in (budget_of(tx, _plus(tx, row, used)) for row in rows) if budget.exhausted]


def _plus(tx: Tx, row: Row, used: Amounts) -> Row:
    over = amounts.window_us(row["per"], tx.now_us()) > row["window_us"]
    spent = {f"spent_{unit}": 0 if over else row[f"spent_{unit}"] for unit in amounts.UNITS}
    added = {name: value + (getattr(used, name.removeprefix("spent_")) or 0) for name, value in spent.items()}
    return row | added | {"window_us": max(row["window_us"], amounts.window_us(row["per"], tx.now_us()))}


# -- settlement -------------------------------------------------------------------------------------


def end_hold(
    tx: Tx, scope: str, which: str | Hold, state: str, spent: Amounts, note: str | None
) -> Hold | StandfastError:
    """Settle or release a hold in `tx`. A model call settles its hold in the transaction that records the call."""
    crash.point("hold.before_settle")
    row = _own(tx, scope, which)
    most = amounts.of_row(row, "most")
    booked = Amounts(
        *(m if s is None else s for m, s in zip(most.as_dict().values(), spent.as_dict().values(), strict=True))
    )
    if row["state"] != "held":
        if row["state"] == state and amounts.of_row(row, "spent") == booked:
            return hold_of(tx, row)
        raise _ended(row, state)
    used = amounts.columns("spent", booked)
    ended = tx.one(SQL.end_hold, id=row["id"], state=state, note=note, by=tx.caller.actor, now_us=tx.now_us(), **used)
    for id in row["budgets"].split():
        tx.run(SQL.give_back, id=id, **used, **amounts.columns("most", most))
    words = (
        f"{row['subject']}: {booked.used} used, {most.used} held"
        if state == "settled"
        else f"{row['subject']}: {most.used}"
    )
    return _journal_hold_change(tx, ended, f"hold.{state}", words)


def _own(tx: Tx, scope: str, which: str | Hold) -> Row:
    """The locked hold, if the caller may end it. Raises NotFound, LeaseLost, ApprovalRequired."""
    found = which.id if isinstance(which, Hold) else _hold(tx, scope, which)["id"]
    row = tx.one(SQL.hold_by_id_for_update, id=found)
    if row["state"] != "held" or leases.may_act_for(tx, row):
        return row
    if leases.judge(tx, row).live:
        raise LeaseLost(
            f"the hold {short(row['id'])} of {row['subject']!r} is held by {leases.holder_text(row['holder'])}",
            "wait for that holder: standfast budget holds",
        )
    if (refusal := people.refusal("settles a hold in doubt")) is not None:
        raise refusal
    return row


def _ended(row: Row, wanted: str) -> IllegalTransition:
    return IllegalTransition(
        f"the hold {short(row['id'])} of {row['subject']!r} is {row['state']} by {row['settled_by']}"
        f" ({amounts.of_row(row, 'spent').used}), and cannot be {wanted} with other amounts",
        hints.command("budget", "holds", "--ended"),
    )


def _journal_hold_change(tx: Tx, row: Row, type: str, summary: str) -> Hold:
    made = hold_of(tx, row)
    data: Row = {"subject": made.subject, "most": dict(made.most.known), "spent": dict(made.spent.known)}
    receipt = journal.append(
        tx, type, made.id, scope=made.scope, session_id=made.session_id, summary=summary, data=data, state=made.state
    )
    return made.replace(receipt=receipt)


# -- private functions ------------------------------------------------------------------------------


def _budget(tx: Tx, scope: str, name: str) -> Row:
    row = tx.maybe(SQL.by_name, scope=scope, name=checked_name(name))
    if row is None:
        raise _unknown(name)
    return row


def _hold(tx: Tx, scope: str, which: str) -> Row:
    row = lookup.row_of(tx, which, "hld", by_key=lambda key: tx.maybe(SQL.hold_by_key, scope=scope, key=key))
    if row is None:
        raise NotFound(f"there is no hold {serial.clean(which, 80)!r} in this scope", "standfast budget holds")
    return row


def _unknown(name: str) -> NotFound:
    shown = serial.clean(name, 80)
    return NotFound(
        f"there is no budget {shown!r} in this scope",
        f"standfast budget list; or set it: {hints.command('budget', 'set', shown)} --tokens 1000000 --per day",
    )


def _note(note: str | None) -> str | None:
    return None if not note else serial.clean(note, REASON_MAX)


def _sum(parts: list[Amounts]) -> Amounts:
    return Amounts(*(sum(getattr(one, unit) or 0 for one in parts) for unit in amounts.UNITS))
