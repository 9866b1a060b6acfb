"""Short scenes for what no killed process can show: each ends in an AssertionError if its bug is there."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import standfast
from standfast import crash
from standfast.clock import ManualClock
from standfast.db.contract import Row
from standfast.ledger.effects import alone, transitions
from standfast.prove.raising import raising
from standfast.prove.scenes import elsewhere, only, orphan


def check_late(sf: standfast.Standfast) -> None:
    """A paused process wakes up after its effect was taken over."""

    def asleep(call: standfast.Call) -> str:
        alone._under_way.clear()
        orphan(sf, "k")
        with sf.session("b") as other:
            other.effect("pay", key="k", do=lambda call: "in time", idempotent=True)
        return "too late"

    with sf.session("a") as s, raising(standfast.LeaseLost):
        s.effect("pay", key="k", do=asleep)
    assert sf.effects.get("k").result == "in time"


def check_sleeper(sf: standfast.Standfast) -> None:
    """It wakes up while the one who took over is still at it."""

    def asleep(call: standfast.Call) -> str:
        alone._under_way.clear()
        orphan(sf, "k")
        with sf.session("b") as other:
            other.effect("pay", key="k", do=meanwhile, idempotent=True)
        return "unreachable"

    def meanwhile(call: standfast.Call) -> str:
        first = {**_row(sf), "attempt": 1}
        late = sf._store.write(lambda tx: [transitions.acknowledge(tx, first, '"late"')])
        assert isinstance(late[0], standfast.LeaseLost)
        return "in time"

    with sf.session("a") as s, raising(standfast.LeaseLost):
        s.effect("pay", key="k", do=asleep)


def check_second_thread(sf: standfast.Standfast) -> None:
    inside, finish, sent = threading.Event(), threading.Event(), []

    def slow(call: standfast.Call) -> None:
        sent.append(call.attempt)
        inside.set()
        finish.wait(30)

    with sf.session("a") as s:
        thread = threading.Thread(target=lambda: s.effect("t", do=slow, idempotent=True))
        thread.start()
        inside.wait(30)
        try:
            with raising(standfast.InProgress):
                s.effect("t", do=lambda call: sent.append(call.attempt), idempotent=True)
        finally:
            finish.set()
            thread.join()
    assert sent == [1]


def check_conflict(sf: standfast.Standfast) -> None:
    with sf.session("a") as s:
        s.effect("tag", {"v": 1}, key="k", do=lambda call: 1)
        with raising(standfast.KeyConflict):
            s.effect("tag", {"v": 2}, key="k", do=lambda call: 2)


def check_taken(sf: standfast.Standfast) -> None:
    sent: list[int] = []
    with sf.session("a") as s:
        sf.sessions.take("a")
        with raising(standfast.LeaseLost):
            s.effect("post", do=lambda call: sent.append(1))
        s._opening_now = None
    assert sent == []


def check_young(sf: standfast.Standfast) -> None:
    """What is visible and not yet on disk must be synced before anybody acts on it."""
    with sf.session("a") as s:
        s.effect("t", do=lambda call: 1)
    synced: list[int] = []
    engine = sf._store.engine
    before, engine.sync = engine.sync, lambda: synced.append(1)  # type: ignore[method-assign]
    try:
        with sf.session("a") as s:
            s.effect("t", do=lambda call: 1)
    finally:
        engine.sync = before  # type: ignore[method-assign]
    assert synced == [1]


def check_at_once(sf: standfast.Standfast) -> None:
    """After an error everybody sees the doubt, not only the process that had it."""
    with sf.session("a") as s, raising(ZeroDivisionError):
        s.effect("t", do=lambda call: 1 // 0)
    assert [effect.tool for effect in sf.effects.in_doubt()] == ["t"]


def check_asleep(sf: standfast.Standfast) -> None:
    """A holder nobody can judge may only sleep: a probe that finds nothing proves nothing yet."""
    clock = sf._store.caller.clock
    assert isinstance(clock, ManualClock)
    sf.effects.begin("pay", key="k")
    orphan(sf, "k", elsewhere(sf))
    clock.advance("61s")
    with sf.session("a") as s, raising(standfast.EffectInDoubt):
        s.effect("pay", key="k", do=lambda call: 1, probe=lambda call: standfast.NotApplied())


def check_window(sf: standfast.Standfast) -> None:
    from datetime import timedelta

    clock = sf._store.caller.clock
    assert isinstance(clock, ManualClock)
    sf.effects.begin("pay", key="k")
    orphan(sf, "k")
    clock.advance("25h")
    with sf.session("a") as s, raising(standfast.EffectInDoubt):
        s.effect("pay", key="k", do=lambda call: 1, idempotent=timedelta(hours=24))


def check_stored(sf: standfast.Standfast) -> None:
    with sf.session("a") as s:
        stored: Any = s.effect("t", do=lambda call: (1, 2))
        assert stored == [1, 2]


def check_commits(sf: standfast.Standfast) -> None:
    with sf.session("a") as s, crash.record() as passed:
        s.effect("t", do=lambda call: 1)
    assert passed.count("commit.after_commit") == 2


def check_yes(sf: standfast.Standfast) -> None:
    with sf.session("a") as s, raising(standfast.ApprovalRequired):
        s.effect("t", do=lambda call: 1, approve=True)


def check_pruned(sf: standfast.Standfast) -> None:
    from standfast.prove.scenes import prune

    with sf.session("a") as s:
        s.effect("t", key="k", do=lambda call: 1)
        prune(sf, "k")
        with raising(standfast.Conflict):
            s.effect("t", key="k", do=lambda call: 1)


def check_journal(sf: standfast.Standfast) -> None:
    from standfast.prove.scenes import told

    with sf.session("a") as s:
        s.effect("t", do=lambda call: 1)
    assert told(sf, only(sf).id) == ["planned", "dispatched", "acknowledged"]


def check_late_twice(sf: standfast.Standfast) -> None:
    """The first to say how it ended is believed; the second is refused."""
    sf.effects.begin("pay", key="k")
    row = _row(sf)
    sf.effects.done("k", "first")
    late = sf._store.write(lambda tx: [transitions.acknowledge(tx, row, '"second"')])
    assert isinstance(late[0], standfast.LeaseLost)
    assert sf.effects.get("k").result == "first"


def _row(sf: standfast.Standfast) -> Row:
    return sf._store.read(lambda tx: tx.one(transitions.SQL.by_key, scope=sf.scope, key="k"))


def play(name: str, directory: Path) -> None:
    """The scene of that name on a store of its own, in a child."""

    def scene() -> None:
        with standfast.open(directory / "standfast.db", data_dir=directory, clock=ManualClock()) as sf:
            SCENES[name](sf)

    crash._live(scene, 0, crash.Schedule(), 60.0)


SCENES: dict[str, Callable[[standfast.Standfast], None]] = {
    name.removeprefix("check_"): scene for name, scene in list(globals().items()) if name.startswith("check_")
}
