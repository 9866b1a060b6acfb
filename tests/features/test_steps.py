"""Steps: one run for a name and its arguments, typed results, and an error where numbering could race."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import enum
import functools
import pathlib
import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pydantic
import pytest

import standfast
from standfast import crash
from standfast.clock import ManualClock


@dataclasses.dataclass(frozen=True)
class Plan:
    title: str
    files: list[pathlib.PurePosixPath]
    due: datetime.date | None = None


class Review(pydantic.BaseModel):
    score: float
    at: datetime.datetime


class Colour(enum.Enum):
    RED = "red"


class Pair(NamedTuple):
    left: int
    right: str


ran: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_ran_yet() -> None:
    ran.clear()


def plan(issue: str, *, strict: bool = False) -> Plan:
    ran.append(issue)
    return Plan(f"fix {issue}", [pathlib.PurePosixPath("src/a.py")], datetime.date(2026, 11, 15))


def test_a_step_runs_once_and_answers_ever_after(sf: standfast.Standfast) -> None:
    """001-58: an expensive intermediate result is computed once."""
    wanted = Plan("fix 42", [pathlib.PurePosixPath("src/a.py")], datetime.date(2026, 11, 15))
    for _ in range(3):
        with sf.session("k") as s:
            assert s.step("plan", plan, "42") == wanted
    assert ran == ["42"]


def test_a_step_is_known_by_its_name_and_its_arguments(sf: standfast.Standfast) -> None:
    with sf.session("k") as s:
        s.step("plan", plan, "a")
        s.step("plan", plan, "b")
        s.step("plan", plan, "a", strict=True)
        s.step("again", plan, "a")
    assert ran == ["a", "b", "a", "a"]
    with sf.session("k") as s:
        s.step("again", plan, "a")
        s.step("plan", plan, "a", strict=True)
        s.step("plan", plan, "b")
        s.step("plan", plan, "a")
        assert len(ran) == 4
        s.step("plan", plan, "c")
    assert len(ran) == 5


def test_a_repeat_in_one_opening_is_number_two_in_order(sf: standfast.Standfast) -> None:
    def roll() -> int:
        ran.append("roll")
        return len(ran)

    for _ in range(2):
        with sf.session("k") as s:
            assert [s.step("roll", roll) for _ in range(3)] == [1, 2, 3]
    assert len(ran) == 3
    with sf.session("k") as s:
        assert [s.step("roll", roll) for _ in range(4)] == [1, 2, 3, 4]
    rows = list(sf.rows("SELECT name, n FROM step ORDER BY n"))
    assert rows == [{"name": "roll", "n": n} for n in (1, 2, 3, 4)]


def test_the_steps_of_a_sub_agent_are_its_own(sf: standfast.Standfast) -> None:
    for _ in range(2):
        with sf.session("k") as s:
            s.step("plan", plan, "a")
            s.subagent("one").step("plan", plan, "a")
            s.subagent("two").step("plan", plan, "a")
            s.subagent("two").subagent("one").step("plan", plan, "a")
    assert len(ran) == 4


def test_an_exception_records_nothing_and_the_next_try_is_the_same_step(sf: standfast.Standfast) -> None:
    def flaky() -> str:
        ran.append("try")
        if len(ran) < 3:
            raise OSError("no network")
        return "there"

    with sf.session("k") as s:
        for _ in range(2):
            with pytest.raises(OSError, match="no network"):
                s.step("fetch", flaky)
        assert s.step("fetch", flaky) == "there"
    with sf.session("k") as s:
        assert s.step("fetch", flaky) == "there"
        assert s.resumed is not None
        assert s.resumed.steps == 1
    assert len(ran) == 3


VALUES: dict[str, tuple[Any, Any]] = {
    "none": (None, None),
    "text": ("ünï\n", None),
    "numbers": ([1, 1.5, -(2**63), True], None),
    "nested": ({"a": {"b": [None]}}, None),
    "dataclass": (Plan("t", [pathlib.PurePosixPath("a")]), Plan),
    "list of dataclass": ([Plan("t", [])], list[Plan]),
    "pydantic": (Review(score=1, at=datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)), Review),
    "optional": (None, Plan | None),
    "enum": (Colour.RED, Colour),
    "named tuple": (Pair(1, "b"), Pair),
    "datetime": (datetime.datetime(2026, 1, 1, 3, tzinfo=datetime.UTC), datetime.datetime),
    "path": (pathlib.PurePosixPath("a/b"), pathlib.PurePosixPath),
    "uuid": (uuid.UUID(int=7), uuid.UUID),
    "dict of models": ({"a": Plan("t", [])}, dict[str, Plan]),
}


@pytest.mark.parametrize("kind", VALUES)
def test_a_typed_result_is_the_same_on_the_first_run_and_on_replay(kind: str, tmp_path: Path) -> None:
    """Decision 10: the return value is decoded from the stored text, also on the first run."""
    value, annotation = VALUES[kind]

    def make() -> Any:
        return value

    make.__annotations__["return"] = annotation
    with standfast.open(tmp_path / "db") as sf:
        for name, how in (("annotated", {}), ("given", {"returns": annotation})):
            function = make if name == "annotated" else lambda: value
            for _ in range(2):
                with sf.session("k") as s:
                    found = s.step(name, function, **how)
                    assert found == value
                    assert type(found) is type(value)


def test_without_an_annotation_the_result_is_plain_the_first_time_too(sf: standfast.Standfast) -> None:
    for _ in range(2):
        with sf.session("k") as s:
            assert s.step("plan", lambda: Plan("t", [])) == {"title": "t", "files": [], "due": None}
            assert s.step("tuple", lambda: (1, 2)) == [1, 2]


def test_a_function_with_a_parameter_of_that_name_keeps_it(sf: standfast.Standfast) -> None:
    def ask(returns: str) -> str:
        return returns + "!"

    with sf.session("k") as s:
        assert s.step("ask", ask, returns="yes") == "yes!"


def test_a_stored_result_that_no_longer_fits_is_named(sf: standfast.Standfast) -> None:
    with sf.session("k") as s:
        s.step("plan", lambda: {"title": 7, "files": []})
        s.step("n", lambda: 1)
    with sf.session("k") as s:
        for _ in range(2):  # it is the same step each time, not #2
            with pytest.raises(standfast.InvalidInput, match=r"the result of step 'plan'\.title: text is wanted"):
                s.step("plan", lambda: pytest.fail("it is recorded"), returns=Plan)
        assert s.step("plan", lambda: None, returns=dict) == {"title": 7, "files": []}
        assert s.step("n", lambda: 2) == 1


BAD_RESULTS: dict[str, tuple[Any, str]] = {
    "nan": ({"a": [float("nan")]}, r"the result of step 'bad'\.a\[0\]: NaN is not JSON"),
    "nul": ("\0", "the result of step 'bad': a NUL character"),
    "surrogate": (["\ud800"], r"the result of step 'bad'\[0\]: a lone surrogate"),
    "object": (object(), "the result of step 'bad': object is not a value"),
    "set": ({1}, r"write sorted\(value\)"),
    "keys": ({1: 2}, "key 1 is int, not a string"),
}


@pytest.mark.parametrize("kind", BAD_RESULTS)
def test_a_result_that_cannot_be_stored_is_refused_by_name(sf: standfast.Standfast, kind: str) -> None:
    value, wanted = BAD_RESULTS[kind]
    with sf.session("k") as s:
        with pytest.raises(standfast.InvalidInput, match=wanted):
            s.step("bad", lambda: value)
        assert s.step("bad", lambda: "good") == "good"
    assert next(sf.rows("SELECT count(*) AS n FROM step"))["n"] == 1


def test_a_result_that_does_not_fit_its_own_annotation_is_not_recorded(sf: standfast.Standfast) -> None:
    def wrong() -> int:
        return "seven"  # type: ignore[return-value]

    with sf.session("k") as s:
        with pytest.raises(standfast.InvalidInput, match="the result of step 'n': an integer is wanted, found text"):
            s.step("n", wrong)
        assert s.step("n", lambda: 7) == 7


def test_arguments_without_a_plain_form_are_named_with_the_alternative(sf: standfast.Standfast) -> None:
    def use(client: object, issue: str) -> str:
        return issue

    with sf.session("k") as s:
        with pytest.raises(standfast.InvalidInput, match="step 'use', argument 1: object is not") as caught:
            s.step("use", use, object(), "42")
        assert "functools.partial" in caught.value.hint
        with pytest.raises(standfast.InvalidInput, match="step 'use', argument issue: NaN"):
            s.step("use", use, "c", issue=float("nan"))  # type: ignore[arg-type]
        assert s.step("use", functools.partial(use, object()), "42") == "42"
    with sf.session("k") as s:
        assert s.step("use", functools.partial(use, pytest), "42") == "42"
        assert s.resumed is not None
        assert s.resumed.steps == 1


@pytest.mark.parametrize("name", ["", "x" * 201, "a\0", "a\nb"])
def test_a_bad_name_is_refused(sf: standfast.Standfast, name: str) -> None:
    with sf.session("k") as s, pytest.raises(standfast.InvalidInput, match="a step's name"):
        s.step(name, lambda: 1)


def test_two_at_once_of_one_name_and_arguments_are_refused(sf: standfast.Standfast) -> None:
    inside, go = threading.Event(), threading.Event()

    def slow(n: int) -> int:
        inside.set()
        go.wait()
        return n

    with sf.session("k") as s:
        first = threading.Thread(target=lambda: s.step("slow", slow, 1))
        first.start()
        inside.wait()
        with pytest.raises(standfast.InProgress, match="step 'slow' with these arguments is running already"):
            s.step("slow", slow, 1)
        go.set()
        assert s.step("slow", slow, 2) == 2
        first.join()
        assert s.step("slow", lambda n: 10 * n, 1) == 10  # and this is #2
        with pytest.raises(standfast.InProgress):
            s.step("self", lambda: s.step("self", lambda: 1))


def test_steps_of_other_arguments_run_side_by_side(sf: standfast.Standfast) -> None:
    together = threading.Barrier(8)

    def meet(n: int) -> int:
        together.wait(30)
        return n

    found: list[int] = []
    with sf.session("k") as s:
        threads = [threading.Thread(target=lambda n=n: found.append(s.step("meet", meet, n))) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(found) == list(range(8))


def test_a_step_is_refused_inside_a_transaction_before_it_runs(sf: standfast.Standfast) -> None:
    with sf.session("k") as s:
        with sf.transaction(), pytest.raises(standfast.InvalidInput, match="step cannot run inside a transaction"):
            s.step("plan", plan, "a")
        assert ran == []
        assert s.step("plan", plan, "a").title == "fix a"


def test_an_async_function_needs_the_async_store(sf: standfast.Standfast) -> None:
    async def fetch() -> int:
        return 1

    with sf.session("k") as s, pytest.raises(standfast.InvalidInput, match=r"fetch is async.*\n.*aopen"):
        s.step("fetch", fetch)


def test_async_steps_are_awaited_and_answer_from_the_record(engine_url: str, tmp_path: Path) -> None:
    async def fetch(n: int) -> Plan:
        ran.append("fetch")
        await asyncio.sleep(0)
        return Plan(str(n), [])

    async def main() -> None:
        for _ in range(2):
            async with standfast.aopen(engine_url, data_dir=tmp_path / "data") as sf, sf.session("k") as s:
                found = await asyncio.gather(*(s.step("fetch", fetch, n) for n in range(20)))
                assert found == [Plan(str(n), []) for n in range(20)]

    asyncio.run(main())
    assert len(ran) == 20


def test_a_job_from_files_to_files_needs_no_coordination(sf: standfast.Standfast, tmp_path: Path) -> None:
    """001-5: steps that depend only on their input run in parallel. A repeated call returns the stored result."""
    for n in range(6):
        (tmp_path / f"{n}.in").write_text(f"line {n % 3}")

    def convert(text: str) -> str:
        ran.append(text)
        return text.upper()

    def job(n: int) -> None:
        with sf.session(f"job {n}") as s:
            (tmp_path / f"{n}.out").write_text(s.step("convert", convert, (tmp_path / f"{n}.in").read_text()))

    for _ in range(2):
        threads = [threading.Thread(target=job, args=(n,)) for n in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [(tmp_path / f"{n}.out").read_text() for n in range(6)] == [f"LINE {n % 3}" for n in range(6)]
    assert sorted(ran) == sorted(f"line {n % 3}" for n in range(6))


def test_a_large_result_is_stored_as_an_artifact(sf: standfast.Standfast) -> None:
    """002-25, 002-32: large values are stored apart from hot rows."""
    large = {"text": "é" * 1_000_000}
    for _ in range(2):
        with sf.session("k") as s:
            assert s.step("large", lambda: (ran.append("x"), large)[1]) == large
    assert ran == ["x"]
    row = next(sf.rows("SELECT result, artifact_id FROM step"))
    assert row["result"] is None
    assert row["artifact_id"].startswith("art_")


def test_a_step_that_another_process_recorded_meanwhile_returns_its_result(
    sf: standfast.Standfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The INSERT decides which process records the result, not an earlier read."""
    with sf.session("k") as s:
        s.step("n", lambda: "first")
    with sf.session("k") as s:
        monkeypatch.setattr(s.steps, "_unseen", 0)
        assert s.step("n", lambda: "second") == "first"


