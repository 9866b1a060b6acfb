"""Events: the caller's own streams in the journal. No event is ever changed."""

from __future__ import annotations

import asyncio
import re
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import standfast
from standfast import config, handle, when
from standfast.clock import ManualClock
from standfast.errors import InvalidInput, KeyConflict, NotFound, VersionConflict
from standfast.record.events import Event, models, upcasted

ROOT = Path(__file__).resolve().parents[2]


def count(state: dict[str, int], event: Event) -> dict[str, int]:
    return {**state, event.type: state.get(event.type, 0) + 1}


def at_clock(url: str, data: Path) -> tuple[standfast.Standfast, ManualClock]:
    clock = ManualClock()
    return handle.connect(config.load(url, data_dir=data), clock=clock), clock


# -- appending ---------------------------------------------------------------------------------------------


def test_versions_count_from_one_in_each_stream(sf: standfast.Standfast) -> None:
    """001-71: append, then replay in order."""
    orders = [sf.events.append("orders", "placed", {"id": n}).version for n in range(3)]
    assert orders == [1, 2, 3]
    assert sf.events.append("invoices", "sent").version == 1
    assert [(event.version, event.data) for event in sf.events.read("orders")] == [(n + 1, {"id": n}) for n in range(3)]
    assert [(stream.name, stream.version) for stream in sf.events.streams()] == [("invoices", 1), ("orders", 3)]
    assert sf.events.stream("orders").version == 3


def test_an_event_has_time_actor_type_and_stream(sf: standfast.Standfast) -> None:
    """001-15: date, time, type, agent, commit, ref, summary, backrefs."""
    data = {"commit": "3f2a91c", "ref": "PR 42", "backrefs": ["deck", 7]}
    appended = sf.events.append("log", "deployed", data, summary="1.2 is out", occurred=when.utc(5))
    event = sf.events.get("log", 1)
    assert (event.type, event.data, event.summary, event.agent) == ("deployed", data, "1.2 is out", sf.agent)
    assert (event.occurred_us, event.time_us, event.source) == (5, appended.time_us, "said")
    assert appended.receipt is not None
    assert sf.journal.verify(str(appended.receipt)) == event


def test_a_log_of_what_controls_caught_is_a_stream(sf: standfast.Standfast) -> None:
    """001-18: time, control, finding, actor, outcome and notes. The stream is append-only."""
    caught = [("review", "a force push", "held"), ("ci", "a flaky test", "task opened"), ("review", "a secret", "held")]
    for control, what, outcome in caught:
        data = {"control": control, "outcome": outcome, "notes": "seen in the diff"}
        sf.events.append("controls", f"caught.{control}", data, summary=what)
    found = sf.events.list("controls", type="caught.review", since=when.utc(0)).events
    assert sorted((event.summary, event.data["outcome"]) for event in found) == [
        ("a force push", "held"),
        ("a secret", "held"),
    ]
    assert all(event.agent == sf.agent and event.time_us > 0 and event.data["notes"] for event in found)
    assert [event.summary for event in sf.events.read("controls")] == [what for _, what, _ in caught]


def test_an_expected_version_that_is_not_there_is_refused_and_the_one_there_is_named(sf: standfast.Standfast) -> None:
    sf.events.append("orders", "placed", expected_version=0)
    with pytest.raises(VersionConflict, match="at version 1, not 0"):
        sf.events.append("orders", "placed", expected_version=0)
    with pytest.raises(VersionConflict, match="at version 1, not 7"):
        sf.events.append("orders", "placed", expected_version=7)
    assert sf.events.append("orders", "paid", expected_version=1).version == 2
    with pytest.raises(VersionConflict, match="at version 0, not 3"):
        sf.events.append("nothing", "placed", expected_version=3)
    assert [stream.name for stream in sf.events.streams()] == ["orders"]
    assert list(sf.rows("SELECT name FROM stream")) == [{"name": "orders"}]


