"""Loops: stored by name, fired once per slot, paused and resumed. Every slot that was due has a row."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import standfast
from standfast import config, handle, when
from standfast.clock import DAY_US, HOUR_US, MINUTE_US, SECOND_US, ManualClock
from standfast.db.sql import statement
from standfast.errors import IllegalTransition, InvalidInput, NotFound
from standfast.record.loops import Loop, Run

Open = Callable[..., standfast.Standfast]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def place(engine_url: str, tmp_path: Path, clock: ManualClock) -> Iterator[Open]:
    """Open handles on one store, each with the given scope."""
    handles: list[standfast.Standfast] = []

    def enter(scope: str = "here") -> standfast.Standfast:
        settings = config.load(engine_url, data_dir=tmp_path / "data", scope=scope)
        handles.append(handle.connect(settings, clock=clock))
        return handles[-1]

    yield enter
    for store in handles:
        store.close()


@pytest.fixture
def sf(place: Open) -> standfast.Standfast:
    return place()


def told(runs: list[Run]) -> list[tuple[str, int]]:
    """State and slot (in minutes since the beginning of the year) of each run, in the order of the slots."""
    return [
        (run.state, (run.slot_us - 1_767_225_600_000_000) // MINUTE_US) for run in sorted(runs, key=lambda r: r.slot_us)
    ]


def nightly(sf: standfast.Standfast, **changed: Any) -> Loop:
    return sf.loops.add("nightly", ["make", "nightly"], **({"every": "15m", "cwd": "/"} | changed))


def perform(sf: standfast.Standfast, exit_code: int = 0) -> Run:
    run = sf.runs.claim(host="here")
    assert run is not None
    return sf.runs.finish(run.id, run.attempt, exit_code=exit_code, duration="1s")


# -- add, change, remove ---------------------------------------------------------------------------------


def test_the_same_loop_again_changes_nothing_and_another_specification_changes_it(
    sf: standfast.Standfast, clock: ManualClock
) -> None:
    first = nightly(sf)
    clock.advance("10m")
    again = nightly(sf)
    assert (first.change, again.change) == ("new", "same")
    assert again.replace(change="new", receipt=first.receipt) == first
    changed = nightly(sf, retries_max=2, environment={"LEVEL": "9", "API_TOKEN": "hunter2"})
    assert (changed.id, changed.change, changed.next_slot_us) == (first.id, "changed", first.next_slot_us)
    (event,) = [event for event in sf.journal.about(first.id) if event.type == "loop.changed"]
    assert event.data == {"environment": [[], ["API_TOKEN", "LEVEL"]], "retries_max": [0, 2]}
    assert "hunter2" not in str(sf.journal.about(first.id))
    assert changed.environment_shown == {"LEVEL": "9", "API_TOKEN": "(not shown)"}
    moved = nightly(sf, every="1h")
    assert moved.next_slot_us == clock.now_us() + HOUR_US


def test_loops_are_found_by_name_id_or_the_end_of_it_and_listed_by_scope(place: Open) -> None:
    here, there = place(), place("there")
    mine, other = nightly(here), nightly(there)
    assert here.loops.get("nightly") == here.loops.get(mine.id) == here.loops.get(mine.id[-8:])
    assert [loop.id for loop in here.loops.list()] == [mine.id]
    everywhere = here.loops.list(everywhere=True, limit=1)
    everywhere += here.loops.list(everywhere=True, after=everywhere[0].id)
    assert {loop.id for loop in everywhere} == {mine.id, other.id}
    with pytest.raises(NotFound, match="no loop 'daily'"):
        here.loops.get("daily")


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"command": []}, "needs a command"),
    ({"command": "make nightly"}, "list of words"),
    ({"command": ["a\0b"]}, "U[+]0000"),
    ({"catch_up": "some"}, "catch_up is one of"),
    ({"overlap": "kill"}, "overlap is one of"),
    ({"catch_up_max": 0}, "catch_up_max"),
    ({"retries_max": -1}, "retries_max"),
    ({"timeout": 0}, "timeout"),
    ({"environment": {"A B": "c"}}, "name of a variable"),
    ({"environment": {"A": 5}}, "is text"),
    ({"name": ""}, "name is empty"),
    ({"name": "a\nb"}, "U[+]000A"),
    ({"at": "@1", "every": None}, "in the past"),
    ({"at": 1, "every": None}, "at is a datetime or a text"),
    ({"backoff": "2h"}, "backoff must be between 0 s and 1h"),
]


def test_what_cannot_be_a_loop_is_refused(sf: standfast.Standfast) -> None:
    for changed, says in REFUSED:
        given: dict[str, Any] = {"name": "nightly", "command": ["true"], "every": "15m"} | changed
        with pytest.raises(InvalidInput, match=says):
            sf.loops.add(given.pop("name"), given.pop("command"), **given)
    assert sf.loops.list() == []


# -- firing ----------------------------------------------------------------------------------------------


def test_a_slot_is_fired_once_and_the_loop_waits_for_the_next(sf: standfast.Standfast, clock: ManualClock) -> None:
    loop = nightly(sf)
    assert sf.loops.fire_due() == []
    clock.advance("15m")
    (run,) = sf.loops.fire_due()
    assert (run.state, run.slot_us, run.attempt, run.source, run.loop) == (
        "queued",
        clock.now_us(),
        0,
        "slot",
        "nightly",
    )
    assert sf.loops.fire_due() == []
    assert sf.runs.get(run.id) == run
    assert sf.loops.get("nightly").next_slot_us == clock.now_us() + 15 * MINUTE_US
    assert [event.type for event in sf.journal.about(run.id)] == ["run.queued"]
    assert loop.last_slot_us is None


def test_one_daemon_fires_the_loops_of_every_scope(place: Open, clock: ManualClock) -> None:
    here, there = place(), place("there")
    nightly(here), nightly(there)
    clock.advance("15m")
    assert {run.scope for run in here.loops.fire_due()} == {"here", "there"}
    assert len(there.runs.list()) == 1
    assert len(there.journal.about(there.runs.list()[0].id)) == 1


CATCH_UPS = {
    "latest": [("missed", 15), ("missed", 30), ("missed", 45), ("queued", 60)],
    "all": [("missed", 15), ("missed", 30), ("queued", 45), ("queued", 60)],
    "none": [("missed", 15), ("missed", 30), ("missed", 45), ("missed", 60)],
}


def test_missed_slots_are_caught_up_as_the_loop_says(sf: standfast.Standfast, clock: ManualClock) -> None:
    """000-16: each missed slot is a row with its reason."""
    for catch_up in CATCH_UPS:
        sf.loops.add(catch_up, ["true"], every="15m", catch_up=catch_up, catch_up_max=2)
    clock.advance("62m")
    fired = sf.loops.fire_due()
    assert {name: told([run for run in fired if run.loop == name]) for name in CATCH_UPS} == CATCH_UPS
    missed = sf.runs.list(state="missed")
    assert all("no daemon was running" in (run.reason or "") for run in missed)
    assert sf.loops.absent() == []


def test_without_catch_up_a_slot_is_run_if_it_is_on_time(sf: standfast.Standfast, clock: ManualClock) -> None:
    nightly(sf, catch_up="none")
    clock.advance("15m59s")
    assert told(sf.loops.fire_due()) == [("queued", 15)]


def test_of_a_long_gap_the_newest_thousand_have_rows_of_their_own(sf: standfast.Standfast, clock: ManualClock) -> None:
    sf.loops.add("often", ["true"], every="1m")
    clock.advance("20d")
    runs = sf.loops.fire_due()
    assert Counter(run.state for run in runs) == {"missed": 1001, "queued": 1}
    oldest = runs[0]
    assert (oldest.slots, oldest.slot_us) == (20 * 1440 - 1001, 1_767_225_600_000_000 + MINUTE_US)
    assert oldest.until_slot_us == runs[1].slot_us - MINUTE_US
    assert sum(run.slots for run in runs) == 20 * 1440
    listed = sf.runs.list("often", since=when.utc(oldest.until_slot_us), state="missed", limit=1000)
    assert len(listed) == 1000
    assert len(sf.runs.list("often", state="missed", after=listed[-1].place)) == 1


def test_overlap_skip_leaves_a_row_and_queue_waits_its_turn(sf: standfast.Standfast, clock: ManualClock) -> None:
    nightly(sf)
    sf.loops.add("patient", ["true"], every="15m", overlap="queue")
    clock.advance("15m")
    sf.loops.fire_due()
    first = {run.loop: run for run in (sf.runs.claim(host="a"), sf.runs.claim(host="a")) if run}
    assert set(first) == {"nightly", "patient"}
    clock.advance("15m")
    states = {run.loop: run for run in sf.loops.fire_due()}
    assert states["nightly"].state == "skipped"
    assert "Thu 2026-01-01 00:15:00 UTC was not over" in (states["nightly"].reason or "")
    assert states["patient"].state == "queued"
    assert sf.runs.claim(host="b") is None  # the first run is still going
    sf.runs.finish(first["patient"].id, 1, exit_code=0, duration="1us")
    assert (sf.runs.claim(host="b") or first["patient"]).id == states["patient"].id


def test_a_clock_that_is_set_back_fires_nothing_twice(sf: standfast.Standfast, clock: ManualClock) -> None:
    """000-36, 000-37."""
    nightly(sf)
    clock.advance("1h")
    sf.loops.fire_due()
    before = sf.runs.list("nightly")
    clock.jump("-1h")
    for _ in range(5):
        clock.advance("12m")
        assert sf.loops.fire_due() == []
    assert [run.slot_us for run in sf.runs.list("nightly")] == [run.slot_us for run in before]
    clock.advance("15m")
    assert told(sf.loops.fire_due())[-1][1] == 75


def test_resume_repairs_a_loop_that_a_clock_far_ahead_postponed(sf: standfast.Standfast, clock: ManualClock) -> None:
    nightly(sf)
    clock.jump("30d")
    sf.loops.fire_due()
    clock.jump("-30d")
    clock.advance("15m")
    assert sf.loops.fire_due() == []
    assert sf.loops.resume("nightly").next_slot_us == clock.now_us() + 15 * MINUTE_US


def test_one_moment_is_fired_once_and_the_loop_is_finished(sf: standfast.Standfast, clock: ManualClock) -> None:
    at_us = clock.now_us() + DAY_US
    loop = sf.loops.add("launch", ["true"], at=when.utc(at_us))
    clock.advance("25h")
    assert [run.state for run in sf.loops.fire_due()] == ["queued"]
    finished = sf.loops.get("launch")
    assert (finished.state, finished.next_slot_us) == ("finished", None)
    assert perform(sf).state == "done"
    assert sf.loops.add("launch", ["true"], at=when.utc(at_us)).change == "same"
    with pytest.raises(InvalidInput, match="in the past"):
        sf.loops.add("launch", ["true"], at=when.utc(clock.now_us() - 2 * HOUR_US))
    with pytest.raises(IllegalTransition, match="finished"):
        sf.loops.pause("launch", "no more")
    again = sf.loops.add("launch", ["true"], at=when.utc(clock.now_us() + HOUR_US))
    assert (again.id, again.state, again.change) == (loop.id, "active", "changed")


def test_two_that_fire_at_once_make_one_run_per_slot(place: Open, clock: ManualClock) -> None:
    """000-36: two daemons never run one slot twice."""
    stores = [place(), place()]
    for n in range(12):
        stores[0].loops.add(f"loop {n}", ["true"], every="15m", catch_up="all", catch_up_max=3)
    for _ in range(3):
        clock.advance("45m")
        barrier, fired = threading.Barrier(2), list[Run]()

        def fire(sf: standfast.Standfast) -> None:
            barrier.wait()  # noqa: B023
            while (due_us := sf.loops.next_due_us()) is not None and due_us <= clock.now_us():
                runs = sf.loops.fire_due(limit=5)
                fired.extend(runs)  # noqa: B023
                while run := sf.runs.claim(host="x"):
                    sf.runs.finish(run.id, run.attempt, exit_code=0, duration="1us")

        threads = [threading.Thread(target=fire, args=(sf,)) for sf in stores]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert Counter(run.slots for run in fired) == {1: 36}
        assert len({(run.loop_id, run.slot_us) for run in fired}) == 36
    states = Counter(run.state for run in stores[0].runs.list(limit=1000))
    assert states == {"done": 108}


# -- pausing ---------------------------------------------------------------------------------------------


def test_a_paused_loop_skips_each_slot_with_the_reason(sf: standfast.Standfast, clock: ManualClock) -> None:
    nightly(sf, overlap="queue")
    clock.advance("31m")
    sf.loops.fire_due()
    paused = sf.loops.pause("nightly", "the disk is full")
    assert (paused.state, paused.reason) == ("paused", "the disk is full")
    assert sf.loops.pause("nightly", "again").reason == "the disk is full"
    assert [run.state for run in sf.runs.list("nightly")] == ["cancelled", "missed"]
    clock.advance("15m")
    assert told(sf.loops.fire_due()) == [("skipped", 45)]
    clock.advance("30m")
    resumed = sf.loops.resume("nightly")
    assert (resumed.state, resumed.reason, resumed.next_slot_us) == (
        "active",
        None,
        1_767_225_600_000_000 + 90 * MINUTE_US,
    )
    rows = sf.runs.list("nightly")
    assert told(rows) == [("missed", 15), ("cancelled", 30), ("skipped", 45), ("skipped", 60), ("skipped", 75)]
    assert rows[0].reason == "paused: the disk is full"


def test_what_was_due_when_a_loop_was_paused_changed_or_removed_has_its_row(
    sf: standfast.Standfast, clock: ManualClock
) -> None:
    """The slot was due and did not fire. After any change of the loop, every slot has its row."""
    nightly(sf)
    clock.advance("16m")
    sf.loops.pause("nightly", "why not")
    sf.loops.resume("nightly")
    clock.advance("15m")
    nightly(sf, every="20m")
    clock.advance("21m")
    removed = sf.loops.remove("nightly")
    rows = sf.runs.list(removed.id)
    assert told(rows) == [("missed", 15), ("missed", 30), ("missed", 51)]
    assert [(run.reason or "").rpartition("then ")[2] for run in rows] == [
        "the loop was removed",
        "the schedule was changed",
        "the loop was paused: why not",
    ]
    with pytest.raises(NotFound):
        sf.loops.get("nightly")
    assert nightly(sf).id != removed.id
    assert sf.loops.remove(removed.id).state == "removed"


def test_failures_in_a_row_pause_the_loop_and_that_is_announced_once(
    engine_url: str, tmp_path: Path, clock: ManualClock
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "config.toml").write_text(
        f'notify = ["sh", "-c", "cat >> {tmp_path}/notified; echo >> {tmp_path}/notified"]\n'
    )
    with handle.connect(config.load(engine_url, data_dir=data), clock=clock) as sf:
        nightly(sf, failures_max=2)
        for exit_code in (1, 0, 1, 1):
            clock.advance("15m")
            sf.loops.fire_due()
            perform(sf, exit_code)
        loop = sf.loops.get("nightly")
        assert (loop.state, loop.failures) == ("paused", 2)
        assert loop.reason == "2 runs in a row failed; the last one: exit 1"
        assert Counter(event.type for event in sf.journal.about(loop.id))["loop.paused"] == 1
        sf.runs.ask("nightly")
        perform(sf, 1)
        assert sf.loops.resume("nightly").failures == 0
    announced = _lines(tmp_path / "notified")
    assert len(announced) == 1
    assert '"event": "loop.paused"' in announced[0]


def _lines(path: Path) -> list[str]:
    """The lines of a command that no process waits for, once it has written them."""
    import time

    for _ in range(500):
        if path.exists() and path.read_text().endswith("\n"):
            break
        time.sleep(0.01)
    return [line for line in path.read_text().splitlines() if line]


def test_a_loop_whose_time_zone_is_not_known_here_pauses_and_keeps_no_other_from_firing(
    sf: standfast.Standfast, clock: ManualClock
) -> None:
    nightly(sf)
    sf.loops.add("abroad", ["true"], cron="*/15 * * * *", zone="Asia/Tokyo", catch_up="all")
    rename = statement("UPDATE loop SET zone = :zone WHERE name = 'abroad'")
    sf._store.write(lambda tx: tx.run(rename, zone="Asia/Nowhere"))
    clock.advance("31m")
    assert sf.loops.absent() != []
    assert {run.loop for run in sf.loops.fire_due()} == {"nightly"}
    abroad = sf.loops.get("abroad")
    assert (abroad.state, abroad.next_slot_us) == ("paused", None)
    assert "cannot be read on this machine" in (abroad.reason or "")
    assert [item.kind for item in sf.recovery.report().items] == ["loop_stopped"]
    with pytest.raises(InvalidInput, match="time zone"):
        sf.loops.resume("abroad")
    sf._store.write(lambda tx: tx.run(rename, zone="Asia/Tokyo"))
    assert sf.loops.resume("abroad").state == "active"
    assert told(sf.runs.list("abroad")) == [("skipped", 15), ("skipped", 30)]


# -- loops that no longer fire ---------------------------------------------------------------------------


def test_a_loop_that_stopped_firing_is_recognised_by_its_schedule(sf: standfast.Standfast, clock: ManualClock) -> None:
    """000-16: a nightly job silently stopped firing three weeks ago."""
    nightly(sf, every=None, cron="0 3 * * *", zone="Europe/Berlin")
    clock.advance("1d")
    sf.loops.fire_due()
    assert sf.loops.absent() == []
    clock.advance("21d")
    (absent,) = sf.loops.absent()
    assert (absent.name, absent.slots, absent.last_slot_us) == ("nightly", 21, sf.runs.list()[0].slot_us)
    assert absent.slot_us == sf.runs.list()[0].slot_us + DAY_US
    sf.loops.pause("nightly", "holidays")
    clock.advance("2d")
    assert sf.loops.absent() == []  # a paused loop is not absent


def test_the_next_thing_to_do_is_a_slot_or_a_run_that_is_ready(sf: standfast.Standfast, clock: ManualClock) -> None:
    assert sf.loops.next_due_us() is None
    nightly(sf, retries_max=1)
    slot_us = clock.now_us() + 15 * MINUTE_US
    assert sf.loops.next_due_us() == slot_us
    clock.advance("15m")
    sf.loops.fire_due()
    assert sf.loops.next_due_us() == slot_us
    perform(sf, 1)
    assert sf.loops.next_due_us() == slot_us + 30 * SECOND_US
    clock.advance("30s")
    run = sf.runs.claim(host="here")
    assert sf.loops.next_due_us() == slot_us + 15 * MINUTE_US
    sf.runs.ask("nightly")
    assert sf.loops.next_due_us() == slot_us + 15 * MINUTE_US  # the run waits for the running one
    assert run is not None


def test_changes_of_loops_are_part_of_the_transaction(sf: standfast.Standfast, clock: ManualClock) -> None:
    with pytest.raises(InvalidInput), sf.transaction() as tx:  # noqa: PT012  # the block is tested
        tx.loops.add("nightly", ["true"], every="15m")
        tx.tasks.add("")
    assert sf.loops.list() == []
    with sf.transaction() as tx:
        tx.loops.add("nightly", ["true"], every="15m")
        tx.runs.ask("nightly")
    assert len(sf.runs.list("nightly")) == 1
