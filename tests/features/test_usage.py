"""`sf.usage` and `standfast usage`: sums of imported tokens and cost. On both engines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import standfast
from standfast.ids import new_id
from standfast.interchange.transcripts.insert import SQL
from standfast.views.usage import UsageTotal

HOUR_US = 3_600_000_000
NOON_US = 1_762_772_400_000_000  # 2025-11-10 11:00 UTC


@pytest.fixture
def used(sf: standfast.Standfast) -> Callable[..., None]:
    """Write one row as an importer does."""

    def use(session: str, model: str | None, tokens: int, *, cost: int | None = None, at_us: int = NOON_US) -> None:
        row = {
            "session_id": sf.sessions.get(session).id,
            "node_id": None,
            "model": model,
            "import_seq": None,
            "price": None,
        }
        counts = {"cached_input_tokens": 1, "cache_write_tokens": 2, "reasoning_tokens": 3, "cost_microusd": cost}
        counts |= {"input_tokens": tokens, "output_tokens": tokens // 10}
        given = {"id": new_id("usg"), "response": new_id("usg"), "occurred_us": at_us}
        sf._store.write(lambda tx: tx.run(SQL.usage_largest, now_us=tx.now_us(), **row, **counts, **given))

    for key, agent in (("fix-1", "coder"), ("fix-2", "coder"), ("review", "reviewer")):
        with sf.session(key, agent=agent):
            pass
    return use


def names(found: list[UsageTotal]) -> dict[str, int]:
    return {one.name: one.input_tokens for one in found}


def test_tokens_and_cost_are_summed_by_each_of_the_five(sf: standfast.Standfast, used: Callable[..., None]) -> None:
    """000-38: the largest sum is first. A cost that is missing in the transcript stays unknown."""
    used("fix-1", "opus", 1000, cost=2_500_000)
    used("fix-1", "haiku", 10)
    used("fix-2", "opus", 50, at_us=NOON_US + 72 * HOUR_US)
    used("review", None, 400)
    assert names(sf.usage.list()) == {"fix-1": 1010, "review": 400, "fix-2": 50}
    assert [one.name for one in sf.usage.list(by="agent")] == ["coder", "reviewer"]
    assert names(sf.usage.list(by="model")) == {"opus": 1050, "": 400, "haiku": 10}
    assert list(names(sf.usage.list(by="repository")).values()) == [1460]
    days = [time.strftime("%Y-%m-%d", time.localtime(us // 1_000_000)) for us in (NOON_US + 72 * HOUR_US, NOON_US)]
    assert names(sf.usage.list(by="day")) == {days[0]: 50, days[1]: 1410}
    assert [one.name for one in sf.usage.list(by="day")] == days
    assert sf.usage.list()[0] == UsageTotal(
        name="fix-1",
        responses=2,
        input_tokens=1010,
        cached_input_tokens=2,
        cache_write_tokens=4,
        output_tokens=101,
        reasoning_tokens=6,
        cost_microusd=2_500_000,
    )
    assert {one.name: one.cost for one in sf.usage.list()} == {"fix-1": "$2.50", "review": "", "fix-2": ""}


def test_since_leaves_out_what_was_used_before(sf: standfast.Standfast, used: Callable[..., None]) -> None:
    used("fix-1", "opus", 1000)
    used("fix-2", "opus", 50, at_us=sf._store.caller.clock.now_us())
    assert names(sf.usage.list(since="1d")) == {"fix-2": 50}
    assert names(sf.usage.list(limit=1)) == {"fix-1": 1000}


@pytest.mark.parametrize("by", ["week", "", "session; DROP TABLE usage"])
def test_an_unknown_group_is_refused_with_the_five_known_ones(sf: standfast.Standfast, by: str) -> None:
    with pytest.raises(standfast.InvalidInput, match="one of session, agent, model, day, repository"):
        sf.usage.list(by=by)


def test_a_cost_alone_counts_as_no_response(sf: standfast.Standfast, used: Callable[..., None]) -> None:
    """000-38: Claude Code writes the cost of a session into a separate record."""
    used("fix-1", None, 0, cost=1_000_000)
    (one,) = sf.usage.list()
    assert (one.responses, one.cost) == (0, "$1.00")


def test_the_command_prints_the_same(sf: standfast.Standfast, used: Callable[..., None]) -> None:
    used("fix-1", "opus", 1000, cost=2_500_000)
    store = {"STANDFAST_DATA_DIR": str(sf.settings.data_dir), "STANDFAST_DB_URL": str(sf.settings.target.location)}

    def usage(*words: str) -> str:
        command = [sys.executable, "-m", "standfast", "usage", "--all", *words]
        done = subprocess.run(command, env={**os.environ, **store}, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    (row,) = json.loads(usage("--by", "model", "--json"))["data"]
    assert (row["name"], row["input_tokens"], row["cost_microusd"]) == ("opus", 1000, 2_500_000)
    assert "$2.50" in usage()


def test_a_store_without_usage_has_none(tmp_path: Path) -> None:
    with standfast.open(tmp_path / "s.db", data_dir=tmp_path) as sf:
        assert sf.usage.list() == []


@pytest.fixture
def own_prices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "prices.toml").write_text('["m-1"]\ninput = 3.0\noutput = 15\ncached_input = 0.3\n')
    monkeypatch.setenv("STANDFAST_PRICES", str(tmp_path / "prices.toml"))


def test_recorded_usage_counts_in_budgets_once_and_a_list_price_is_labelled(
    sf: standfast.Standfast, used: Callable[..., None], own_prices: None
) -> None:
    """000-38, 001-26: without a cost from the caller, the list price is used and labelled as such."""
    sf.budgets.set("agent:coder", tokens=10_000, usd=1)
    counts = {"input_tokens": 1000, "output_tokens": 100}
    first = sf.usage.record("fix-1", "m-1", **counts, cached_input_tokens=500, key="a")
    assert (first.cost_microusd, first.price) == (1500 + 150 + 1500, "list price, own table")
    again = sf.usage.record("fix-1", "m-1", **counts, cached_input_tokens=500, key="a")
    assert again == first.replace(receipt=None)
    told = sf.usage.record("fix-1", "m-1", **counts, usd="0.5")
    assert (told.cost_microusd, told.price) == (500_000, None)
    unknown = sf.usage.record("fix-1", "m-unknown", **counts)
    assert (unknown.cost_microusd, unknown.price) == (None, None)
    (total,) = sf.usage.list()
    assert (total.responses, total.cost_microusd, total.list_price_microusd) == (3, 500_000, 3150)
    spent = sf.budgets.get("agent:coder").spent
    assert (spent.tokens, spent.microusd, spent.calls) == (3300, 503_150, 3)
    with pytest.raises(standfast.KeyConflict):
        sf.usage.record("fix-1", "m-1", input_tokens=1, output_tokens=1, key="a")


def test_recorded_usage_settles_a_hold(sf: standfast.Standfast, used: Callable[..., None]) -> None:
    sf.budgets.set("team", tokens=5000)
    hold = sf.budgets.reserve("team", tokens=3000)
    made = sf.usage.record("fix-2", "m-unknown", input_tokens=800, output_tokens=12, hold=hold.id)
    team = sf.budgets.get("team")
    assert (made.hold_id, team.spent.tokens, team.held.tokens) == (hold.id, 812, 0)


def test_prices_of_genai_prices_name_their_version() -> None:
    from standfast.ledger.prices import list_price

    pytest.importorskip("genai_prices")
    found = list_price("claude-sonnet-4-5", fresh=1_000_000, cached=0, cache_write=0, output=0)
    assert found is not None
    assert found.microusd > 0
    assert found.label.startswith("list price, genai-prices 0.")