def test_many_are_appended_together_or_not_at_all(sf: standfast.Standfast) -> None:
    made = sf.events.append_many("orders", [("placed", {"id": 1}), {"type": "paid", "summary": "cash"}])
    assert [one.version for one in made] == [1, 2]
    with pytest.raises(InvalidInput):
        sf.events.append_many("orders", [("placed", 1), ("placed", float("nan"))])
    with pytest.raises(VersionConflict):
        sf.events.append_many("orders", [("placed", 1), ("placed", 2)], expected_version=1)
    with suppress(RuntimeError), sf.transaction() as tx:
        tx.events.append_many("orders", [("placed", 1), ("placed", 2)])
        raise RuntimeError
    assert sf.events.stream("orders").version == 2
    with pytest.raises(InvalidInput, match="no event"):
        sf.events.append_many("orders", [])
    with pytest.raises(InvalidInput, match="limit"):
        sf.events.append_many("orders", [("x", None)] * 1001)


def test_one_key_appends_once(sf: standfast.Standfast) -> None:
    first = sf.events.append_many("orders", [("placed", {"n": 1}), ("paid", None)], key="req-1")
    again = sf.events.append_many("orders", [("placed", {"n": 1}), ("paid", None)], key="req-1")
    assert [one.version for one in again] == [one.version for one in first] == [1, 2]
    assert [one.receipt for one in again] == [None, None]
    for other in ([("placed", {"n": 2}), ("paid", None)], [("placed", {"n": 1})]):
        with pytest.raises(KeyConflict, match="version 1"):
            sf.events.append_many("orders", other, key="req-1")
    assert sf.events.append("invoices", "placed", {"n": 1}, key="req-1").version == 1  # of another stream
    # A retried call finds its first event, even if later events were appended to the stream.
    sf.events.append("orders", "shipped")
    assert sf.events.append_many("orders", first_of(first), key="req-1", expected_version=0)[0].version == 1


def first_of(_: object) -> list[tuple[str, Any]]:
    return [("placed", {"n": 1}), ("paid", None)]


def test_types_of_standfast_are_refused(sf: standfast.Standfast) -> None:
    for type in ("task.closed", "effect.acknowledged", "session.opened"):
        with pytest.raises(InvalidInput, match="standfast itself"):
            sf.events.append("orders", type)
    assert sf.events.append("orders", "tasks.closed").version == 1
    assert sf.events.append("orders", "task").version == 2


def test_every_type_we_write_is_reserved() -> None:
    written = set()
    package = ROOT / "src" / "standfast"
    for path in package.rglob("*.py"):
        written |= set(re.findall(r'"([a-z_]+)\.(?:[a-z]+ed|[a-z_]+)"', _calls(path.read_text())))
    assert "task" in written
    assert written - {"standfast"} <= models.OURS


def _calls(text: str) -> str:
    """The first lines of the calls that write into the journal."""
    return "\n".join(re.findall(r"journal\.append\(\s*tx,\s*[^,]+", text))


def test_an_invalid_event_is_refused(sf: standfast.Standfast) -> None:
    garbage: list[tuple[Any, Any, Any]] = [
        ("", "x", None),
        ("a\nb", "x", None),
        ("s" * 201, "x", None),
        ("s", "", None),
        ("s", "t" * 201, None),
        ("s", "x", {1, 2}),
        ("s", "x", "\x00"),
        ("s", "x", {"n": 2**64}),
        (7, "x", None),
        ("s", None, None),
    ]
    for stream, type, data in garbage:
        with pytest.raises(InvalidInput):
            sf.events.append(stream, type, data)
    assert sf.events.streams() == []


def test_the_longest_names_fit_in_any_script(sf: standfast.Standfast) -> None:
    stream, key = "".join(chr(0x1F300 + n) for n in range(200)), "".join(chr(0x1F400 + n) for n in range(200))
    sf.events.append(stream, "".join(chr(0x1F500 + n) for n in range(200)), key=key)
    assert sf.events.append(stream, "".join(chr(0x1F500 + n) for n in range(200)), key=key).receipt is None


