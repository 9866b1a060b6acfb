"""Conversations: items of agent frameworks are stored as the messages of a session."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import standfast
from standfast import modules
from standfast.errors import Conflict, InvalidInput, NotFound
from standfast.record.conversations import BATCH_MAX, Conversations, line
from standfast_prove.faults.children import Nursery


def said(*items: Any, redact: bool = True) -> list[Any]:
    return [line(item, role="user", summary=str(item), redact=redact) for item in items]


@pytest.fixture
def talks(sf: standfast.Standfast) -> Conversations:
    return Conversations(sf._store)


def test_items_are_returned_in_order_and_a_limit_reads_only_the_last(talks: Conversations) -> None:
    """001-47: the last N messages, without reading the rest."""
    assert talks.items("a") == []
    assert talks.add("a", said({"n": 1}, {"n": 2})) == [1, 2]
    assert talks.add("a", said({"n": 3})) == [3]
    assert talks.items("a") == [{"n": 1}, {"n": 2}, {"n": 3}]
    assert talks.items("a", last=2) == [{"n": 2}, {"n": 3}]
    assert talks.items("a", last=0) == []
    assert talks.items("b") == []


def test_more_items_than_the_limit_are_refused_and_leave_no_session(
    sf: standfast.Standfast, talks: Conversations
) -> None:
    """RULES §1: an error that is raised after a write rolls the write back."""
    with pytest.raises(InvalidInput, match="the limit is"):
        talks.add("a", said("x") * (BATCH_MAX + 1))
    with pytest.raises(NotFound):
        sf.sessions.get("a")


def test_a_removed_item_stays_in_the_store_and_is_marked(sf: standfast.Standfast, talks: Conversations) -> None:
    talks.add("a", said({"n": 1}, {"n": 2}))
    assert talks.take_back("a") == ({"n": 2},)
    talks.add("a", said({"n": 3}))
    assert talks.items("a") == [{"n": 1}, {"n": 3}]
    assert [talks.take_back("a"), talks.take_back("a"), talks.take_back("a")] == [({"n": 3},), ({"n": 1},), None]
    kept = sf.sessions.messages("a")
    assert [m.content for m in kept] == [{"n": 1}, {"n": 2}, {"n": 3}]
    assert all(m.retracted_us is not None for m in kept)
    types = [event.type for event in sf.journal.tail(limit=100).events]
    assert types.count("message.said") == types.count("message.retracted") == 3


def test_a_cleared_conversation_starts_empty_and_its_old_items_are_not_read(
    sf: standfast.Standfast, talks: Conversations
) -> None:
    talks.clear("a")
    talks.add("a", said(*range(50)))
    talks.clear("a")
    talks.clear("a")
    assert (talks.items("a"), talks.take_back("a")) == ([], None)
    talks.add("a", said("again"))
    assert talks.items("a") == ["again"]
    session = sf.sessions.get("a")
    assert sf.state.get("conversation.cleared", namespace=session.id).value == 51
    assert [event.type for event in sf.journal.about(session.id)] == ["session.opened", "session.cleared"]


def test_values_that_our_json_cannot_encode_are_returned_unchanged(
    sf: standfast.Standfast, talks: Conversations
) -> None:
    deep: Any = "end"
    for _ in range(100):
        deep = [deep]
    odd = [{"output": "a\x00b"}, {"half": "\ud800"}, {"big": 2**70}, {"deep": deep}, {"inf": float("inf")}]
    talks.add("a", said(*odd))
    assert talks.items("a") == odd
    assert sf.search("output", everywhere=True) is not None, "the search is not hurt by any of them"
    for bad in ({1, 2}, {"a": object()}):
        with pytest.raises(InvalidInput):
            said(bad)


def test_secrets_are_removed_before_items_are_stored(talks: Conversations) -> None:
    """Secrets of well-known shape do not reach the store."""
    token = "ghp_" + "a1B2" * 10
    talks.add("a", said({"output": f"token {token}"}))
    assert talks.items("a") == [{"output": "token [redacted:github]"}]


def test_a_fork_shares_the_past_and_neither_changes_the_other(sf: standfast.Standfast, talks: Conversations) -> None:
    """The fork reads the items before the cut without a copy."""
    talks.add("a", said(1, 2, 3))
    talks.take_back("a")
    sf.sessions.fork("a", "b")
    talks.add("b", said("b"))
    sf.sessions.fork("b", "c")
    talks.take_back("a")
    talks.add("a", said("a"))
    assert talks.items("a") == [1, "a"]
    assert talks.items("b") == [1, 2, "b"] == talks.items("c")
    talks.clear("a")
    assert (talks.items("a"), talks.items("c", last=2)) == ([], [2, "b"])
    assert talks.take_back("b") == ("b",)
    assert talks.items("c") == [1, 2, "b"]
    with pytest.raises(Conflict, match="belongs to its parent"):
        talks.take_back("b")
    talks.clear("b")
    talks.add("b", said("new"))
    assert (talks.items("b"), talks.items("c")) == (["new"], [1, 2, "b"])


def test_a_conversation_is_the_session_of_its_key(sf: standfast.Standfast, talks: Conversations) -> None:
    """The session is an ordinary one: it can be opened, continued, listed and shown."""
    talks.add("fix-42", said({"role": "user", "content": "please"}))
    record = sf.sessions.get("fix-42")
    assert (record.state, record.openings, record.crashed) == ("completed", 0, False)
    with sf.session("fix-42") as s:
        assert s.step("plan", lambda: 1) == 1
        s.say("assistant", {"n": 2})
        s.say("user", "1,2")
    told = {"role": "user", "content": "1,2"}
    assert talks.items(record.id) == [{"role": "user", "content": "please"}, {"n": 2}, told]
    assert talks.take_back(record.id) == (told,)
    with pytest.raises(NotFound):
        talks.add("ses_" + "0" * 26, said(1))
    for bad in ("", "a\nb", "x" * 600):
        with pytest.raises(InvalidInput):
            talks.items(bad)


def test_each_item_is_taken_back_by_one(talks: Conversations) -> None:
    """001-72: eight threads take items back; no item is returned twice."""
    from concurrent.futures import ThreadPoolExecutor

    talks.add("a", said(*range(40)))
    with ThreadPoolExecutor(8) as threads:
        taken = list(threads.map(lambda _: talks.take_back("a"), range(48)))
    assert sorted(one[0] for one in taken if one is not None) == list(range(40))
    assert taken.count(None) == 8


def crowd(url: str, data: str, number: int, times: int) -> None:
    """Append batches of three items in a child process."""
    with standfast.open(url, data_dir=data) as sf:
        for n in range(times):
            Conversations(sf._store).add("shared", said(*([number, n, part] for part in range(3))))


def test_eight_processes_lose_nothing_and_split_no_batch(engine_url: str, tmp_path: Path) -> None:
    """001-72: concurrent appends lose no batch and mix no two batches."""
    data, times = str(tmp_path / "data"), 15
    asked: dict[str, object] = {"url": engine_url, "data": data, "times": times}
    with Nursery() as nursery:
        pids = nursery.race("tests.features.test_conversations:crowd", [asked | {"number": n} for n in range(8)])
        assert [nursery.wait(pid, 120) for pid in pids] == [0] * 8
    with standfast.open(engine_url, data_dir=data) as sf:
        items = Conversations(sf._store).items("shared")
    batches = [items[n : n + 3] for n in range(0, len(items), 3)]
    assert all([part for _, _, part in batch] == [0, 1, 2] for batch in batches), "no batch is split"
    assert sorted((a, b) for (a, b, _), *_ in batches) == [(a, b) for a in range(8) for b in range(times)]
    for number in range(8):
        assert [b for (a, b, _), *_ in batches if a == number] == list(range(times)), "each process's own order"


def test_the_core_needs_no_framework() -> None:
    """Importing standfast never imports a framework."""
    import subprocess

    code = "import standfast, standfast.record.conversations, sys; print([m for m in NAMES if m in sys.modules])"
    names = "NAMES = ['agents', 'pydantic_ai', 'langgraph', 'openai', 'pydantic']\n"
    done = subprocess.run([sys.executable, "-c", names + code], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.parametrize(
    ("module", "package", "extra"),
    [("openai_agents", "agents", "openai-agents"), ("pydantic_ai", "pydantic_ai", "pydantic-ai")],
)
def test_a_missing_extra_names_the_pip_command(module: str, package: str, extra: str) -> None:
    """The message has the exact command."""
    import subprocess

    code = f"import sys\nsys.modules[{package!r}] = None\nimport standfast.adapters.{module}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert modules.install(extra) in done.stderr
