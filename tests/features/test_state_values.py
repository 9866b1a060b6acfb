"""State: updates, expiry, schemas, verdicts, and programs whose code changes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

import standfast
from standfast.clock import ManualClock
from standfast.record.state import values
from standfast.record.state.models import Place
from standfast.record.state.values import Wish

# -- update ----------------------------------------------------------------------------------------------


def test_update_from_many_threads_loses_nothing(sf: standfast.Standfast) -> None:
    """001-66, 001-69, 001-70: each update reads, changes and writes, with retries. None of them is lost."""

    def count() -> None:
        for _ in range(5):
            sf.state.update("n", lambda n: n + 1, default=0, attempts_max=200)

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (sf.state.get("n").value, sf.state.get("n").version) == (20, 20)


def test_update_runs_the_function_outside_any_transaction_and_again_when_another_was_faster(
    sf: standfast.Standfast,
) -> None:
    sf.state.set("n", 1)
    seen: list[int] = []

    def slow(n: int) -> int:
        seen.append(n)
        if len(seen) == 1:
            sf.state.set("n", 10)  # would wait permanently if a transaction were open here
        return n + 1

    assert sf.state.update("n", slow).value == 11
    assert seen == [1, 10]


def test_update_gives_up_after_its_attempts_and_has_written_nothing(sf: standfast.Standfast) -> None:
    """001-69: after the last retry, `update` raises."""
    sf.state.set("n", 0)

    def robbed(n: int) -> int:
        sf.state.set("n", n + 100)
        return -1

    with pytest.raises(standfast.VersionConflict, match="changed 3 times while it was updated"):
        sf.state.update("n", robbed, attempts_max=3)
    assert sf.state.get("n").value == 300


def test_update_of_a_missing_key_needs_a_default(sf: standfast.Standfast) -> None:
    """001-69: without a default, `update` of a missing key is refused."""
    with pytest.raises(standfast.NotFound):
        sf.state.update("n", lambda n: n)
    assert sf.state.update("n", lambda n: [*n, 1], default=[]).value == [1]


def test_update_of_a_value_deleted_meanwhile_starts_over(sf: standfast.Standfast) -> None:
    sf.state.set("n", 5)
    calls: list[Any] = []

    def once(n: int) -> int:
        calls.append(n)
        if len(calls) == 1:
            sf.state.delete("n")
        return n + 1

    assert sf.state.update("n", once, default=0).value == 1
    assert calls == [5, 0]


def test_update_keeps_the_end_of_the_value(engine_url: str, tmp_path: Path) -> None:
    clock = ManualClock()
    with standfast.open(engine_url, data_dir=tmp_path / "data", clock=clock) as sf:
        end = sf.state.set("n", 1, for_="1m").expires_us
        assert sf.state.update("n", lambda n: n + 1).expires_us == end
        assert sf.state.update("n", lambda n: n + 1, for_="5m").expires_us != end
        assert sf.state.set("n", 9).expires_us is None


def test_what_the_function_raises_passes_through_and_nothing_is_written(sf: standfast.Standfast) -> None:
    sf.state.set("n", 1)
    with pytest.raises(ZeroDivisionError):
        sf.state.update("n", lambda n: n / 0)
    with pytest.raises(standfast.InvalidInput, match="cannot run inside a transaction"), sf.transaction() as tx:
        tx.state.update("n", lambda n: n)
    assert sf.state.get("n").version == 1


def test_everything_is_there_awaited(engine_url: str, tmp_path: Path) -> None:
    async def program() -> None:
        async with standfast.aopen(engine_url, data_dir=tmp_path / "data") as sf:
            await sf.state.set("n", 1, verify="true")

            async def more(n: int) -> int:
                await asyncio.sleep(0)
                return n + 1

            await asyncio.gather(*(sf.state.update("n", more, attempts_max=100) for _ in range(5)))
            found = await sf.state.get("n")
            assert (found.value, found.version) == (6, 6)
            verdict = await sf.state.verified("n", version=6, verdict="fresh")
            assert verdict.verdict == "fresh"
            assert await sf.state.expire() == 0
            assert [one.key for one in await sf.state.to_verify()] == ["n"]
            assert (await sf.state.namespaces())[0].values == 1

    asyncio.run(program())


# -- expiry ----------------------------------------------------------------------------------------------


def test_an_expired_value_is_hidden_at_once_and_the_sweep_frees_its_space(engine_url: str, tmp_path: Path) -> None:
    """001-46: a value with a TTL needs no clean-up by the caller."""
    clock = ManualClock()
    with standfast.open(engine_url, data_dir=tmp_path / "data", clock=clock) as sf:
        for n in range(5):
            sf.state.set(f"k{n}", "x" * 100, for_=f"{n + 1}m")
        sf.state.set("stays", 1)
        clock.advance("3m")
        assert [one.key for one in sf.state.list()] == ["k3", "k4", "stays"]
        assert (sf.state.expire(limit=2), sf.state.expire(limit=2), sf.state.expire()) == (2, 1, 0)
        rows = {row["key"]: row["value"] for row in sf.rows("SELECT key, value FROM state")}
        assert [rows[f"k{n}"] for n in range(3)] == ["null"] * 3
        assert len(rows["k3"]) == 102
        assert sf.state.swap("k0", "again", version=0).version == 2  # versions continue
        told = sf.journal.about("state")
        assert [event.data["count"] for event in told] == [2, 1]


def test_a_key_that_ended_keeps_its_schema_and_a_deleted_one_does_not(engine_url: str, tmp_path: Path) -> None:
    clock = ManualClock()
    with standfast.open(engine_url, data_dir=tmp_path / "data", clock=clock) as sf:
        sf.state.set("n", 1, for_="1m", json_schema={"type": "integer"})
        clock.advance("2m")
        sf.state.expire()
        with pytest.raises(standfast.InvalidInput, match="integer is wanted"):
            sf.state.swap("n", "text", version=0)
        sf.state.swap("n", 2, version=0)
        sf.state.delete("n")
        assert sf.state.set("n", "text").version == 4


# -- schemas ---------------------------------------------------------------------------------------------


LIMITS = {
    "type": "object",
    "properties": {"cpu": {"type": "integer", "minimum": 1}, "tags": {"type": "array", "items": {"type": "string"}}},
    "required": ["cpu"],
    "additionalProperties": False,
}


def test_a_schema_is_checked_at_every_write(sf: standfast.Standfast) -> None:
    """001-8: persistent state has a schema."""
    sf.state.set("limits", {"cpu": 2}, json_schema=LIMITS)
    unfit = {"cpu": 0}
    writes: list[Callable[[], object]] = [
        lambda: sf.state.set("limits", unfit),
        lambda: sf.state.swap("limits", unfit, version=1),
        lambda: sf.state.update("limits", lambda value: value | unfit),
    ]
    for write in writes:
        with pytest.raises(
            standfast.InvalidInput, match=r"'limits' does not fit its schema: cpu: at least 1 is wanted"
        ):
            write()
    with pytest.raises(standfast.InvalidInput, match=r"tags\[1\]: string is wanted, found integer"):
        sf.state.set("limits", {"cpu": 1, "tags": ["a", 2]})
    with pytest.raises(standfast.VersionConflict):  # a wrong version is reported before a value that breaks the schema
        sf.state.swap("limits", {"cpu": 0}, version=7)
    assert (sf.state.get("limits").value, sf.state.get("limits").version) == ({"cpu": 2}, 1)
    assert sf.state.get("limits").json_schema == LIMITS
    assert sf.state.set("limits", {"cpu": 3}).version == 2
    assert sf.state.set("limits", "anything", json_schema=None).json_schema is None
    assert sf.state.set("limits", 7).version == 4


def test_a_refused_value_leaves_nothing_in_a_transaction_that_continues(sf: standfast.Standfast) -> None:
    sf.state.set("limits", {"cpu": 2}, json_schema=LIMITS)
    with sf.transaction() as tx:
        with pytest.raises(standfast.InvalidInput):
            tx.state.set("limits", {"cpu": 0})
        tx.state.set("other", 1)
    assert sf.state.get("limits").value == {"cpu": 2}
    assert sf.state.get("other").value == 1


# -- verdicts --------------------------------------------------------------------------------------------


def test_a_verdict_is_about_one_version(sf: standfast.Standfast) -> None:
    """001-65: a verdict records whether one version of a value still matches the outside system."""
    made = sf.state.set("branch", "main", verify="git rev-parse main")
    assert (made.verify, made.verify_by, made.verdict) == ("git rev-parse main", sf.agent, None)
    stale = sf.state.verified("branch", version=1, verdict="stale", evidence="exit 128: no such branch")
    assert (stale.verdict, stale.evidence, stale.version) == ("stale", "exit 128: no such branch", 1)
    found = sf.state.get("branch")
    assert (found.verdict, found.evidence, found.verified_us) == (
        "stale",
        "exit 128: no such branch",
        stale.verified_us,
    )
    again = sf.state.set("branch", "main")
    assert (again.verify, again.verdict, again.verified_us) == ("git rev-parse main", None, None)
    with pytest.raises(standfast.VersionConflict):
        sf.state.verified("branch", version=1, verdict="fresh")
    with pytest.raises(standfast.InvalidInput, match="a verdict is fresh, stale, unknown"):
        sf.state.verified("branch", version=2, verdict="good")
    types = [event.type for event in sf.journal.about("state::branch")]
    assert types == ["state.set", "state.verified", "state.set"]


def test_a_fork_sees_the_value_behind_a_verdict(sf: standfast.Standfast) -> None:
    with sf.session("a") as s:
        s.state["branch"] = "main"
        sf.state.set("branch", "fix", namespace=s.id, verify="true")
        sf.state.verified("branch", version=2, verdict="fresh", namespace=s.id)
        s.say("user", "hello")
    sf.sessions.fork("a", "b")
    with sf.session("b") as s:
        assert s.state["branch"] == "fix"
        del s.state["branch"]
        assert "branch" not in s.state


def test_an_imported_command_has_no_giver(sf: standfast.Standfast) -> None:
    """RULES: an imported command is stored as text and never run, also after the value changes."""
    place = Place(sf._store.caller.keyspace, "")
    sf._store.write(lambda tx: values.put(tx, place, "k", 1, Wish(verify="rm -rf /", imported=True)))
    assert sf.state.set("k", 2).verify_by is None
    assert sf.state.set("k", 2, verify="true").verify_by == sf.agent


# -- code that changes -----------------------------------------------------------------------------------


@dataclass
class Address:
    city: str = ""


@dataclass
class Profile:
    name: str
    mail: str = field(default="", metadata={"was": "email"})
    sentiment: float = 0.0
    address: Address = field(default_factory=Address)


def test_a_tolerant_reader_defaults_renames_and_keeps_what_it_does_not_know(sf: standfast.Standfast) -> None:
    """001-61, 001-79: missing fields default, renamed ones are read from both names, unknown ones are preserved."""
    stored = {"name": "Ada", "email": "a@b", "plan": "gold", "address": {"city": "Rome", "zip": "00100"}}
    sf.state.set("c", stored)
    assert sf.state.get("c", returns=Profile).value == Profile("Ada", "a@b", 0.0, Address("Rome"))
    sf.state.update("c", lambda p: replace(p, sentiment=0.5), returns=Profile)
    assert sf.state.get("c").value == {
        "name": "Ada",
        "mail": "a@b",
        "plan": "gold",
        "sentiment": 0.5,
        "address": {"city": "Rome", "zip": "00100"},
    }
    sf.state.set("bad", {"name": 5})
    with pytest.raises(standfast.InvalidInput, match=r"bad\.name: text is wanted"):
        sf.state.get("bad", returns=Profile)


@dataclass(frozen=True)
class Runtime:
    """The progress of a program, as one typed value."""

    head: str = ""
    decision: int = 0
    bearing: str = "north"
    officer: str | None = None
    gate: str = "closed"
    tests: dict[str, int] = field(default_factory=dict)


def test_many_writers_change_a_typed_record_and_it_is_created_again_when_lost(
    sf: standfast.Standfast,
) -> None:
    """001-17: a typed value is read, changed and written as a whole. A missing value gets its defaults."""

    def change(name: str) -> None:
        def body(now: Runtime) -> Runtime:
            return replace(now, decision=now.decision + 1, tests={**now.tests, name: 5})

        sf.state.update("runtime", body, default=Runtime(head="3f2a91c"), returns=Runtime, attempts_max=200)

    threads = [threading.Thread(target=change, args=(name,)) for name in ("unit", "crash", "soak")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = sf.state.get("runtime", returns=Runtime).value
    assert found == Runtime(head="3f2a91c", decision=3, tests={"unit": 5, "crash": 5, "soak": 5})
    sf.state.delete("runtime")
    change("unit")
    assert sf.state.get("runtime", returns=Runtime).value == Runtime(head="3f2a91c", decision=1, tests={"unit": 5})


BAD: dict[str, Any] = {"true": True, "negative": -1, "text": "1", "huge": 2**63}


@pytest.mark.parametrize("what", BAD)
def test_an_invalid_version_is_refused(sf: standfast.Standfast, what: str) -> None:
    with pytest.raises(standfast.InvalidInput, match="a version is a whole number"):
        sf.state.swap("n", 1, version=BAD[what])


@pytest.mark.parametrize("for_", [0, -1, 10**19, "soon", True])
def test_an_invalid_expiry_is_refused(sf: standfast.Standfast, for_: Any) -> None:
    with pytest.raises(standfast.InvalidInput, match=r"between|not a duration|is a duration"):
        sf.state.set("n", 1, for_=for_)
