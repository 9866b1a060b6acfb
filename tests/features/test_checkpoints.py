"""Checkpoints: a fold saves time. After all of them are deleted, the same state can be computed again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import standfast
from standfast import crash
from standfast.checkpoint import checkpoints
from standfast.checkpoint.checkpoints import Checkpoint, Context, Said
from standfast.errors import InvalidInput, NotFound


@pytest.fixture
def talk(sf: standfast.Standfast) -> standfast.Standfast:
    """A session with thirty messages."""
    with sf.session("talk") as s:
        for n in range(1, 31):
            s.say("user" if n % 2 else "assistant", f"line {n}", key=f"{n}")
    return sf


def join(messages: list[Said]) -> str:
    return " | ".join(f"{message.content}" for message in messages)


def positions(context: Context) -> list[int]:
    return [message.position for message in context.messages]


# -- adding ------------------------------------------------------------------------------------------------


def test_a_checkpoint_names_the_messages_that_it_covers(talk: standfast.Standfast) -> None:
    """002-4, 002-43: summary, cursor, data, prompt cache keys and version pins."""
    made = talk.checkpoints.add(
        "talk",
        20,
        summary="they talked",
        data={"pending": ["tests"]},
        cursor={"file": 7},
        versions={"prompt": "3"},
        cache_keys=["k1", "k2"],
    )
    assert made.replace(id="", session_id="", node_id="", created_us=0, receipt=None) == Checkpoint(
        id="",
        session_id="",
        node_id="",
        from_position=1,
        to_position=20,
        cursor={"file": 7},
        summary="they talked",
        data={"pending": ["tests"]},
        cache_keys=("k1", "k2"),
        versions={"prompt": "3"},
        size_bytes=67,
        created_us=0,
    )
    assert talk.checkpoints.latest("talk") == made.replace(receipt=None)
    assert talk.checkpoints.list() == [made.replace(receipt=None)]
    assert made.receipt is not None
    assert talk.journal.verify(str(made.receipt)).type == "checkpoint.added"


def test_the_context_is_the_newest_fold_and_the_messages_after_it(talk: standfast.Standfast) -> None:
    """003-11: the fold replaces earlier messages by a summary, but the originals stay."""
    whole = talk.checkpoints.context("talk")
    assert (whole.summary, positions(whole), whole.omitted) == (None, list(range(1, 31)), 0)
    talk.checkpoints.add("talk", 10, summary="ten")
    talk.checkpoints.add("talk", 25, summary="twenty-five", cursor=[1])
    context = talk.checkpoints.context("talk")
    assert (context.summary, context.cursor) == ("twenty-five", [1])
    assert context.messages[0] == Said(26, "assistant", "line 26", context.messages[0].occurred_us)
    assert positions(context) == [26, 27, 28, 29, 30]
    with talk.session("talk") as s:
        assert [message.position for message in s.messages(last=100)] == list(range(1, 31))
        assert s.context() == context


def test_a_long_context_is_limited_and_counts_the_omitted_messages(talk: standfast.Standfast) -> None:
    talk.checkpoints.add("talk", 5, summary="five")
    context = talk.checkpoints.context("talk", last=4)
    assert (positions(context), context.omitted) == ([27, 28, 29, 30], 21)
    assert talk.checkpoints.context("talk", last=0).omitted == 25


def test_without_a_position_all_messages_so_far_are_folded(talk: standfast.Standfast) -> None:
    assert talk.checkpoints.add("talk", summary="all").to_position == 30
    with talk.session("talk") as s:
        s.say("user", "one more")
        assert s.checkpoint(summary="and that").to_position == 31
        assert s.context().messages == []


def test_a_node_keeps_its_newest_few(talk: standfast.Standfast) -> None:
    """002-14: folds have their own retention."""
    for n in range(1, 31):
        talk.checkpoints.add("talk", n, summary=str(n))
    kept = [found.to_position for found in talk.checkpoints.list(limit=100)]
    assert kept == list(range(30, 30 - checkpoints.KEPT_PER_NODE, -1))
    page = talk.checkpoints.list(limit=7)
    assert [found.to_position for found in talk.checkpoints.list(limit=100, after=page[-1].id)] == kept[7:]


def test_pins_choose_the_fold(talk: standfast.Standfast) -> None:
    talk.checkpoints.add("talk", 10, summary="old", versions={"prompt": "1", "model": "a"})
    talk.checkpoints.add("talk", 20, summary="new", versions={"prompt": "2", "model": "a"})
    talk.checkpoints.add("talk", 25, summary="bare")

    def chosen(**versions: str) -> str | None:
        found = talk.checkpoints.latest("talk", versions=versions)
        return found.summary if found is not None else None

    assert [chosen(), chosen(prompt="1"), chosen(model="a"), chosen(prompt="2", model="b")] == [
        "bare",
        "old",
        "new",
        None,
    ]
    assert positions(talk.checkpoints.context("talk", versions={"prompt": "1"})) == list(range(11, 31))


def test_bad_folds_are_refused_by_name_and_nothing_is_written(talk: standfast.Standfast) -> None:
    for given, fact in [
        ({"upto": 31}, "nothing was said at position 31: the last one is 30"),
        ({"upto": -1}, "nothing was said at position -1"),
        ({"upto": True}, "nothing was said at position True"),
        ({"summary": 7}, "summary is text, not int"),
        ({"summary": "nul\0"}, "summary: a NUL character"),
        ({"summary": "x" * checkpoints.SIZE_MAX_BYTES, "data": 1}, "the checkpoint has 1,048,577 bytes"),
        ({"data": {"n": float("nan")}}, r"data\.n: NaN"),
        ({"cursor": {1: 2}}, "cursor: key 1 is int"),
        ({"cache_keys": "one"}, "cache_keys is a list"),
        ({"cache_keys": [1]}, "cache_keys is a list"),
        ({"versions": {"a": 1}}, "versions are texts"),
    ]:
        with pytest.raises(InvalidInput, match=fact):
            talk.checkpoints.add("talk", **given)  # type: ignore[arg-type]
    for unknown in ("nope", "ses_" + "0" * 26, "nod_" + "0" * 26):
        with pytest.raises(NotFound):
            talk.checkpoints.add(unknown, 1)
    assert talk.checkpoints.list() == []


# -- folding ---------------------------------------------------------------------------------------------------


def test_a_fold_takes_the_older_messages_and_then_its_own_result(talk: standfast.Standfast) -> None:
    with talk.session("talk") as s:
        first = s.fold(lambda messages: f"{len(messages)} lines from {messages[0].content}", keep_last=20)
        assert first is not None
        assert (first.to_position, first.summary) == (10, "10 lines from line 1")
        second = s.fold(join, keep_last=18)
        assert second is not None
        assert (second.to_position, second.summary) == (12, "10 lines from line 1 | line 11 | line 12")
        third = s.fold(lambda messages: {"seen": [message.role for message in messages]}, keep_last=17)
        assert third is not None
        assert third.data == {"seen": ["summary", "user"]}
        assert s.fold(lambda messages: pytest.fail("there is nothing to fold"), keep_last=17) is None
        assert s.fold(lambda messages: pytest.fail("there is nothing to fold"), keep_last=100) is None
        with pytest.raises(InvalidInput, match="keep_last"):
            s.fold(join, keep_last=-1)


def test_another_version_folds_from_the_originals_again(talk: standfast.Standfast) -> None:
    with talk.session("talk") as s:
        s.fold(lambda messages: "made by 1", versions={"prompt": "1"})
        again = s.fold(join, versions={"prompt": "2"})
        assert again is not None
        assert again.summary is not None
        assert again.summary.startswith("line 1 | line 2 | ")


def test_a_function_that_folds_runs_outside_any_transaction(talk: standfast.Standfast) -> None:
    def busy(messages: list[Said]) -> str:
        talk.decisions.record("written while folding")
        return "folded"

    with talk.session("talk") as s:
        assert s.fold(busy) is not None
        with talk.transaction(), pytest.raises(InvalidInput, match="cannot run inside a transaction"):
            s.fold(busy)
        with pytest.raises(ZeroDivisionError):
            s.fold(lambda messages: 1 // 0, keep_last=0)
    assert [found.summary for found in talk.checkpoints.list()] == ["folded"]


def test_a_fold_reads_a_limited_number_and_continues_at_the_next_call(
    talk: standfast.Standfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "FOLD_MAX", 10)
    monkeypatch.setattr(checkpoints, "_PAGE", 4)
    ends = []
    with talk.session("talk") as s:
        while (made := s.fold(lambda messages: f"{messages[-1].position}", keep_last=3)) is not None:
            ends.append(made.to_position)
    assert ends[-1] == 27
    assert ends == sorted(ends)
    assert len(ends) > 1


def test_sub_agents_have_folds_of_their_own(sf: standfast.Standfast) -> None:
    with sf.session("k") as s:
        reader = s.subagent("reader")
        for n in range(5):
            s.say("user", f"root {n}")
            reader.say("user", f"reader {n}")
        s.checkpoint(3, summary="of the root")
        made = reader.fold(join, keep_last=2)
        assert made is not None
        assert made.summary == "reader 0 | reader 1 | reader 2"
        assert s.context().summary == "of the root"
        assert reader.context().summary == made.summary
        assert sf.checkpoints.context(reader.node_id) == reader.context() == sf.checkpoints.context(reader)


def test_a_fork_uses_its_parents_folds_up_to_the_cut(sf: standfast.Standfast) -> None:
    with sf.session("parent") as s:
        for n in range(1, 13):
            s.say("user", f"line {n}")
        s.checkpoint(4, summary="four")
    fork = sf.sessions.fork("parent", "fork", at=8)
    with sf.session("parent") as s:
        s.checkpoint(10, summary="ten")
    assert fork.cut_position == 8
    context = sf.checkpoints.context("fork")
    assert (context.summary, positions(context)) == ("four", [5, 6, 7, 8])
    with sf.session("fork") as s:
        s.say("user", "another way")
        made = s.fold(join, keep_last=1)
        assert made is not None
        assert made.summary == "four | line 5 | line 6 | line 7 | line 8"
        assert positions(s.context()) == [9]
    assert sf.checkpoints.context("parent").summary == "ten"


# -- deletable ---------------------------------------------------------------------------------------------------


def test_without_any_checkpoint_everything_still_resumes(sf: standfast.Standfast) -> None:
    """002-5: the state is reconstructed from the record."""
    acted: list[str] = []

    def make_plan() -> list[str]:
        acted.append("plan")
        return ["a", "b"]

    def act(call: standfast.Call) -> str:
        acted.append(call.intent["task"])
        return "ok"

    def program() -> tuple[object, ...]:
        with sf.session("work", agent="coder") as s:
            plan = s.step("plan", make_plan)
            for task in plan:
                with s.decide(f"do {task}", then="act"):
                    s.effect("world.act", {"task": task}, do=act)
                s.say("assistant", f"did {task}", key=task)
            s.state["done"] = len(plan)
            s.cursor = "end"
            s.fold(join, keep_last=0, cursor={"at": "end"})
            said = [(message.position, message.content) for message in s.messages()]
            return plan, said, s.state["done"], s.cursor, s.resumed is not None and s.resumed.steps

    def recorded() -> list[object]:
        tables = ("session", "node", "message", "step", "effect", "decision", "state")
        skipped = {"updated_us", "ended_us", "openings", "fence"}
        return [
            sorted(str({k: v for k, v in row.items() if k not in skipped}) for row in sf.rows(f"SELECT * FROM {table}"))
            for table in tables
        ]

    first = program()
    before = recorded()
    assert len(sf.checkpoints.list()) == 1
    assert sf.checkpoints.delete_all() == 1
    assert sf.checkpoints.list() == []
    assert recorded() == before
    second = program()
    assert first[:-1] == second[:-1]
    assert acted == ["plan", "a", "b"]
    assert sf.checkpoints.context("work").summary == "did a | did b"
    assert [event.summary for event in sf.journal.about("checkpoint:all")] == ["1 checkpoints"]


def test_delete_removes_only_the_named_checkpoints(engine_url: str, tmp_path: Path) -> None:
    from standfast import config, handle

    def opened(scope: str) -> standfast.Standfast:
        return handle.connect(config.load(engine_url, data_dir=tmp_path / "data", scope=scope))

    with opened("here") as here, opened("there") as there:
        for sf in (here, there):
            for key in ("a", "b"):
                with sf.session(key) as s:
                    s.say("user", "x")
                    s.checkpoint(summary=key)
        assert here.checkpoints.delete_all("a") == 1
        assert here.checkpoints.delete_all() == 1
        assert here.checkpoints.delete_all() == 0
        assert [found.summary for found in there.checkpoints.list()] == ["b", "a"]
        assert len(here.checkpoints.list(everywhere=True)) == 2
        assert here.checkpoints.delete_all(everywhere=True) == 2
        with pytest.raises(NotFound):
            here.checkpoints.delete_all("nope")


@pytest.mark.parametrize("point", [name for name in crash.POINTS if name.startswith("checkpoint.")])
def test_killed_around_a_checkpoint_the_next_run_ends_the_same(tmp_path: Path, point: str) -> None:
    code = """
import sys, standfast
with standfast.open(sys.argv[1]) as sf, sf.session("k") as s:
    for n in range(20):
        s.say("user", f"line {n}", key=str(n))
    s.fold(lambda messages: str(len(messages)), keep_last=5)
    print(len(s.messages(last=100)), s.context().checkpoint.to_position)
"""
    command = [sys.executable, "-c", code, str(tmp_path / "standfast.db")]
    killed = subprocess.run(command, env={**os.environ, "STANDFAST_CRASH_AT": point})
    assert killed.returncode == -signal.SIGKILL
    assert subprocess.run(command, capture_output=True, text=True).stdout == "20 15\n"


def test_on_an_event_loop_a_coroutine_may_fold(engine_url: str, tmp_path: Path) -> None:
    import asyncio

    async def fold(messages: list[Said]) -> str:
        await asyncio.sleep(0)
        return join(messages)

    async def work() -> str | None:
        async with standfast.aopen(engine_url, data_dir=tmp_path / "data") as sf, sf.session("k") as s:
            for n in range(4):
                await s.say("user", f"line {n}")
            await s.fold(fold, keep_last=2)
            context: Context = await sf.checkpoints.context("k")
            return context.summary

    assert asyncio.run(work()) == "line 0 | line 1"