def test_no_method_changes_an_event_and_sql_cannot_either(sf: standfast.Standfast, tmp_path: Path) -> None:
    """001-75: old events are immutable."""
    sf.events.append("orders", "placed", {"id": 1})
    public = {name for name in dir(sf.events) if not name.startswith("_")}
    assert not public & {"update", "edit", "set", "delete", "remove", "replace", "put"}
    if sf.engine.name == "sqlite":
        import sqlite3  # in its own process, because two SQLite libraries on one file in one process would lose locks
        import subprocess
        import sys

        assert sqlite3.sqlite_version
        change = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute(\"UPDATE event SET type = 'forged'\")"
        path = sf.settings.target.location
        forged = subprocess.run([sys.executable, "-c", change, path], capture_output=True, text=True)
        assert forged.returncode == 1
        assert "standfast_writer" in forged.stderr or "no such function" in forged.stderr
    assert sf.events.get("orders", 1).type == "placed"


# -- reading -------------------------------------------------------------------------------------------------


def test_each_page_of_events_begins_after_the_last_one(sf: standfast.Standfast) -> None:
    sf.events.append_many("orders", [(f"t{n % 3}", n) for n in range(10)])
    for asked in ({"stream": "orders"}, {"since": "@0"}, {"stream": "orders", "since": "@0"}, {}):
        for type in (None, "t1"):
            seen: list[Any] = []
            after = None
            while True:
                page = sf.events.list(**asked, type=type, limit=2, after=after)
                seen += [event.data for event in page.events]
                if (after := page.next) is None:
                    break
            assert seen == [n for n in range(10) if type is None or n % 3 == 1]
    assert [event.data for event in sf.events.list("orders", newest=True, limit=3).events] == [7, 8, 9]
    assert [event.data for event in sf.events.list(newest=True, limit=3).events] == [7, 8, 9]


def test_events_are_found_by_time_and_type(sf: standfast.Standfast) -> None:
    """001-43, 001-22."""
    for n in range(10):
        sf.events.append("log", "order.placed" if n % 2 else "orderly", n, occurred=when.utc(1000 + n))
    sf.tasks.add("flaky test")
    found = sf.events.list(since=when.utc(1003), until=when.utc(1008)).events
    assert [event.data for event in found] == [3, 4, 5, 6, 7]
    found = sf.events.list(since=when.utc(1003), until=when.utc(1008), type="order").events
    assert [event.data for event in found] == [3, 5, 7]
    assert [event.type for event in sf.events.list(type="task").events] == ["task.opened"]
    assert sf.events.list(type="%").events == []


def test_the_streams_of_a_scope_are_its_own(engine_url: str, tmp_path: Path) -> None:
    for scope in ("a", "b"):
        with handle.connect(config.load(engine_url, data_dir=tmp_path / "data", scope=scope)) as sf:
            assert sf.events.append("orders", "placed", scope).version == 1
            assert [event.data for event in sf.events.consume("all")] == [scope]
            assert [event.data for event in sf.events.list().events] == [scope]
    with handle.connect(config.load(engine_url, data_dir=tmp_path / "data", scope="c")) as sf:
        assert [event.data for event in sf.events.list(everywhere=True).events] == ["a", "b"]
        with pytest.raises(NotFound, match="no stream"):
            sf.events.stream("orders")


def test_an_unknown_event_is_not_found(sf: standfast.Standfast) -> None:
    sf.events.append("orders", "placed")
    with pytest.raises(NotFound, match="has 1 events"):
        sf.events.get("orders", 2)
    with pytest.raises(NotFound, match="no stream"):
        sf.events.get("order", 1)
    with pytest.raises(InvalidInput):
        sf.events.list("orders", after="garbage")
    with pytest.raises(InvalidInput):
        sf.events.list(after="v:1")
    with pytest.raises(NotFound, match="no session"):
        sf.events.append("orders", "placed", session="missing")


def test_garbage_is_refused_at_every_door(sf: standfast.Standfast) -> None:
    sf.events.append("orders", "placed")
    batch = sf.events.poll("c", "orders")
    garbage: list[Any] = [
        lambda: sf.events.list(type=5),  # type: ignore[arg-type]
        lambda: sf.events.list(type="a\x00"),
        lambda: sf.events.list(since=2**70),
        lambda: sf.events.list(until=5),  # type: ignore[arg-type]
        lambda: sf.events.read("orders", after=-1),
        lambda: sf.events.read("orders", upto=True),
        lambda: sf.events.get("orders", 2**80),
        lambda: sf.events.append("orders", "x", occurred=2**70),
        lambda: sf.events.append("orders", "x", expected_version=-1),
        lambda: sf.events.append("orders", "x", key=""),
        lambda: sf.events.append("orders", "x", key="k" * 201),
        lambda: sf.events.append_many("orders", ["x"]),
        lambda: sf.events.append_many("orders", [{"type": "x", "tpye": 1}]),
        lambda: sf.events.follow("orders", after="garbage"),
        lambda: sf.events.follow(after="garbage"),
        lambda: sf.events.follow(after=3),
        lambda: sf.events.poll("", "orders"),
        lambda: sf.events.poll("c", "orders", type=7),  # type: ignore[arg-type]
        lambda: sf.events.commit(batch.replace(cursor="garbage")),
        lambda: sf.events.commit(batch.replace(stream="", cursor="v:1")),
        lambda: sf.events.consumer("c", "orders", start="tomorrow"),
        lambda: sf.events.fold("orders", None, {}),  # type: ignore[call-overload]
        lambda: sf.events.fold("orders", count, {}, name=""),
        lambda: sf.events.fold("orders", count, {}, snapshot_every=0),
    ]
    for door in garbage:
        with pytest.raises(InvalidInput):
            door()
    assert sf.events.stream("orders").version == 1
    assert sf.events.consumers() == []


# -- following ------------------------------------------------------------------------------------------------


def test_a_follower_gets_events_from_now_on(sf: standfast.Standfast) -> None:
    sf.events.append("orders", "old")
    with sf.events.follow("orders") as following, sf.events.follow(type="new") as everything:
        threading.Timer(0.05, lambda: sf.events.append_many("orders", [("new", 1), ("newer", 2)])).start()
        assert [next(following).data, next(following).data] == [1, 2]
        assert next(everything).data == 1
    assert [event.type for event in sf.events.follow("orders", after=0, idle=0)] == ["old", "new", "newer"]
    start = sf.journal.now()
    sf.tasks.add("flaky")
    assert [event.type for event in sf.events.follow(after=start, idle=0)] == ["task.opened"]


def test_what_waits_or_calls_foreign_code_is_refused_inside_a_transaction(sf: standfast.Standfast) -> None:
    with sf.transaction() as tx:
        for call in (
            lambda: tx.events.follow("orders"),
            lambda: tx.events.consume("c", "orders"),
            lambda: tx.events.fold("orders", count, {}),
            lambda: tx.events.diff("orders", count, {}, between=(0, 1)),
        ):
            with pytest.raises(InvalidInput, match="inside a transaction"):
                call()


def test_follow_works_under_an_event_loop(engine_url: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with standfast.aopen(engine_url, data_dir=tmp_path / "data") as sf:
            assert (await sf.events.append("orders", "placed", 1)).version == 1
            await asyncio.gather(*(sf.events.append("orders", "placed", n) for n in range(2, 20)))
            seen = [event.version async for event in sf.events.consume("c", "orders")]
            assert seen == list(range(1, 20))
            assert [event.version async for event in sf.events.consume("c", "orders")] == []

            async def first() -> Event:
                async for event in sf.events.follow("orders"):
                    return event  # type: ignore[no-any-return]
                raise AssertionError

            waiting = asyncio.create_task(first())
            while not waiting.done():
                await sf.events.append("orders", "more")
                await asyncio.sleep(0.01)
            assert waiting.result().type == "more"
            idle = asyncio.create_task(first())
            await asyncio.sleep(0.05)
            idle.cancel()
            with pytest.raises(asyncio.CancelledError):
                await idle

            async def counted(state: int, event: Event) -> int:
                return state + 1

            folded = await sf.events.fold("orders", counted, 0, at=5)
            assert (folded.state, folded.version) == (5, 5)

    asyncio.run(main())


# -- consuming ------------------------------------------------------------------------------------------------


def test_each_consumer_has_its_own_cursor(sf: standfast.Standfast) -> None:
    """001-48: append-only streams with consumer groups."""
    sf.events.append_many("orders", [("placed", n) for n in range(5)])
    assert [event.data for event in sf.events.consume("mailer", "orders")] == [0, 1, 2, 3, 4]
    late = sf.events.consumer("auditor", "orders", start="now")
    assert (late.version, late.behind) == (5, 0)
    sf.events.append("orders", "placed", 5)
    assert [event.data for event in sf.events.consume("mailer", "orders")] == [5]
    assert [event.data for event in sf.events.consume("auditor", "orders")] == [5]
    assert [event.data for event in sf.events.consume("newcomer", "orders")] == [0, 1, 2, 3, 4, 5]
    sf.events.append("orders", "placed", 6)
    assert [(one.name, one.version, one.behind) for one in sf.events.consumers()] == [
        ("auditor", 6, 1),
        ("mailer", 6, 1),
        ("newcomer", 6, 1),
    ]


@pytest.mark.parametrize("stream", ["orders", None])
def test_uncommitted_events_are_delivered_again_and_committed_ones_are_not(
    sf: standfast.Standfast, stream: str | None
) -> None:
    sf.events.append_many("orders", [("placed", n) for n in range(5)])
    first = sf.events.poll("c", stream, limit=2)
    assert sf.events.poll("c", stream, limit=2) == first
    assert [event.data for event in first.events] == [0, 1]
    sf.events.commit(first)
    second = sf.events.poll("c", stream, limit=10)
    assert [event.data for event in second.events] == [2, 3, 4]
    sf.events.commit(second.upto(1))
    assert [event.data for event in sf.events.poll("c", stream).events] == [3, 4]
    sf.events.commit(second.rest(1))
    assert not sf.events.poll("c", stream)
    with pytest.raises(VersionConflict, match="another process committed"):
        sf.events.commit(second)


@pytest.mark.parametrize("stream", ["orders", None])
def test_committing_nothing_changes_nothing(sf: standfast.Standfast, stream: str | None) -> None:
    """A consumer loop need not check whether its batch is empty."""
    nothing = sf.events.poll("c", stream)
    assert (nothing.events, nothing.moved) == ([], False)
    stands = sf.events.commit(nothing)
    assert (stands.name, stands.version, stands.behind) == ("c", 0, 0 if stream else None)
    assert sf.events.consumers() == []
    sf.events.append("orders", "placed", 0)
    assert sf.events.commit(nothing).version == 0  # later events are not skipped
    assert [event.data for event in sf.events.consume("c", stream)] == [0]
    at_the_end = sf.events.poll("c", stream)
    assert sf.events.commit(at_the_end).cursor == at_the_end.cursor == sf.events.consumers()[0].cursor
    sf.events.forget("c", stream)
    with pytest.raises(NotFound):
        sf.events.commit(at_the_end)  # the consumer's cursor was removed


def test_leaving_the_loop_leaves_the_last_one_uncommitted(sf: standfast.Standfast) -> None:
    sf.events.append_many("orders", [("placed", n) for n in range(5)])
    for event in sf.events.consume("c", "orders"):
        if event.data == 2:
            break
    assert [event.data for event in sf.events.consume("c", "orders")] == [2, 3, 4]


@pytest.mark.parametrize("stream", ["orders", None])
def test_a_cursor_moves_in_the_same_transaction_as_the_writes(sf: standfast.Standfast, stream: str | None) -> None:
    sf.events.append_many("orders", [("placed", n) for n in range(3)])
    with suppress(RuntimeError), sf.transaction() as tx:
        batch = sf.events.poll("c", stream)
        tx.tasks.add("pack 0")
        tx.events.commit(batch)
        raise RuntimeError
    assert sf.tasks.list() == []
    batch = sf.events.poll("c", stream)
    with sf.transaction() as tx:
        for event in batch.events:
            tx.tasks.add(f"pack order {event.data}")
        tx.events.commit(batch)
    assert len(sf.tasks.list()) == 3
    with suppress(VersionConflict), sf.transaction() as tx:  # a second process with the same batch in hand
        tx.tasks.add("pack them again")
        tx.events.commit(batch)
    assert len(sf.tasks.list()) == 3


def test_a_consumer_skips_events_that_it_does_not_want(sf: standfast.Standfast) -> None:
    sf.events.append_many("orders", [("placed" if n % 10 == 0 else "noise", n) for n in range(95)])
    sf.tasks.add("flaky")
    for stream in ("orders", None):
        batch = sf.events.poll("c", stream, type="placed", limit=4)
        assert [event.data for event in batch.events] == [0, 10, 20, 30]
        assert [event.data for event in sf.events.consume("c", stream, type="placed")] == list(range(0, 95, 10))
        assert not sf.events.poll("c", stream).moved  # the cursor is past the last noise too


def test_a_cursor_can_be_moved_and_deleted(sf: standfast.Standfast) -> None:
    sf.events.append_many("orders", [("placed", n) for n in range(5)])
    held = sf.events.poll("c", "orders")
    sf.events.commit(held)
    sf.events.seek("c", "orders", to=3)
    assert [event.data for event in sf.events.consume("c", "orders")] == [3, 4]
    sf.events.seek("c", "orders", to="beginning")
    assert len(list(sf.events.consume("c", "orders"))) == 5
    sf.events.seek("c", "orders", to="now")
    assert list(sf.events.consume("c", "orders")) == []
    for to in (6, -1, "p:1:1", True):
        with pytest.raises(InvalidInput):
            sf.events.seek("c", "orders", to=to)
    sf.events.seek("all", to=sf.journal.now())
    with pytest.raises(InvalidInput):
        sf.events.seek("all", to="garbage")
    sf.events.forget("c", "orders")
    with pytest.raises(NotFound):
        sf.events.forget("c", "orders")
    with pytest.raises(VersionConflict, match="forgotten"):
        sf.events.commit(held.replace(before="v:1"))
    types = [event.type for event in sf.journal.about("consumer:c")]
    assert types == ["consumer.moved"] * 3 + ["consumer.forgotten"]


def test_committing_a_cursor_is_not_an_event(sf: standfast.Standfast) -> None:
    """Otherwise a consumer of the whole journal would consume its own commits."""
    sf.events.append("orders", "placed")
    assert len(list(sf.events.consume("all"))) == 1
    assert list(sf.events.consume("all")) == []


# -- folding --------------------------------------------------------------------------------------------------


def test_a_task_is_projected_from_its_events(sf: standfast.Standfast) -> None:
    """001-73: created → started → completed; 001-71: project_state."""

    def task(state: dict[str, Any], event: Event) -> dict[str, Any]:
        match event.type:
            case "created":
                return {"status": "created", **event.data}
            case "started":
                return {**state, "status": "started", "by": event.data["by"]}
            case "completed":
                return {**state, "status": "completed", "result": event.data["result"]}
        return state

    sf.events.append("task-1", "created", {"title": "parser"})
    sf.events.append("task-1", "started", {"by": "ada"})
    sf.events.append("task-1", "completed", {"result": "ok"})
    states = [sf.events.fold("task-1", task, {}, at=n).state for n in range(4)]
    assert [state.get("status") for state in states] == [None, "created", "started", "completed"]
    assert states[3] == {"status": "completed", "title": "parser", "by": "ada", "result": "ok"}
    assert sf.events.fold("nothing", task, {}).state == {}


def test_the_state_at_any_moment_by_version_by_time_and_by_session(engine_url: str, tmp_path: Path) -> None:
    """001-74: the difference between two sessions is a difference between two states."""
    sf, clock = at_clock(engine_url, tmp_path / "data")
    noon = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=clock.now_us())
    with sf:
        for n in range(1, 7):
            clock.advance("1h")
            with sf.session(f"session-{n}"):
                sf.events.append("board", "set", {f"card-{n}": "open"}, session=f"session-{n}")
                if n > 1:
                    sf.events.append("board", "set", {f"card-{n - 1}": "done"}, session=f"session-{n}")
        from standfast.record.events.folds import merged

        at_noon = sf.events.fold("board", merged, {}, at=noon)
        assert (at_noon.state, at_noon.version) == ({}, 0)
        assert sf.events.fold("board", merged, {}, at=noon + timedelta(hours=2)).state == {
            "card-1": "done",
            "card-2": "open",
        }
        assert sf.events.fold("board", merged, {}, at=noon + timedelta(hours=2, minutes=59)).version == 3
        assert sf.events.fold("board", merged, {}, at=when.utc(clock.now_us())).version == 11
        changed = sf.events.diff("board", merged, {}, between=("session-3", "session-5"))
        assert [(one.path, one.kind, one.was, one.now) for one in changed.changes] == [
            ("/card-3", "changed", "open", "done"),
            ("/card-4", "added", None, "done"),
            ("/card-5", "added", None, "open"),
        ]
        assert (changed.before.version, changed.after.version) == (5, 9)
        back = sf.events.diff("board", merged, {}, between=(9, 5)).changes
        assert [one.kind for one in back] == ["changed", "removed", "removed"]
        for moment in ("missing", -1, True, object()):
            with pytest.raises((InvalidInput, NotFound)):
                sf.events.fold("board", merged, {}, at=moment)


def test_a_clock_that_runs_backwards_cannot_change_what_a_moment_was(engine_url: str, tmp_path: Path) -> None:
    """The answer is always the events up to one version. It does not depend on the length of the stream."""
    sf, clock = at_clock(engine_url, tmp_path / "data")
    start = clock.now_us()
    with sf:
        clock.jump(100)
        for step in (5, 5, -7, 3, 9, -2, 4, 8, 8):
            clock.jump(timedelta(microseconds=step))
            sf.events.append("s", "x")
        times = [event.time_us for event in sf.events.read("s")]
        moments = range(start + 100_000_000, max(times) + 3)

        def answers() -> list[int]:
            return [sf.events.fold("s", lambda n, _: n + 1, 0, at=when.utc(us)).state for us in moments]

        expected = [next((n for n, time_us in enumerate(times) if time_us > us), len(times)) for us in moments]
        assert answers() == expected
        for _ in range(20):
            clock.jump(timedelta(microseconds=100))
            sf.events.append("s", "x")
        assert answers() == expected


def test_new_versions_of_an_event_are_read_beside_old_ones(sf: standfast.Standfast) -> None:
    """001-62: a projector handles versions 1 and 2 of an event."""
    sf.events.append("people", "joined", {"name": "Ada Lovelace"})
    sf.events.append("people", "joined.v2", {"first": "Alan", "last": "Turing"})
    sf.events.append("people", "joined.v3", {"first": "Grace", "last": "Hopper", "born": 1906})
    upcasts: dict[str, Any] = {
        "joined": lambda old: ("joined.v2", dict(zip(("first", "last"), old["name"].split(), strict=True))),
        "joined.v2": lambda old: ("joined.v3", {**old, "born": None}),
    }

    def people(state: list[Any], event: Event) -> list[Any]:
        assert event.type == "joined.v3"
        return [*state, (event.data["last"], event.data["born"])]

    folded = sf.events.fold("people", people, [], upcasts=upcasts)
    assert folded.state == [("Lovelace", None), ("Turing", None), ("Hopper", 1906)]
    assert [event.type for event in sf.events.read("people")] == ["joined", "joined.v2", "joined.v3"]  # as written

    def both(state: int, event: Event) -> int:
        return state + len(event.data["name"] if event.type == "joined" else event.data["first"])

    assert sf.events.fold("people", both, 0).state == 12 + 4 + 5
    with pytest.raises(InvalidInput, match="circular"):
        upcasted(sf.events.get("people", 1), {"joined": lambda old: ("joined", old)})


def test_a_named_fold_reads_only_the_events_after_its_snapshot(sf: standfast.Standfast) -> None:
    """001-76: replay is O(n), and a snapshot limits n."""
    for _ in range(3):
        sf.events.append_many("orders", [("placed", None)] * 400)
    first = sf.events.fold("orders", count, {}, name="counts")
    assert (first.state, first.read, first.snapshot) == ({"placed": 1200}, 1200, 0)
    sf.events.append_many("orders", [("paid", None)] * 3)
    second = sf.events.fold("orders", count, {}, name="counts")
    assert (second.state, second.read, second.snapshot) == ({"placed": 1200, "paid": 3}, 3, 1200)
    before = sf.events.fold("orders", count, {}, name="counts", at=700)
    assert (before.state, before.read, before.snapshot) == ({"placed": 700}, 700, 0)
    between = sf.events.fold("orders", count, {}, name="counts", at=1201)
    assert (between.state, between.read, between.snapshot) == ({"placed": 1200, "paid": 1}, 1, 1200)


def test_deleting_every_snapshot_loses_time_and_nothing_else(sf: standfast.Standfast) -> None:
    """002-45: snapshots are checkpoint data: derived, deletable."""
    sf.events.append_many("orders", [("placed", None)] * 10)
    moments = range(11)
    made = [sf.events.fold("orders", count, {}, name="counts", at=n, snapshot_every=1).state for n in moments]
    again = [sf.events.fold("orders", count, {}, name="counts", at=n, snapshot_every=1) for n in moments]
    assert [one.state for one in again] == made
    assert [one.read for one in again] == [0] * 11
    assert sf.events.delete_snapshots() == 10
    assert list(sf.rows("SELECT * FROM snapshot")) == []
    assert [sf.events.fold("orders", count, {}, name="counts", at=n).state for n in moments] == made
    assert sf.events.delete_snapshots("nothing") == 0


@dataclass
class Account:
    balance: int = 0
    seen: list[str] = field(default_factory=list)


def deposit(state: Account, event: Event) -> Account:
    state.balance += event.data
    state.seen.append(event.type)
    return state


def test_a_state_may_be_more_than_json_and_is_the_same_with_and_without_a_snapshot(sf: standfast.Standfast) -> None:
    sf.events.append_many("account", [("paid", 5), ("paid", 7)])
    start = Account()
    plain = sf.events.fold("account", deposit, start).state
    named = [
        sf.events.fold("account", deposit, start, name="account", returns=Account, snapshot_every=1).state
        for _ in range(2)
    ]
    assert plain == named[0] == named[1] == Account(12, ["paid", "paid"])
    assert start == Account()  # the caller's start value was not changed
    assert sf.events.diff("account", deposit, start, between=(1, 2)).changes[0] == models.Change(
        "/balance", "changed", 5, 12
    )
    with pytest.raises(InvalidInput, match="state of fold"):
        sf.events.fold("account", lambda s, e: {e.type}, set(), name="sets")


def test_a_fold_that_returns_none_is_refused(sf: standfast.Standfast) -> None:
    sf.events.append("orders", "placed")
    with pytest.raises(InvalidInput, match="returned nothing for event 1"):
        sf.events.fold("orders", lambda state, event: state.update(n=1), {})
    with pytest.raises(ZeroDivisionError):
        sf.events.fold("orders", lambda state, event: 1 // 0, 0)


def test_only_the_newest_snapshots_are_stored(sf: standfast.Standfast) -> None:
    from standfast.record.events import folds

    sf.events.append_many("s", [("x", None)] * 80)
    for n in range(1, 81):
        sf.events.fold("s", count, {}, name="f", at=n, snapshot_every=1)
    kept = [row["version"] for row in sf.rows("SELECT version FROM snapshot ORDER BY version")]
    assert kept == list(range(81 - folds.SNAPSHOTS_KEPT, 81))


def test_a_session_logs_into_a_stream_of_its_own(sf: standfast.Standfast) -> None:
    with sf.session("fix-42") as s:
        assert s.log("tests.failed", {"count": 3}).version == 1
        assert s.log("tests.passed", key="green").version == 2
        assert s.log("tests.passed", key="green").receipt is None
        assert s.log("shipped", {"version": "1.2"}, stream="releases").version == 1
    events = sf.events.read(s.id)
    assert [(event.type, event.session_id) for event in events] == [("tests.failed", s.id), ("tests.passed", s.id)]
    assert sf.events.get("releases", 1).session_id == s.id
