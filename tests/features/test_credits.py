"""Credits: one entry per key, a balance that replays cannot change, and no credit spent twice."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import standfast
from standfast import config, handle, when
from standfast.clock import DAY_US, HOUR_US
from standfast.errors import Conflict, InvalidInput, KeyConflict, NotFound
from standfast.ledger import credits
from standfast.ledger.credits import AMOUNT_MAX, SQL, SUMS, Balance
from standfast_prove.faults.children import Nursery

PROCESSES = 4


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as made:
        yield made


def test_repeated_grants_with_one_key_count_once(sf: standfast.Standfast) -> None:
    """000-21, 000-22: one key per invoice or payment. A replay grants no second credit."""
    first = sf.credits.grant("ada", 1000, key="monthly:invoice_2026_11", reason="November")
    assert (first.amount, first.unit, first.fresh) == (1000, "credits", True)
    again = sf.credits.grant("ada", 1000, key="monthly:invoice_2026_11", reason="other words do not count")
    assert again == first.replace(fresh=False, receipt=None)
    sf.credits.grant("ada", 500, key="topup:payment_77")
    assert sf.credits.balance("ada").balance == 1500
    types = [event.type for event in sf.journal.tail().events]
    assert types == ["credit.granted", "credit.granted"], "a replay writes nothing"


def test_the_same_key_for_another_entry_is_refused_with_the_difference(sf: standfast.Standfast) -> None:
    sf.credits.grant("ada", 1000, key="monthly:1")
    refusals: list[tuple[Callable[[], object], str]] = [
        (lambda: sf.credits.grant("ada", 1001, key="monthly:1"), "amount 1000, not 1001"),
        (lambda: sf.credits.grant("bob", 1000, key="monthly:1"), "account ada, not bob"),
        (lambda: sf.credits.grant("ada", 1000, key="monthly:1", unit="eur"), "unit credits, not eur"),
        (lambda: sf.credits.spend("ada", 1000, key="monthly:1"), "amount 1000, not -1000"),
        (lambda: sf.credits.spend("bob", 1, key="monthly:1"), "account ada, not bob"),
    ]
    for refused, what in refusals:
        with pytest.raises(KeyConflict, match=what):
            refused()
    assert len(sf.credits.list()) == 1


def test_spending_more_than_the_balance_is_refused_and_writes_nothing(sf: standfast.Standfast) -> None:
    sf.credits.grant("ada", 10, key="g")
    with pytest.raises(Conflict, match="ada has 10 credits, and 11") as caught:
        sf.credits.spend("ada", 11, key="s")
    assert caught.value.code == "insufficient"
    assert len(sf.credits.list()) == 1
    sf.credits.grant("ada", 1, key="g2")
    assert sf.credits.spend("ada", 11, key="s").fresh, "the same key may be asked with again"
    assert sf.credits.balance("ada").balance == 0


def test_a_spend_that_is_recorded_is_never_refused_when_replayed(sf: standfast.Standfast) -> None:
    sf.credits.grant("ada", 10, key="g")
    first = sf.credits.spend("ada", 10, key="s")
    assert sf.credits.spend("ada", 10, key="s") == first.replace(fresh=False, receipt=None)
    assert sf.credits.balance("ada").balance == 0


def test_what_has_happened_is_recorded_below_zero_too(sf: standfast.Standfast) -> None:
    sf.credits.spend("ada", 5, key="usage:1", below_zero=True)
    assert sf.credits.balance("ada").balance == -5
    with pytest.raises(Conflict, match="has -5"):
        sf.credits.spend("ada", 1, key="s")


def test_a_new_process_reads_only_what_was_added_since_the_last_stored_sum(
    engine_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For any length of history, the first spend and the first balance read at most this number of entries."""
    monkeypatch.setattr(credits, "SUMMED_AT", 5)
    with standfast.open(engine_url, data_dir=tmp_path / "data") as sf:
        for n in range(23):
            sf.credits.grant("ada", 10, key=f"g{n}")
    with standfast.open(engine_url, data_dir=tmp_path / "data") as sf:
        asked: list[int] = []
        whole = sf._store.write

        def watching(body: Any, **options: Any) -> Any:
            return whole(lambda tx: body(_Watched(tx, asked)), **options)

        sf._store.write = watching  # type: ignore[method-assign]
        sf.credits.spend("ada", 1, key="s")
        (since,) = asked
        (added,) = sf.rows("SELECT count(*) AS n FROM credit_entry WHERE seq > :since", {"since": since})
        assert 0 < added["n"] <= 6
        before = sf.credits.balance("ada")
        assert (before.balance, before.entries) == (229, 24)
        sf._store.write = whole  # type: ignore[method-assign]
        sf._store.write(lambda tx: tx.run(SQL.drop_sums, scope="", fold=SUMS, stream="credits ada", version=10**9))
        assert sf.credits.balance("ada") == before, "a stored sum can be deleted"


