"""Credits against a dictionary: after any calls in any order, also repeated ones, both agree."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

import standfast
from standfast.errors import Conflict, KeyConflict, NotFound
from standfast_prove.models.machine import Machine
from standfast_prove.raising import raising

STEPS = 25

KEYS = st.sampled_from(["monthly:1", "monthly:2", "topup:1", "run:1", "run:2"])
ACCOUNTS = st.sampled_from(["ada", "bob"])
UNITS = st.sampled_from(["credits", "tokens"])
AMOUNTS = st.sampled_from([1, 2, 5])

Entry = tuple[str, str, int]


class Program(Machine):
    def __init__(self) -> None:
        super().__init__()
        self.entries: dict[str, Entry] = {}
        self.handles: list[standfast.Standfast] = []

    @initialize()
    def fresh(self) -> None:
        self.handles = [self.opened() for _ in range(2)]

    def teardown(self) -> None:
        for sf in self.handles:
            sf.close()

    @property
    def sf(self) -> standfast.Standfast:
        """Two handles take turns, so the cached balance of each is outdated by the other."""
        self.handles.reverse()
        return self.handles[0]

    def balance(self, account: str, unit: str) -> int:
        return sum(n for whose, of, n in self.entries.values() if (whose, of) == (account, unit))

    @rule(key=KEYS, account=ACCOUNTS, unit=UNITS, amount=AMOUNTS)
    def is_granted(self, key: str, account: str, unit: str, amount: int) -> None:
        wanted = (account, unit, amount)
        if self.entries.get(key, wanted) != wanted:
            with raising(KeyConflict):
                self.sf.credits.grant(account, amount, key=key, unit=unit)
            return
        assert self.sf.credits.grant(account, amount, key=key, unit=unit).fresh == (key not in self.entries)
        self.entries[key] = wanted

    @rule(key=KEYS, account=ACCOUNTS, unit=UNITS, amount=AMOUNTS, below_zero=st.booleans())
    def is_spent(self, key: str, account: str, unit: str, amount: int, below_zero: bool) -> None:
        wanted = (account, unit, -amount)
        refusal: type[Conflict] | None = None
        if self.entries.get(key, wanted) != wanted:
            refusal = KeyConflict
        elif key not in self.entries and not below_zero and self.balance(account, unit) < amount:
            refusal = Conflict
        if refusal is not None:
            with raising(refusal):
                self.sf.credits.spend(account, amount, key=key, unit=unit, below_zero=below_zero)
            return
        self.sf.credits.spend(account, amount, key=key, unit=unit, below_zero=below_zero)
        self.entries[key] = wanted

    @rule(of=KEYS, amount=st.sampled_from([None, 1]))
    def is_refunded(self, of: str, amount: int | None) -> None:
        if of not in self.entries:
            with raising(NotFound):
                self.sf.credits.refund(of, amount=amount)
            return
        account, unit, was = self.entries[of]
        back = (account, unit, -was if amount is None else (-1 if was > 0 else 1))
        key = f"refund:{of}"
        if self.entries.get(key, back) != back:
            with raising(KeyConflict):
                self.sf.credits.refund(of, amount=amount)
            return
        self.sf.credits.refund(of, amount=amount)
        self.entries[key] = back

    @rule(data=st.data())
    def everything_is_replayed_in_another_order(self, data: st.DataObject) -> None:
        """000-22: the same ledger state, entry by entry."""
        before = self.sf.credits.list(limit=1000)
        for key in data.draw(st.permutations(sorted(self.entries))):
            account, unit, amount = self.entries[key]
            verb = self.sf.credits.grant if amount > 0 else self.sf.credits.spend
            assert verb(account, abs(amount), key=key, unit=unit).fresh is False
        assert self.sf.credits.list(limit=1000) == before

    @invariant()
    def both_agree(self) -> None:
        if not self.handles:
            return
        wanted = {(account, unit): self.balance(account, unit) for account, unit, _ in self.entries.values()}
        assert {(one.account, one.unit): one.balance for one in self.sf.credits.balances()} == wanted
        found = {entry.key: (entry.account, entry.unit, entry.amount) for entry in self.sf.credits.list(limit=1000)}
        assert found == self.entries