def test_one_step_is_one_commit_and_one_sync(tmp_path: Path) -> None:
    """Decision 5: a step is acknowledged after one sync."""
    with standfast.open(tmp_path / "db") as sf, sf.session("k") as s:
        with crash.record() as passed:
            s.step("plan", plan, "a")
        assert passed.count("commit.after_sync") == passed.count("commit.before_begin") == 1
    with standfast.open(tmp_path / "db") as sf, sf.session("k") as s:
        with crash.record() as passed:
            s.step("plan", plan, "a")
        assert passed == []  # a stored result is returned without a write


def test_a_hit_younger_than_a_second_is_synced_before_it_is_returned(engine_url: str, tmp_path: Path) -> None:
    """RULES 1: no caller acts on a visible row that is not yet durable."""
    clock = ManualClock()
    with standfast.open(engine_url, data_dir=tmp_path / "data", clock=clock) as sf:
        with sf.session("k") as s:
            s.step("plan", plan, "a")
        synced: list[int] = []
        sync: Callable[[], None] = sf._store.sync

        def counted() -> None:
            synced.append(1)
            sync()

        sf._store.sync = counted  # type: ignore[method-assign]
        for wait, wanted in (("999ms", 1), ("1ms", 1), ("1h", 1)):
            clock.advance(wait)
            with sf.session("k") as s:
                s.step("plan", plan, "a")
            assert len(synced) == wanted


def test_what_a_step_leaves_in_the_journal(sf: standfast.Standfast) -> None:
    with sf.session("k") as s:
        s.step("roll", lambda: 1)
        s.step("roll", lambda: 2)
    told = [(e.type, e.summary, e.session_id) for e in sf.journal.tail().events if e.type.startswith("step")]
    assert told == [("step.recorded", "'roll'", s.id), ("step.recorded", "'roll' #2", s.id)]