class _Watched:
    """A transaction that records the first entry that a balance adds up."""

    def __init__(self, tx: Any, asked: list[int]) -> None:
        self._tx = tx
        self._asked = asked

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tx, name)

    def one(self, statement: Any, **params: Any) -> Any:
        if statement is SQL.balance_since:
            self._asked.append(params["seq"])
        return self._tx.one(statement, **params)


def test_units_accounts_and_scopes_are_apart(engine_url: str, tmp_path: Path) -> None:
    for scope in ("here", "there"):
        with handle.connect(config.load(engine_url, data_dir=tmp_path / "data", scope=scope)) as sf:
            sf.credits.grant("ada", 10, key="a")
            sf.credits.grant("ada", 20, key="b", unit="tokens")
            sf.credits.grant("bob", 30, key="c")
            assert sf.credits.balance("ada", unit="tokens").balance == 20
            assert [(one.account, one.unit, one.balance) for one in sf.credits.balances()] == [
                ("ada", "credits", 10),
                ("ada", "tokens", 20),
                ("bob", "credits", 30),
            ]
            assert [one.balance for one in sf.credits.balances(account="ada")] == [10, 20]
            assert [one.balance for one in sf.credits.balances(limit=1, after=("ada", "credits"))] == [20]
            assert [one.balance for one in sf.credits.balances(account="ada", after=("", "credits"))] == [20]
            with pytest.raises(Conflict):
                sf.credits.spend("ada", 11, key="d")


def test_an_unknown_account_has_a_balance_of_zero(sf: standfast.Standfast) -> None:
    assert sf.credits.balance("missing") == Balance("missing", "credits", 0, 0, None)
    assert (sf.credits.list(account="missing"), sf.credits.balances(account="missing")) == ([], [])


def test_a_refund_undoes_an_entry_once(sf: standfast.Standfast) -> None:
    sf.credits.grant("ada", 100, key="topup:1")
    sf.credits.spend("ada", 30, key="run:1")
    back = sf.credits.refund("run:1", reason="it failed")
    assert (back.amount, back.key, back.fresh) == (30, "refund:run:1", True)
    assert sf.credits.refund("run:1").fresh is False
    with pytest.raises(KeyConflict, match="amount 30, not 10"):
        sf.credits.refund("run:1", amount=10)
    assert sf.credits.refund("topup:1", amount=40).amount == -40
    assert sf.credits.balance("ada").balance == 60
    with pytest.raises(InvalidInput, match="more than can be refunded"):
        sf.credits.refund("topup:1", amount=101)
    with pytest.raises(NotFound, match="credit list"):
        sf.credits.refund("never")
    sf.credits.refund("refund:topup:1")
    assert sf.credits.balance("ada").balance == 100, "an undoing can be undone"


def test_the_balance_at_a_moment_counts_what_had_happened_by_then(sf: standfast.Standfast) -> None:
    now_us = sf.credits.grant("ada", 1, key="now").occurred_us
    sf.credits.grant("ada", 10, key="late news", occurred=when.utc(now_us - DAY_US))
    sf.credits.spend("ada", 5, key="soon", occurred=when.utc(now_us + DAY_US))
    at = {
        hours: sf.credits.balance("ada", at=when.utc(now_us + hours * HOUR_US)).balance
        for hours in (-25, -24, 0, 23, 24)
    }
    assert at == {-25: 0, -24: 10, 0: 11, 23: 11, 24: 6}
    assert [one.balance for one in sf.credits.balances(at=when.utc(now_us))] == [11]
    told = [event.occurred_us for event in sf.journal.tail().events]
    assert told == [now_us, now_us - DAY_US, now_us + DAY_US]


