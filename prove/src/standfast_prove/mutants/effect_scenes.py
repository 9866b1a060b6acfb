"""Short scenes for bugs that a killed process cannot show. Each raises AssertionError if its bug is there."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import standfast
from standfast import crash
from standfast.clock import ManualClock
from standfast.config import people
from standfast.db.contract import Row
from standfast.ledger.effects import one_at_a_time, transitions
from standfast.ledger.effects.models import Effect
from standfast_prove.mutants import shell_scenes
from standfast_prove.raising import raising
from standfast_prove.scenes import elsewhere, only, orphan, outside


def check_late(sf: standfast.Standfast) -> None:
    """A paused process continues after its effect was taken over."""

    def asleep(call: standfast.Call) -> str:
        one_at_a_time._under_way.clear()
        orphan(sf, "k")
        outside(taken_over)
        return "too late"

    def taken_over() -> None:
        with sf.session("b") as other:
            other.effect("pay", key="k", do=lambda call: "in time", idempotent=True)

    with sf.session("a") as s, raising(standfast.LeaseLost):
        s.effect("pay", key="k", do=asleep)
    assert sf.effects.get("k").result == "in time"


def check_sleeper(sf: standfast.Standfast) -> None:
    """The paused process continues while the process that took over still works."""

    def asleep(call: standfast.Call) -> str:
        one_at_a_time._under_way.clear()
        orphan(sf, "k")
        outside(taken_over)
        return "unreachable"

    def taken_over() -> None:
        with sf.session("b") as other:
            other.effect("pay", key="k", do=meanwhile, idempotent=True)

    def meanwhile(call: standfast.Call) -> str:
        first = {**_row(sf), "attempt": 1}
        late.append(sf._store.write(lambda tx: [transitions.acknowledge(tx, first, '"late"')])[0])
        return "in time"

    late: list[object] = []
    with sf.session("a") as s, raising(standfast.LeaseLost):
        s.effect("pay", key="k", do=asleep)
    assert isinstance(late[0], standfast.LeaseLost)
    assert sf.effects.get("k").result == "in time"


def check_late_failure(sf: standfast.Standfast) -> None:
    """Attempt 1 returns with a failure or an error while attempt 2 is in flight. Nothing may change."""
    for key, end in (("fail", transitions.fail), ("give_up", transitions.give_up)):
        sf.effects.begin("pay", key=key, idempotent=True)
        first = _row(sf, key)
        orphan(sf, key)
        sf.effects.begin("pay", key=key, idempotent=True)
        before = _row(sf, key)
        sf._store.write(lambda tx, end=end, first=first: [end(tx, first, "late")])  # type: ignore[misc]
        assert _row(sf, key) == before


def check_settled(sf: standfast.Standfast) -> None:
    """A request that arrives four seconds after the kill. The next process asks the probe at once."""
    clock = sf._store.caller.clock
    arrives_us = clock.now_us() + 4_000_000
    sent: list[int] = []
    sf.effects.begin("pay", key="k")
    orphan(sf, "k")

    def probe(call: standfast.Call) -> Any:
        return standfast.Applied("late") if clock.now_us() >= arrives_us else standfast.NotApplied()

    with sf.session("a") as s:
        s.effect("pay", key="k", do=lambda call: sent.append(call.attempt), probe=probe)
    assert sent == []


def check_swallowed(sf: standfast.Standfast) -> None:
    """The program swallows the error and tries a variation."""
    sent: list[int] = []
    with sf.session("a") as s:
        with raising(ZeroDivisionError):
            s.effect("pay", {"order": 1}, do=lambda call: 1 // 0)
        with raising(standfast.EffectInDoubt):
            s.effect("pay", {"order": "1b"}, do=lambda call: sent.append(1))
        s.proceed()
        with raising(ZeroDivisionError):
            s.effect("pay", {"order": 1}, do=lambda call: 1 // 0, idempotent=True)
        with raising(standfast.EffectInDoubt):
            s.effect("pay", {"order": "1c"}, do=lambda call: sent.append(1))
    assert sent == []
    assert sf.sessions.get("a").state == "waiting"


def check_elsewhere(sf: standfast.Standfast) -> None:
    """The same effect is in doubt under another session key."""
    sent: list[int] = []
    with sf.session("a") as s, raising(ZeroDivisionError):
        s.effect("pay", {"order": 1}, do=lambda call: 1 // 0)
    with sf.session("b") as s, raising(standfast.EffectInDoubt):
        s.effect("pay", {"order": 1}, do=lambda call: sent.append(1))
    assert sent == []


def check_nested(sf: standfast.Standfast) -> None:
    """An effect inside an effect is refused, and nothing of it is recorded."""
    with sf.session("a") as s, raising(standfast.InvalidInput):
        s.effect("outer", do=lambda call: s.effect("inner", do=lambda call: 1))
    assert only(sf).tool == "outer"


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
    """A caller reads a row that is not yet on disk. The row must be synced before the caller acts on it."""
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
    """After an error all processes see the doubt."""
    with sf.session("a") as s, raising(ZeroDivisionError):
        s.effect("t", do=lambda call: 1 // 0)
    assert [effect.tool for effect in sf.effects.in_doubt()] == ["t"]


def check_asleep(sf: standfast.Standfast) -> None:
    """A holder on another host may only be paused, so a probe that finds nothing proves nothing yet."""
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


def check_spent(sf: standfast.Standfast) -> None:
    """One grant allows one dispatch. A failed effect needs another grant."""
    begun = _granted(sf)
    sf.effects.fail(begun.id, "no network")
    with raising(standfast.ApprovalRequired):
        sf.effects.begin("pay", {"to": "ada"}, key="k", approve=True)


def check_directory(sf: standfast.Standfast) -> None:
    """A grant for a command in one directory does not allow it in another."""
    for place in ("/srv/one", "/srv/two"):
        with raising(standfast.ApprovalRequired):
            sf.effects.begin("once", {"argv": ["./run.sh"]}, key="k", approve=True, context={"cwd": place})
        for waiting in sf.approvals.list(state="requested"):
            sf.approvals.grant(waiting.id, approver="ada")


def check_screen(sf: standfast.Standfast) -> None:
    """Text that an agent stored must not move the cursor of the approver's terminal."""
    hostile = "\x1b[2J\x1b[H\u202e\u200b"
    with raising(standfast.ApprovalRequired):
        sf.effects.begin("pay", {"to": hostile}, key="k", approve=True, why=hostile, context={"description": hostile})
    (waiting,) = sf.approvals.list()
    shown = import_module("standfast.cli.approval_question").lines(sf.approvals.question(waiting.id), width=80)
    assert not set(hostile) & set("\x1b\u202e\u200b") & set("".join(shown))


