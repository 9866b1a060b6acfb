"""Budgets: usage never exceeds a limit, a dead holder's hold stays, and a refusal names the holds."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import standfast
from standfast.admin.copies.places import Directory
from standfast.admin.copies.resource import read
from standfast.admin.copies.restore import restore
from standfast.clock import DAY_US, HOUR_US, ManualClock
from standfast.config.target import Target
from standfast.errors import Conflict, IllegalTransition, InProgress, InvalidInput, KeyConflict, LeaseLost, NotFound
from standfast.ledger.budgets import amounts
from standfast.ledger.budgets.amounts import AMOUNT_MAX, PERIODS, Amounts, window_us
from standfast_prove.faults.children import Nursery

PROCESSES = 4


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as made:
        yield made


def refused(call: Callable[[], object]) -> Conflict:
    with pytest.raises(Conflict) as caught:
        call()
    assert (caught.value.code, caught.value.exit_code) == ("budget_exhausted", 4)
    return caught.value


# -- limits ---------------------------------------------------------------------------------------------


def test_a_call_reserves_before_and_settles_after(sf: standfast.Standfast) -> None:
    """000-46: the reserved amount counts until the call ends; then only the used amount counts."""
    made = sf.budgets.set("agent:coder", tokens=10_000)
    assert (made.limit.known, made.left.known, made.action) == ({"tokens": 10_000}, {"tokens": 10_000}, "warn")
    hold = sf.budgets.reserve("agent:coder", tokens=3_000, note="plan")
    assert (hold.state, hold.in_doubt, hold.fresh, hold.budgets) == ("held", False, True, (made.id,))
    assert sf.budgets.get("agent:coder").left.tokens == 7_000
    settled = sf.budgets.settle(hold, tokens=812)
    assert (settled.state, settled.spent.tokens, settled.holder) == ("settled", 812, None)
    now = sf.budgets.get("agent:coder")
    assert (now.left.tokens, now.spent.tokens, now.held.tokens, now.spent.calls) == (9_188, 812, 0, 1)
    types = [event.type for event in sf.journal.about(made.id)] + [event.type for event in sf.journal.about(hold.id)]
    assert types == ["budget.set", "hold.reserved", "hold.settled"]


def test_a_refusal_names_the_amount_left_and_the_holders_and_writes_nothing(sf: standfast.Standfast) -> None:
    sf.budgets.set("team", tokens=1_000, per="day")
    sf.budgets.settle(sf.budgets.reserve("team", tokens=100), tokens=100)
    sf.budgets.reserve("team", tokens=300)
    error = refused(lambda: sf.budgets.reserve("team", tokens=601))
    assert error.message.startswith(
        "the budget 'team' has 600 tokens left of 1,000 tokens per day, and this call may need 601 tokens: "
        "100 tokens spent, 300 tokens held by "
    )
    assert f"process {os.getpid()} on" in error.message
    assert error.hint == "standfast budget show team"
    assert len(sf.budgets.holds("team")) == 1
    assert sf.budgets.reserve("team", tokens=600).fresh, "the rest can be reserved to the last token"


def test_a_budget_inside_another_only_narrows(sf: standfast.Standfast) -> None:
    """The limits of all budgets around the subject apply, even if the inner budget allows more."""
    sf.budgets.set("team", tokens=1_000)
    sf.budgets.set("agent:coder", tokens=900, within="team")
    sf.budgets.set("session:fix-42", tokens=5_000, within="agent:coder")
    assert sf.budgets.report("session:fix-42").parents == ("agent:coder", "team")
    assert "'agent:coder' has 900" in refused(lambda: sf.budgets.reserve("session:fix-42", tokens=901)).message
    hold = sf.budgets.reserve("session:fix-42", tokens=600)
    assert [sf.budgets.get(name).left.tokens for name in ("team", "agent:coder", "session:fix-42")] == [400, 300, 4_400]
    assert "'team' has 400" in refused(lambda: sf.budgets.reserve("team", tokens=401)).message
    sf.budgets.release(hold)
    assert [one.left.tokens for one in sf.budgets.list() if one.name in ("team", "agent:coder")] == [900, 1_000]


@pytest.mark.parametrize("unit", ["tokens", "usd", "calls", "time"])
def test_each_unit_has_its_limit(sf: standfast.Standfast, unit: str) -> None:
    limits: dict[str, Any] = {"tokens": 10, "usd": "1.50", "calls": 2, "time": "10s"}
    asked: dict[str, dict[str, Any]] = {
        "tokens": {"tokens": 6},
        "usd": {"usd": 0.8},
        "calls": {"calls": 2},
        "time": {"time": 6},
    }
    sf.budgets.set("team", **{unit: limits[unit]})
    sf.budgets.reserve("team", **asked[unit])
    refused(lambda: sf.budgets.reserve("team", **asked[unit]))


def test_an_amount_that_is_limited_must_be_given(sf: standfast.Standfast) -> None:
    """An unknown price is not taken as 0."""
    sf.budgets.set("all", usd=20, per="day")
    sf.budgets.set("team", tokens=1_000)
    with pytest.raises(InvalidInput, match="'all' limits money, and no amount is given") as caught:
        sf.budgets.reserve("team", tokens=10)
    assert caught.value.hint.endswith("usd=…, in a shell --usd …")
    assert sf.budgets.reserve("team", tokens=10, usd="0.01").fresh
    assert sf.budgets.get("all").held.microusd == 10_000


def test_more_than_was_reserved_is_booked_and_stops_the_next(sf: standfast.Standfast) -> None:
    """000-47: usage above the reservation is recorded."""
    sf.budgets.set("team", tokens=1_000)
    sf.budgets.settle(sf.budgets.reserve("team", tokens=300), tokens=1_700)
    now = sf.budgets.get("team")
    assert (now.left.tokens, now.exhausted) == (-700, True)
    assert "has -700 tokens left" in refused(lambda: sf.budgets.reserve("team", tokens=1)).message


def test_a_day_begins_at_midnight_utc_with_nothing_spent(engine_url: str, tmp_path: Path) -> None:
    clock = ManualClock()
    with standfast.open(engine_url, data_dir=tmp_path / "data", clock=clock) as sf:
        sf.budgets.set("team", tokens=1_000, per="day")
        sf.budgets.settle(sf.budgets.reserve("team", tokens=900), tokens=900)
        open_hold = sf.budgets.reserve("team", tokens=100)
        clock.advance("23h59m")
        refused(lambda: sf.budgets.reserve("team", tokens=1))
        clock.advance("1m")
        assert sf.budgets.get("team").left.tokens == 900, "held amounts stay held on the next day"
        assert sf.budgets.reserve("team", tokens=900).fresh
        assert sf.budgets.settle(open_hold, tokens=40, note="seen on the bill").spent.tokens == 40
        assert (sf.budgets.get("team").spent.tokens, sf.budgets.get("team").held.tokens) == (40, 900)
        clock.jump("-30h")
        assert sf.budgets.get("team").spent.tokens == 40, "a clock that goes back fills nothing"


@given(st.integers(0, 4 * 10**15), st.sampled_from(PERIODS), st.integers(0, 40 * DAY_US))
def test_windows_follow_one_another(now_us: int, per: str, later_us: int) -> None:
    begin = window_us(per, now_us)
    assert begin <= now_us
    assert window_us(per, begin) == begin
    assert begin <= window_us(per, now_us + later_us) <= now_us + later_us
    longest = {"hour": HOUR_US, "day": DAY_US, "week": 7 * DAY_US, "month": 31 * DAY_US}[per]
    assert now_us - begin < longest


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (0, "$0.00"),
        (1, "$0.000001"),
        (2_500_000, "$2.50"),
        (-1_500_000, "-$1.50"),
        (1_234_000_000, "$1,234.00"),
    ],
)
def test_money_is_written_in_dollars(value: int, said: str) -> None:
    assert amounts.shown("microusd", value) == said
    assert value < 0 or amounts.microusd(said.replace(",", "")) == value


def test_a_part_of_a_millionth_is_rounded_up() -> None:
    assert [amounts.microusd(usd) for usd in ("0.0000001", 0.1, "$3", 0)] == [1, 100_000, 3_000_000, 0]


# -- setting --------------------------------------------------------------------------------------------


def test_setting_again_changes_only_the_given_values(sf: standfast.Standfast) -> None:
    sf.budgets.set("team", tokens=1_000, usd=5, per="day")
    sf.budgets.settle(sf.budgets.reserve("team", tokens=300, usd=1), tokens=300, usd=1)
    changed = sf.budgets.set("team", tokens=2_000)
    assert (changed.limit, changed.per) == (Amounts(2_000, 5_000_000, None, None), "day")
    assert changed.left.tokens == 1_700
    assert sf.budgets.set("team", tokens=2_000).receipt is None, "the same again writes nothing"


def test_a_removed_budget_limits_nothing_and_its_holds_can_be_settled(sf: standfast.Standfast) -> None:
    sf.budgets.set("team", tokens=1_000)
    sf.budgets.set("coder", tokens=500, within="team")
    hold = sf.budgets.reserve("coder", tokens=500)
    assert sf.budgets.remove("coder").removed_us is not None
    with pytest.raises(NotFound, match="no budget 'coder'"):
        sf.budgets.get("coder")
    assert sf.budgets.settle(hold, tokens=100).state == "settled"
    assert sf.budgets.get("team").spent.tokens == 100
    again = sf.budgets.set("coder", tokens=500)
    assert again.spent.tokens == 0, "a budget that is set again begins with nothing spent"


def test_a_budget_is_never_inside_itself(sf: standfast.Standfast) -> None:
    sf.budgets.set("b0", tokens=10)
    for n in range(1, 8):
        sf.budgets.set(f"b{n}", tokens=10, within=f"b{n - 1}")
    for name, within in (("b0", "b0"), ("b0", "b7"), ("b3", "b4")):
        with pytest.raises(InvalidInput, match="inside itself"):
            sf.budgets.set(name, within=within)
    with pytest.raises(InvalidInput, match="inside 8 others"):
        sf.budgets.set("b8", tokens=10, within="b7")
    with pytest.raises(NotFound, match="no budget 'nowhere'"):
        sf.budgets.set("b9", tokens=10, within="nowhere")


GARBAGE: list[dict[str, Any]] = [
    {"name": ""},
    {"name": "a\nb"},
    {"name": "n" * 201},
    {"name": None},
    {"tokens": -1},
    {"tokens": 1.5},
    {"tokens": True},
    {"tokens": "7"},
    {"tokens": AMOUNT_MAX + 1},
    {"usd": "-1"},
    {"usd": "much"},
    {"usd": float("nan")},
    {"usd": float("inf")},
    {"usd": True},
    {"usd": 10**10},
    {"calls": -1},
    {"time": "-1s"},
    {"time": "soon"},
    {"per": "year"},
    {"action": "stop"},
    {"within": ""},
]


def test_garbage_is_refused_by_name_and_nothing_is_written(sf: standfast.Standfast) -> None:
    sf.budgets.set("team", tokens=10)
    for more in GARBAGE:
        given: dict[str, Any] = {"name": "new", "tokens": 1} | more
        with pytest.raises(InvalidInput):
            sf.budgets.set(**given)
    with pytest.raises(InvalidInput, match="limits nothing"):
        sf.budgets.set("new", per="day")
    for more in GARBAGE[4:18]:
        with pytest.raises(InvalidInput):
            sf.budgets.reserve("team", **({"tokens": 1} | more))
    hold = sf.budgets.reserve("team", tokens=1)
    for more in GARBAGE[4:18]:
        with pytest.raises(InvalidInput):
            sf.budgets.settle(hold, **more)
    for key in ("", "a\0", "k" * 501):
        with pytest.raises(InvalidInput):
            sf.budgets.reserve("team", tokens=1, key=key)
    with pytest.raises(NotFound):
        sf.budgets.reserve("new", tokens=1)
    with pytest.raises(NotFound):
        sf.budgets.settle("nothing")
    assert [one.name for one in sf.budgets.list()] == ["team"]
    assert sf.budgets.get("team").held.tokens == 1


# -- keys and holders -----------------------------------------------------------------------------------


def test_a_key_is_settled_once(sf: standfast.Standfast) -> None:
    sf.budgets.set("team", tokens=1_000)
    first = sf.budgets.reserve("team", tokens=300, key="call:7")
    with pytest.raises(InProgress, match="'call:7' is held by process"):
        sf.budgets.reserve("team", tokens=300, key="call:7")
    settled = sf.budgets.settle("call:7", tokens=100)
    again = sf.budgets.reserve("team", tokens=300, key="call:7")
    assert again == settled.replace(receipt=None), "a program that runs again reserves nothing"
    assert sf.budgets.settle(again, tokens=100).receipt is None, "the same amounts again change nothing"
    with pytest.raises(IllegalTransition, match=r"is settled by .*100 tokens"):
        sf.budgets.settle(first, tokens=101)
    with pytest.raises(IllegalTransition):
        sf.budgets.release(first)
    with pytest.raises(KeyConflict, match="held 300 tokens, 1 call for 'team', not 301 tokens"):
        sf.budgets.reserve("team", tokens=301, key="call:7")
    assert sf.budgets.get("team").spent.tokens == 100


def test_a_released_key_may_be_reserved_again(sf: standfast.Standfast) -> None:
    sf.budgets.set("team", tokens=300)
    for n in (1, 2, 3):
        hold = sf.budgets.reserve("team", tokens=300, key="call:7")
        assert (hold.n, hold.fresh) == (n, True)
        sf.budgets.release(hold)
    assert sf.budgets.get("team").left.tokens == 300
    assert [one.n for one in sf.budgets.holds("team", ended=True)] == [3, 2, 1]


def test_another_holders_hold_cannot_be_ended(sf: standfast.Standfast, engine_url: str, tmp_path: Path) -> None:
    """The lease of a live process protects its hold, as it protects an effect."""
    sf.budgets.set("team", tokens=1_000)
    sf._store.caller.holder = sf._store.caller.holder.replace("p:", "p:elsewhere-", 1)
    hold = sf.budgets.reserve("team", tokens=300)
    with standfast.open(engine_url, data_dir=tmp_path / "data") as other:
        for end in (other.budgets.settle, other.budgets.release, other.budgets.give_up):
            with pytest.raises(LeaseLost, match="is held by process"):
                end(hold.id)
    assert sf.budgets.settle(hold).spent.tokens == 300, "an amount that is not given counts as reserved"


def leave_a_hold(url: str, data: str) -> None:
    """Reserve and call in a child process, which dies before it knows the usage."""
    with standfast.open(url, data_dir=data) as sf:
        sf.budgets.reserve("team", tokens=300, key="call:7")
        os._exit(0)


def test_the_hold_of_a_dead_process_is_in_doubt_and_not_returned(
    nursery: Nursery, sf: standfast.Standfast, engine_url: str, tmp_path: Path
) -> None:
    """000-47: the call may have been billed. The next call needs its own hold, and usage reported later settles the
    first.
    """
    sf.budgets.set("team", tokens=700)
    asked = {"url": engine_url, "data": str(tmp_path / "data")}
    (pid,) = nursery.race("tests.features.test_budgets:leave_a_hold", [asked])
    assert nursery.wait(pid, 60) == 0
    report = sf.budgets.report("team")
    (hold,) = report.holds
    assert (hold.state, hold.in_doubt, hold.standing, report.in_doubt.tokens) == ("held", True, "in doubt", 300)
    assert report.budget.left.tokens == 400
    second = sf.budgets.reserve("team", tokens=300, key="call:7")
    assert (second.n, second.fresh) == (2, True)
    assert "(300 tokens, in doubt)" in refused(lambda: sf.budgets.reserve("team", tokens=101)).message
    settled = sf.budgets.settle(hold.id, tokens=120, note="the provider's bill")
    assert (settled.spent.tokens, settled.note) == (120, "the provider's bill")
    sf.budgets.settle(second, tokens=80)
    assert sf.budgets.get("team").left.tokens == 500


def test_a_reboot_or_the_end_of_the_lease_leaves_the_hold_in_doubt(engine_url: str, tmp_path: Path) -> None:
    clock = ManualClock()
    with standfast.open(engine_url, data_dir=tmp_path / "data", clock=clock) as sf:
        sf.budgets.set("team", tokens=700)
        hold = sf.budgets.reserve("team", tokens=300)
        clock.advance("61s")
        assert sf.budgets.hold(hold.id).in_doubt
        assert sf.budgets.get("team").left.tokens == 400
        assert sf.budgets.settle(hold, tokens=10).state == "settled", "its own holder may still settle it"


# -- in a session ---------------------------------------------------------------------------------------


def test_a_block_counts_for_the_session_its_agent_and_all(sf: standfast.Standfast) -> None:
    names = ("all", "agent:coder", "session:fix-42", "team")
    for name in names:
        sf.budgets.set(name, tokens=1_000)
    with sf.session("fix-42", agent="coder") as s:
        with s.budget(tokens=300) as b:
            assert b.hold.subject == "session:fix-42"
            b.spent(tokens=100)
        with s.subagent("x").budget("team", tokens=300):
            pass
        with pytest.raises(NotFound), s.budget("typo", tokens=1):
            pass
        refused(lambda: s.budget(tokens=601).__enter__())
    assert [sf.budgets.get(name).spent.tokens for name in names] == [400, 400, 400, 300]
    assert b.hold.session_id == s.id


def test_a_block_that_fails_leaves_its_hold_in_doubt_unless_nothing_was_sent(sf: standfast.Standfast) -> None:
    sf.budgets.set("all", tokens=1_000)
    with sf.session("fix-42") as s:
        with pytest.raises(TimeoutError), s.budget(tokens=300):
            raise TimeoutError
        with pytest.raises(standfast.NotApplied), s.budget(tokens=300) as unsent:
            raise standfast.NotApplied("no network")
        with suppress(ValueError), s.budget(tokens=300) as b:
            b.spent(tokens=50)
            raise ValueError
        with s.budget(tokens=300) as released:
            released.release()
    assert [one.hold.state for one in (unsent, b, released)] == ["released", "settled", "released"]
    (doubtful,) = sf.budgets.holds("all")
    assert (doubtful.in_doubt, doubtful.note) == (True, "the call ended in TimeoutError")
    assert sf.budgets.get("all").left.tokens == 650


def test_a_program_that_runs_again_settles_its_key_once(sf: standfast.Standfast) -> None:
    sf.budgets.set("all", tokens=1_000)
    for _ in range(3):
        with sf.session("fix-42") as s, s.budget(tokens=300, key="plan") as b:
            used = s.step("plan", lambda: 120)
            b.spent(tokens=used)
    with sf.session("fix-43") as s, s.budget(tokens=300, key="plan") as b:
        b.spent(tokens=10)
    assert sf.budgets.get("all").spent.tokens == 130


def test_awaited_the_names_are_the_same(engine_url: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with standfast.aopen(engine_url, data_dir=tmp_path / "data") as sf:
            await sf.budgets.set("all", tokens=1_000)
            hold = await sf.budgets.reserve("all", tokens=300)
            assert (await sf.budgets.settle(hold, tokens=100)).state == "settled"
            async with sf.session("fix-42") as s:
                async with s.budget(tokens=300) as b:
                    await b.spent(tokens=50)
                with pytest.raises(TimeoutError):
                    async with s.budget(tokens=300):
                        raise TimeoutError
            assert (await sf.budgets.report("all")).budget.left.tokens == 550

    asyncio.run(main())


def test_a_refusal_inside_a_transaction_leaves_nothing_behind(sf: standfast.Standfast) -> None:
    """Every budget of the chain is checked before one of them is changed."""
    sf.budgets.set("team", tokens=100)
    sf.budgets.set("coder", tokens=1_000, within="team")
    with sf.transaction() as tx:
        refused(lambda: tx.budgets.reserve("coder", tokens=101))
        hold = tx.budgets.reserve("coder", tokens=40)
        tx.budgets.settle(hold, tokens=30)
    assert [(one.held.tokens, one.spent.tokens) for one in sf.budgets.list()] == [(0, 30), (0, 30)]


# -- many at once ---------------------------------------------------------------------------------------


def use_up(url: str, data: str, number: int, out: str) -> None:
    """In a child with four threads: reserve 30 and use 10 to 30 until the budget refuses."""
    used: list[int] = []

    def work(thread: int) -> None:
        for n in range(200):
            try:
                hold = sf.budgets.reserve(f"agent:{number}", tokens=30)
            except Conflict:
                return
            spent = 10 + (number + thread + n) % 21
            sf.budgets.settle(hold, tokens=spent)
            used.append(spent)

    with standfast.open(url, data_dir=data) as sf:
        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    Path(out, str(number)).write_text(str(sum(used)))


def test_many_processes_at_once_never_use_more_than_the_limit(
    nursery: Nursery, engine_url: str, tmp_path: Path
) -> None:
    """000-46: each reservation updates three levels in one order. A count outside the store is compared."""
    data = str(tmp_path / "data")
    with standfast.open(engine_url, data_dir=data) as sf:
        sf.budgets.set("all", tokens=2_000, per="month")
        sf.budgets.set("team", tokens=1_500, within="all")
        for n in range(PROCESSES):
            sf.budgets.set(f"agent:{n}", tokens=1_000, within="team")
    asked: dict[str, object] = {"url": engine_url, "data": data, "out": str(tmp_path)}
    pids = nursery.race("tests.features.test_budgets:use_up", [asked | {"number": n} for n in range(PROCESSES)])
    assert [nursery.wait(pid, 120) for pid in pids] == [0] * PROCESSES
    used = [int((tmp_path / str(n)).read_text()) for n in range(PROCESSES)]
    with standfast.open(engine_url, data_dir=data) as sf:
        team = sf.budgets.get("team")
        assert (team.spent.tokens, team.held.tokens) == (sum(used), 0)
        assert 1_470 < sum(used) <= 1_500
        assert [sf.budgets.get(f"agent:{n}").spent.tokens for n in range(PROCESSES)] == used


def test_a_reservation_waits_for_the_one_before_it_and_sees_it(pg_database: str, tmp_path: Path) -> None:
    """A deterministic test on PostgreSQL: the first reservation is not yet committed when the second one starts."""
    ends: list[object] = []
    with (
        standfast.open(pg_database, data_dir=tmp_path / "data") as sf,
        standfast.open(pg_database, data_dir=tmp_path / "data") as look,
    ):
        sf.budgets.set("all", tokens=10)

        def second() -> None:
            try:
                ends.append(sf.budgets.reserve("all", tokens=10))
            except Conflict as error:
                ends.append(error.code)

        thread = threading.Thread(target=second)
        with sf.transaction() as tx:
            tx.budgets.reserve("all", tokens=10)
            thread.start()
            waiting = "SELECT 1 AS waits FROM pg_locks WHERE NOT granted"
            while thread.is_alive() and not list(look.rows(waiting)):
                pass
        thread.join(60)
        assert (ends, sf.budgets.get("all").held.tokens) == (["budget_exhausted"], 10)


def test_a_copy_and_a_bundle_restore_budgets_holds_usage_and_facts(sf: standfast.Standfast, tmp_path: Path) -> None:
    """003-13: a restored store refuses the same calls as the first one and finds the same facts."""
    sf.budgets.set("team", tokens=9_000, per="month")
    with sf.session("fix-7", agent="coder") as s:
        hold = sf.budgets.give_up(sf.budgets.reserve("team", tokens=3_000, key="call:1"))
        s.model_call("m-1", prompt="plan", response="split it", usage={"input_tokens": 80, "output_tokens": 4})
    fact = sf.knowledge.add("CI needs node 20", tags=["ci"], embedding=[0.6, 0.8])
    copy = sf.backup()
    place = Directory(copy.place)
    restore(read(place, copy.id), place, Target("sqlite", str(tmp_path / "other")), lambda *told: None)
    with standfast.open(data_dir=tmp_path / "other") as other:
        assert other.budgets.get("team").left == sf.budgets.get("team").left
        assert [(one.id, one.in_doubt, one.most) for one in other.budgets.holds()] == [(hold.id, True, hold.most)]
        assert [one.id for one in other.knowledge.search("", embedding=[0.6, 0.8])] == [fact.id]
        assert other.usage.list(everywhere=True) == sf.usage.list(everywhere=True)
    sf.export("fix-7", to=tmp_path / "fix-7.zip")
    with standfast.open(data_dir=tmp_path / "third") as third:
        third.imports.bundle(tmp_path / "fix-7.zip")
        assert [one.input_tokens for one in third.usage.list(everywhere=True)] == [80]