def test_entries_are_listed_newest_first_and_found_by_key_or_id(sf: standfast.Standfast) -> None:
    made = [sf.credits.grant("ada", n + 1, key=f"k{n}", unit="ab"[n % 2]) for n in range(5)]
    plain = [entry.replace(fresh=False, receipt=None) for entry in made]
    assert sf.credits.list() == plain[::-1]
    assert sf.credits.list(account="ada", limit=2, after=plain[3].seq) == [plain[2], plain[1]]
    assert sf.credits.list(account="ada", unit="b") == sf.credits.list(unit="b") == [plain[3], plain[1]]
    assert sf.credits.get("k3") == sf.credits.get(plain[3].id) == plain[3]
    with pytest.raises(NotFound):
        sf.credits.get("k9")


GARBAGE: list[dict[str, Any]] = [
    {"amount": 0},
    {"amount": -1},
    {"amount": 1.0},
    {"amount": True},
    {"amount": "1"},
    {"amount": None},
    {"amount": AMOUNT_MAX + 1},
    {"account": ""},
    {"account": "a\nb"},
    {"account": "a" * 201},
    {"account": None},
    {"key": ""},
    {"key": "k" * 451},
    {"key": "a\0"},
    {"key": "\ud800"},
    {"unit": " "},
    {"unit": "u" * 61},
    {"reason": 7},
    {"occurred": when.utc(-1)},
    {"occurred": 2**63},
    {"occurred": 1.5},
]


def test_garbage_is_refused_by_name_and_nothing_is_written(sf: standfast.Standfast) -> None:
    for more in GARBAGE:
        asked: dict[str, Any] = {"account": "ada", "amount": 1, "key": "k"} | more
        with pytest.raises(InvalidInput):
            sf.credits.grant(**asked)
        with pytest.raises(InvalidInput):
            sf.credits.spend(**asked)
    for call in (
        lambda: sf.credits.balance(""),
        lambda: sf.credits.balance("a", at=when.utc(-1)),
        lambda: sf.credits.list(account="\0"),
        lambda: sf.credits.get(""),
        lambda: sf.credits.refund(""),
    ):
        with pytest.raises(InvalidInput):
            call()
    assert sf.credits.list() == []


def test_the_largest_amounts_add_up(sf: standfast.Standfast) -> None:
    with sf.transaction() as tx:
        for n in range(20):
            tx.credits.grant("ada", AMOUNT_MAX, key=f"k{n}")
    assert sf.credits.balance("ada").balance == 20 * AMOUNT_MAX
    assert sf.credits.refund("k1").amount == -AMOUNT_MAX


def test_the_ledger_is_only_ever_added_to() -> None:
    """Append-only: no statement changes or removes an entry."""
    texts = [text for statement in SQL for text in (statement.sqlite, statement.postgres)]  # type: ignore[attr-defined]
    assert not [
        text
        for text in texts
        if "UPDATE CREDIT_ENTRY" in text.upper() or "FROM CREDIT_ENTRY" in text.upper().partition("DELETE ")[2]
    ]