def check_agent(sf: standfast.Standfast) -> None:
    """A command of an agent cannot answer an approval."""
    with raising(standfast.ApprovalRequired):
        sf.effects.begin("pay", {"to": "ada"}, key="k", approve=True)
    (waiting,) = sf.approvals.list()
    people.entered()
    os.environ["CLAUDECODE"] = "1"
    with raising(standfast.ApprovalRequired):
        sf.approvals.grant(waiting.id, approver="agent")
    assert sf.approvals.get(waiting.id).state == "requested"


def _granted(sf: standfast.Standfast) -> Effect:
    with raising(standfast.ApprovalRequired):
        sf.effects.begin("pay", {"to": "ada"}, key="k", approve=True)
    (waiting,) = sf.approvals.list()
    sf.approvals.grant(waiting.id, approver="ada")
    return sf.effects.begin("pay", {"to": "ada"}, key="k", approve=True)


def check_pruned(sf: standfast.Standfast) -> None:
    from standfast_prove.scenes import prune

    with sf.session("a") as s:
        s.effect("t", key="k", do=lambda call: 1)
        prune(sf, "k")
        with raising(standfast.Conflict):
            s.effect("t", key="k", do=lambda call: 1)


def check_journal(sf: standfast.Standfast) -> None:
    from standfast_prove.scenes import told

    with sf.session("a") as s:
        s.effect("t", do=lambda call: 1)
    assert told(sf, only(sf).id) == ["planned", "dispatched", "acknowledged"]


def check_late_twice(sf: standfast.Standfast) -> None:
    """The first recorded result is kept, and the second is refused."""
    sf.effects.begin("pay", key="k")
    row = _row(sf)
    sf.effects.done("k", "first")
    late = sf._store.write(lambda tx: [transitions.acknowledge(tx, row, '"second"')])
    assert isinstance(late[0], standfast.LeaseLost)
    assert sf.effects.get("k").result == "first"


def _row(sf: standfast.Standfast, key: str = "k") -> Row:
    return sf._store.read(lambda tx: tx.one(transitions.SQL.by_key, scope=sf.scope, key=key))


def play(scene: Callable[[standfast.Standfast], None], directory: Path) -> None:
    """Runs one scene on a new store in a child process."""

    def played() -> None:
        with standfast.open(directory / "standfast.db", data_dir=directory, clock=ManualClock()) as sf:
            scene(sf)

    crash._live(played, 0, crash.Schedule(), 60.0)


SCENES: dict[str, Callable[[standfast.Standfast], None]] = {
    name.removeprefix("check_"): scene for name, scene in list(globals().items()) if name.startswith("check_")
}
SCENES |= shell_scenes.SCENES
