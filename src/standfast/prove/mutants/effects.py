"""Bugs that effects could have, each as a small patch, and the harness that has to find it.

    sweep …    the crash sweep of that story: every crash, and an oracle outside the store
    check …    a short scene below, for what no killed process can show

`standfast prove --mutants` prints who found what.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import standfast
from standfast import crash, serial
from standfast.clock import ManualClock
from standfast.db.contract import Row
from standfast.db.sql import Statement, statement
from standfast.footings import leases
from standfast.ledger.effects import alone, doubting, finding, identity, performing, transitions, words
from standfast.ledger.effects.call import Call, NotApplied, Unknown
from standfast.prove.mutants.patching import Patch, Setter
from standfast.prove.raising import raising
from standfast.prove.scenes import elsewhere, only, orphan


class Mutant(NamedTuple):
    """One bug: what it does, who finds it, how it is made."""

    what: str
    harness: str
    patch: Patch


# -- scenes: each ends in an AssertionError, or in the error a user would see, if the bug is there ----------------


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


# -- patches ------------------------------------------------------------------------------------------------


def replaced(name: str, old: str, new: str) -> Patch:
    """A statement with a piece of it missing."""

    def patch(m: Setter) -> None:
        found: Statement = getattr(transitions.SQL, name)
        assert old in found.sqlite, f"{name} has no {old!r} any more"
        m.setattr(transitions.SQL, name, statement(found.sqlite.replace(old, new), name=name))

    return patch


def swapped(module: Any, name: str, make: Callable[[Any], Any]) -> Patch:
    """A function in the place of another; it is given the other."""
    return lambda m: m.setattr(module, name, make(getattr(module, name)))


def act_first(walk: Any) -> Any:
    def patched(store: Any, work: Any, wanted: Any, **more: Any) -> Any:
        if store.read(lambda tx: performing._look(tx, wanted)) is None:
            call = Call(identity.call_key("x", wanted.scope, wanted.key), 1, None)
            value = work.act(None, call)
            crash.point("effect.before_begin")
            return walk(store, work._replace(act=lambda *_: value), wanted, **more)
        return walk(store, work, wanted, **more)

    return patched


def never_recorded(recorded: Any) -> Any:
    return lambda store, row, result, artifact_id: crash.point("effect.before_done")


def settled_as(answer: str) -> Callable[[Any], Any]:
    def make(inquired: Any) -> Any:
        def patched(store: Any, work: Any, wanted: Any, doubt: Any, call: Any) -> Any:
            result = '"skipped"' if answer == "applied" else None
            return finding.Finding(doubt.row["attempt"], answer, result, "guessed")

        return patched

    return make


def taken_for_no(asked: Any) -> Any:
    def patched(*args: Any) -> Any:
        answer = asked(*args)
        return NotApplied() if isinstance(answer, Unknown) else answer

    return patched


def one_call_key(call_key: Any) -> Any:
    return lambda store_id, scope, key: call_key(store_id, scope, f"{key}{os.urandom(4).hex()}")


@contextmanager
def nobody_else(*_: Any) -> Iterator[None]:
    yield


MUTANTS: dict[str, Mutant] = {
    "act before the intent is recorded": Mutant(
        "the world is touched first", "sweep only_plain", swapped(performing, "walk", act_first)
    ),
    "acknowledge before commit": Mutant(
        "the result is returned and never written", "sweep only_plain", swapped(performing, "_recorded", never_recorded)
    ),
    "doubt taken for done": Mutant(
        "what was perhaps sent is skipped", "sweep only_plain", swapped(doubting, "inquire", settled_as("applied"))
    ),
    "doubt taken for failed": Mutant(
        "what was perhaps sent is sent", "sweep only_plain", swapped(doubting, "inquire", settled_as("not_applied"))
    ),
    "an error proves that nothing was sent": Mutant(
        "any exception makes it failed",
        "sweep failing",
        swapped(
            performing, "_gave_up", lambda _: lambda store, work, row, error: performing._failed(store, row, error)
        ),
    ),
    "give-up not recorded": Mutant(
        "an error leaves the lease", "check at_once", swapped(performing, "_gave_up", lambda _: lambda *_: None)
    ),
    "prose identifies": Mutant(
        "by is not used",
        "sweep only_probed",
        swapped(identity, "project", lambda _: lambda intent, by: intent),
    ),
    "key not compared": Mutant(
        "a key may name anything",
        "check conflict",
        swapped(finding, "mismatch", lambda _: lambda row, wanted: None),
    ),
    "probe unknown taken for not applied": Mutant(
        "a shrug sends it again", "sweep shrugging", swapped(doubting, "_asked", taken_for_no)
    ),
    "not applied counts at once": Mutant(
        "a sleeping holder is not waited for",
        "check asleep",
        swapped(finding, "_long_over", lambda _: lambda tx, row: True),
    ),
    "a window without an end": Mutant(
        "the remote never forgets",
        "check window",
        swapped(finding, "remembered", lambda _: lambda tx, row, window_us: window_us is not None),
    ),
    "another key for each attempt": Mutant(
        "the remote cannot know it again", "sweep only_idempotent", swapped(identity, "call_key", one_call_key)
    ),
    "other words under the same key": Mutant(
        "a resend says what the caller says now",
        "sweep only_idempotent",
        swapped(
            performing, "_acted", lambda acted: lambda s, w, go, call: acted(s, w, go._replace(resent=False), call)
        ),
    ),
    "no fence at the end": Mutant(
        "any attempt may acknowledge", "check sleeper", replaced("acknowledge", "AND attempt = :attempt", "")
    ),
    "attempt not increased": Mutant(
        "the fence stands still", "check sleeper", replaced("dispatch", "attempt = attempt + 1", "attempt = attempt")
    ),
    "ended twice": Mutant(
        "what is acknowledged may be acknowledged",
        "check late_twice",
        replaced("acknowledge", "AND state = 'dispatched'", ""),
    ),
    "no owner": Mutant(
        "a session that was taken over may begin",
        "check taken",
        replaced("insert", "AND s.fence = :session_fence AND s.holder = :session_holder", ""),
    ),
    "second thread not refused": Mutant(
        "two threads of one process", "check second_thread", swapped(performing, "alone", lambda _: nobody_else)
    ),
    "the dead are alive": Mutant(
        "a crash is waited for", "sweep only_plain", swapped(leases, "is_gone", lambda _: lambda holder, clock: False)
    ),
    "replay without sync": Mutant(
        "acting on what may vanish", "check young", swapped(transitions, "YOUNG_US", lambda _: 0)
    ),
    "not decoded from what was stored": Mutant(
        "first run and replay differ",
        "check stored",
        swapped(serial, "read", lambda read: lambda text: (1, 2) if text == "[1,2]" else read(text)),
    ),
    "pruned, and done again": Mutant(
        "a tombstone is not seen", "check pruned", swapped(words, "closed", lambda _: lambda row: None)
    ),
    "three commits": Mutant(
        "planned and dispatched apart",
        "check commits",
        swapped(
            performing,
            "_begin_once",
            lambda begin: lambda s, id, w, f: (begin(s, id, w._replace(plan=True), f), begin(s, id, w, f))[1],
        ),
    ),
    "nobody is asked": Mutant(
        "approve is not heard",
        "check yes",
        swapped(
            performing, "wanted_for", lambda made: lambda *a, **k: made(*a, **k)._replace(approve=False, context=None)
        ),
    ),
    "an effect leaves no trace": Mutant(
        "nothing is journalled", "check journal", swapped(words, "say", lambda _: lambda *a, **k: None)
    ),
}


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


def found_by(mutant: Mutant, directory: Path, *, schedules: int = 400) -> str | None:
    """What its harness says about the bug; None if it is not noticed."""
    kind, _, name = mutant.harness.partition(" ")
    try:
        if kind == "sweep":
            from standfast.prove.crashes.effects import swept

            swept(directory, name, schedules)
        else:
            crash._live(lambda: _scene(globals()[f"check_{name}"], directory), 0, crash.Schedule(), 60.0)
    except AssertionError as error:
        return str(error)
    return None


def _scene(check: Callable[[standfast.Standfast], None], directory: Path) -> None:
    with standfast.open(directory / "standfast.db", data_dir=directory, clock=ManualClock()) as sf:
        check(sf)