def test_awaited_the_names_are_the_same(engine_url: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with standfast.aopen(engine_url, data_dir=tmp_path / "data") as sf:
            grants = [sf.credits.grant("ada", 5, key=f"k{n % 4}") for n in range(20)]
            await asyncio.gather(*(asyncio.ensure_future(_awaited(grant)) for grant in grants))
            assert (await sf.credits.balance("ada")).balance == 20
            with pytest.raises(Conflict):
                await sf.credits.spend("ada", 21, key="s")
            await sf.credits.spend("ada", 20, key="s")
            assert (await sf.credits.refund("s")).amount == 20

    asyncio.run(main())


async def _awaited(call: Any) -> Any:
    return await call


# -- from many processes ---------------------------------------------------------------------------------


EVENTS = [
    *((f"grant {n}", "ada" if n % 3 else "bob", 50 + n) for n in range(12)),
    *((f"spend {n}", "ada" if n % 3 else "bob", -(5 + n)) for n in range(12)),
]


def replay(url: str, data: str, number: int, times: int) -> None:
    """In a child process: replay every event several times in a random order, with refunds when possible."""
    chance = random.Random(number)
    with standfast.open(url, data_dir=data) as sf:
        for _ in range(times):
            for key, account, amount in chance.sample(EVENTS, len(EVENTS)):
                if amount > 0:
                    sf.credits.grant(account, amount, key=key)
                else:
                    sf.credits.spend(account, -amount, key=key, below_zero=True)
                if key in ("grant 1", "spend 2"):
                    sf.credits.refund(key)


def test_any_events_replayed_in_any_interleaving_give_one_balance(
    nursery: Nursery, engine_url: str, tmp_path: Path
) -> None:
    """000-22: from several processes at once, each in its own order, again and again."""
    data = str(tmp_path / "data")
    asked: dict[str, object] = {"url": engine_url, "data": data, "times": 2}
    pids = nursery.race("tests.features.test_credits:replay", [asked | {"number": n} for n in range(PROCESSES)])
    assert [nursery.wait(pid, 120) for pid in pids] == [0] * PROCESSES
    undone = {"grant 1", "spend 2"}
    with standfast.open(engine_url, data_dir=data) as sf:
        for account in ("ada", "bob"):
            counted = sum(amount for key, whose, amount in EVENTS if whose == account and key not in undone)
            assert sf.credits.balance(account).balance == counted
        assert len(sf.credits.list(limit=1000)) == len(EVENTS) + len(undone)


def grab(url: str, data: str, number: int, out: str) -> None:
    """In a child process: spend one credit at a time until none is left."""
    won = 0
    with standfast.open(url, data_dir=data) as sf:
        for n in range(1000):
            try:
                sf.credits.spend("ada", 3, key=f"spend {number}/{n}")
            except Conflict:
                break
            won += 1
    Path(out, str(number)).write_text(str(won))


def test_spends_at_once_cannot_have_the_last_credit_twice(nursery: Nursery, engine_url: str, tmp_path: Path) -> None:
    """On PostgreSQL two transactions do not see each other, so those of one account run one after the other."""
    data = str(tmp_path / "data")
    with standfast.open(engine_url, data_dir=data) as sf:
        sf.credits.grant("ada", 100, key="g")
    asked: dict[str, object] = {"url": engine_url, "data": data, "out": str(tmp_path)}
    pids = nursery.race("tests.features.test_credits:grab", [asked | {"number": n} for n in range(PROCESSES)])
    assert [nursery.wait(pid, 120) for pid in pids] == [0] * PROCESSES
    won = sum(int((tmp_path / str(n)).read_text()) for n in range(PROCESSES))
    with standfast.open(engine_url, data_dir=data) as sf:
        assert (won, sf.credits.balance("ada").balance) == (33, 1)


def test_a_spend_waits_for_the_one_before_it_and_sees_it(pg_database: str, tmp_path: Path) -> None:
    """A deterministic test: the first spend is not yet committed when the second one starts."""
    ends: list[object] = []
    with (
        standfast.open(pg_database, data_dir=tmp_path / "data") as sf,
        standfast.open(pg_database, data_dir=tmp_path / "data") as look,
    ):
        sf.credits.grant("ada", 10, key="g")

        def second() -> None:
            try:
                ends.append(sf.credits.spend("ada", 10, key="second"))
            except Conflict as error:
                ends.append(error.code)

        thread = threading.Thread(target=second)
        with sf.transaction() as tx:
            tx.credits.spend("ada", 10, key="first")
            thread.start()
            waiting = "SELECT 1 AS waits FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
            while thread.is_alive() and not list(look.rows(waiting)):
                pass
        thread.join(60)
        assert (ends, sf.credits.balance("ada").balance) == (["insufficient"], 0)
