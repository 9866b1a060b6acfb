"""All kinds of work that can be pending in a store. Each kind says how a process leaves it when it dies, and how the
next process finishes it.

`resume` returns the outcome. It has to equal `expect`, after any migration in between.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import standfast
from standfast import when
from standfast.clock import HOUR_US, SECOND_US, SYSTEM, SystemClock
from standfast.core import leases
from standfast.db.contract import Caller
from standfast.db.sql import statement
from standfast.errors import ApprovalRequired
from standfast_prove.faults.rows import Oracle, noted

_ITEM = statement(
    "INSERT INTO item (scope, path, key, value, created_us, updated_us)"
    " VALUES (:scope, '[\"notes\"]', 'a', '{\"n\":1}', :now_us, :now_us)",
    name="pending_item",
)


class World:
    """The requests that arrived, in a file outside the store."""

    def __init__(self, home: Path) -> None:
        self._file = home / "world"

    def receive(self, what: str) -> str:
        book = Oracle(self._file)
        book.note(what)
        book.close()
        return what

    def count(self, what: str) -> int:
        return noted(self._file).count(what)


Make = Callable[[standfast.Standfast, World], object]


class Scene(NamedTuple):
    """One kind of pending work."""

    make: Make
    resume: Callable[[standfast.Standfast, World], Any]
    expect: Any


def make_pending(sf: standfast.Standfast, world: World) -> None:
    for scene in SCENES.values():
        scene.make(sf, world)


# -- leases and sessions --------------------------------------------------------------------------------------


def _lock(sf: standfast.Standfast, world: World) -> None:
    sf.leases.acquire("deploy")


def _lock_again(sf: standfast.Standfast, world: World) -> Any:
    taken = sf.leases.acquire("deploy")
    return [taken.fence, [event.type for event in sf.journal.about("lock:deploy")]]


def _session(sf: standfast.Standfast, world: World) -> None:
    s = sf.session("fix-42").__enter__()
    s.step("plan", lambda: "the old plan")
    s.say("user", "the parser is flaky")
    s.cursor = {"page": 3}
    s.state["branch"] = "fix-42"
    s.decide("edit parser.py", why="it is flaky", then="run the tests").__enter__()


def _session_again(sf: standfast.Standfast, world: World) -> Any:
    (open_one,) = sf.decisions.incomplete()
    with sf.session("fix-42") as s:
        assert s.resumed is not None
        plan = s.step("plan", lambda: "another plan")
        with s.decide("edit parser.py", why="it is flaky", then="run the tests") as decision:
            same = decision.id == open_one.id
        said = [message.content for message in s.messages()]
        found = [s.fence, plan, same, said, s.cursor, s.state["branch"]]
    return [*found, sf.sessions.get("fix-42").state, sf.decisions.show(open_one.id).state]


def _words(sf: standfast.Standfast, world: World) -> None:
    sf.session("zoo").__enter__()
    sf.sessions.say("zoo", "assistant", "a zebra stood in the parser")


def _words_found(sf: standfast.Standfast, world: World) -> Any:
    return len(sf.search("zebra").hits)


# -- effects and approvals --------------------------------------------------------------------------------------


def _intent(key: str) -> dict[str, Any]:
    return {"what": key}


def _planned(sf: standfast.Standfast, world: World) -> None:
    sf.effects.plan("pay", _intent("planned"), key="planned")


def _arrived(sf: standfast.Standfast, world: World) -> None:
    sf.effects.begin("pay", _intent("arrived"), key="arrived")
    world.receive("arrived")


def _lost(sf: standfast.Standfast, world: World) -> None:
    sf.effects.begin("pay", _intent("lost"), key="lost")


def _repeatable(sf: standfast.Standfast, world: World) -> None:
    sf.effects.begin("pay", _intent("repeatable"), key="repeatable", idempotent=True)


def _unknown(sf: standfast.Standfast, world: World) -> None:
    def breaks(call: standfast.Call) -> None:
        world.receive("unknown")
        raise TimeoutError("no answer")

    with suppress(TimeoutError), sf.session("unknown") as s:
        s.effect("pay", _intent("unknown"), key="unknown", do=breaks)


def _approval(key: str, answer: str | None = None) -> Make:
    """A request, and perhaps its answer, that no call has used yet."""

    def make(sf: standfast.Standfast, world: World) -> None:
        with suppress(ApprovalRequired), sf.session(f"asks {key}") as s:
            s.effect("pay", _intent(key), key=key, do=lambda call: world.receive(key), approve=True)
        (asked,) = [one for one in sf.approvals.list() if one.effect_id == sf.effects.get(key).id]
        if answer == "granted":
            sf.approvals.grant(asked.id, approver="a person")
        elif answer == "denied":
            sf.approvals.deny(asked.id, approver="a person")

    return make


def _sent(key: str, *, settle: bool = False) -> Callable[[standfast.Standfast, World], Any]:
    """Call the effect again. Returns the number of its requests that arrived, its state and attempt, and the states of
    its approvals.
    """

    def resume(sf: standfast.Standfast, world: World) -> Any:
        if settle:
            there = world.count(key)
            sf.effects.resolve(key, "applied" if there else "not_applied", evidence="the books", result=key)
        with suppress(ApprovalRequired), sf.session(f"pays {key}") as s:
            s.effect("pay", _intent(key), key=key, do=lambda call: world.receive(key), **_options(key, world))
        effect = sf.effects.get(key)
        about = [one for one in sf.approvals.list() if one.effect_id == effect.id]
        return [world.count(key), effect.state, effect.attempt, [[one.state, one.approver] for one in about]]

    return resume


def _options(key: str, world: World) -> dict[str, Any]:
    def probe(call: standfast.Call) -> Any:
        return standfast.Applied(key) if world.count(key) else standfast.NotApplied()

    if key == "repeatable":
        return {"idempotent": True}
    if key in ("asked", "granted", "denied"):
        return {"approve": True}
    return {"probe": probe, "settle": 0} if key in ("arrived", "lost") else {}


# -- state, tasks, streams, webhooks ------------------------------------------------------------------------------


def _value(sf: standfast.Standfast, world: World) -> None:
    sf.state.set("limits", {"n": 1})
    sf.state.swap("limits", {"n": 2}, version=1)


def _value_again(sf: standfast.Standfast, world: World) -> Any:
    was = sf.state.get("limits")
    return [was.value, sf.state.swap("limits", {"n": 3}, version=was.version).version]


def _task(sf: standfast.Standfast, world: World) -> None:
    sf.tasks.add("the parser is flaky", fingerprint="flaky")
    sf.tasks.claim()


def _task_again(sf: standfast.Standfast, world: World) -> Any:
    task = sf.tasks.claim()
    assert task is not None
    done = sf.tasks.done(task, result="mended")
    return [task.fingerprint, task.fence, done.state, sf.tasks.claim() is None]


def _stream(sf: standfast.Standfast, world: World) -> None:
    for n in range(3):
        sf.events.append("orders", "order.placed", {"n": n})
    sf.events.commit(sf.events.poll("billing", "orders", limit=2))


def _stream_again(sf: standfast.Standfast, world: World) -> Any:
    batch = sf.events.poll("billing", "orders")
    sf.events.commit(batch)
    return [[event.data["n"] for event in batch.events], sf.events.append("orders", "order.placed", {"n": 3}).version]


def _webhook(sf: standfast.Standfast, world: World) -> None:
    sf.webhooks.receive("github", "e1", {"n": 1})
    sf.webhooks.claim(source="github")


def _webhook_again(sf: standfast.Standfast, world: World) -> Any:
    handled = sf.webhooks.handle("github", lambda event: world.receive("webhook"))
    again = sf.webhooks.receive("github", "e1", {"n": 1})
    return [handled.done, again.state, again.result, again.fresh, world.count("webhook")]


# -- mail, loops, threads --------------------------------------------------------------------------------------------


def _mail(sf: standfast.Standfast, world: World) -> None:
    sf.mail.send("bert", {"text": "look at this"}, key="m1")
    sf.mail.send("bert", {"text": "and at this"}, key="m2")
    sf.mail.claim("bert")


def _mail_again(sf: standfast.Standfast, world: World) -> Any:
    found = []
    while (mail := sf.mail.claim("bert")) is not None:
        found.append([mail.key, mail.attempts, sf.mail.done(mail).state])
    return [sorted(found), sf.mail.send("bert", {"text": "look at this"}, key="m1").replayed]


class _Behind(SystemClock):
    """A clock that is an hour behind."""

    def now_us(self) -> int:
        return super().now_us() - HOUR_US


def _due(sf: standfast.Standfast, world: World) -> None:
    """Add the loop at a time before its slot."""
    store = sf._store
    now = store.caller
    store.caller = Caller(actor=now.actor, holder=now.holder, scope=now.scope, clock=_Behind())
    sf.loops.add("due", ["true"], at=when.utc(SYSTEM.now_us() - HOUR_US + 5 * SECOND_US))
    store.caller = now


def _due_again(sf: standfast.Standfast, world: World) -> Any:
    sf.loops.resume("due")  # an older version recorded no account
    sf.loops.fire_due()
    again = sf.loops.fire_due()
    return [[run.state for run in sf.runs.list("due")], len(again), sf.loops.get("due").state]


def _going(sf: standfast.Standfast, world: World) -> None:
    sf.loops.add("going", ["true"], every="1d")
    run = sf.runs.ask("going")
    sf.runs.claim(host="here", run_id=run.id)
    sf.runs.started(run.id, 1, pid=os.getpid(), process=str(leases.process(os.getpid(), SYSTEM)))


def _going_again(sf: standfast.Standfast, world: World) -> Any:
    sf.runs.abandon_dead()
    return [[run.state, run.attempt] for run in sf.runs.list("going")]


def _thread(sf: standfast.Standfast, world: World) -> None:
    from standfast.record.threads import Write

    sf.threads.put("t1", "c1", header=b"{}", values={"messages": True}, value_of=lambda channel: ("json", b"[1]"))
    sf.threads.put_writes("t1", "c1", [Write("task", "", 0, "messages", ("json", b"2"))])


def _thread_again(sf: standfast.Standfast, world: World) -> Any:
    found = sf.threads.get("t1")
    assert found is not None
    return [found.id, sorted(found.values), len(found.writes)]


def _item(sf: standfast.Standfast, world: World) -> None:
    sf._store.write(lambda tx: tx.run(_ITEM, scope=sf.scope, now_us=tx.now_us()))


def _item_again(sf: standfast.Standfast, world: World) -> Any:
    found = sf.items.get(("notes",), "a")
    return None if found is None else found.value


SCENES: dict[str, Scene] = {
    "lock held": Scene(_lock, _lock_again, [2, ["lease.acquired", "lease.taken_over"]]),
    "session active, decision open": Scene(
        _session,
        _session_again,
        [2, "the old plan", True, ["the parser is flaky"], {"page": 3}, "fix-42", "completed", "done"],
    ),
    "message said": Scene(_words, _words_found, 1),
    "effect planned": Scene(_planned, _sent("planned"), [1, "acknowledged", 1, []]),
    "effect dispatched, arrived": Scene(_arrived, _sent("arrived"), [1, "acknowledged", 1, []]),
    "effect dispatched, lost": Scene(_lost, _sent("lost"), [1, "acknowledged", 2, []]),
    "effect dispatched, repeatable": Scene(_repeatable, _sent("repeatable"), [1, "acknowledged", 2, []]),
    "effect unknown": Scene(_unknown, _sent("unknown", settle=True), [1, "acknowledged", 1, []]),
    "approval requested": Scene(_approval("asked"), _sent("asked"), [0, "planned", 0, [["requested", None]]]),
    "approval granted": Scene(
        _approval("granted", "granted"), _sent("granted"), [1, "acknowledged", 1, [["consumed", "a person"]]]
    ),
    "approval denied": Scene(
        _approval("denied", "denied"), _sent("denied"), [0, "planned", 0, [["denied", "a person"]]]
    ),
    "value of a version": Scene(_value, _value_again, [{"n": 2}, 3]),
    "task claimed": Scene(_task, _task_again, ["flaky", 2, "closed", True]),
    "stream half consumed": Scene(_stream, _stream_again, [[2], 4]),
    "webhook claimed": Scene(_webhook, _webhook_again, [1, "done", "webhook", False, 1]),
    "mail leased": Scene(_mail, _mail_again, [[["m1", 2, "done"], ["m2", 1, "done"]], True]),
    "loop due": Scene(_due, _due_again, [["queued"], 0, "finished"]),
    "run going": Scene(_going, _going_again, [["abandoned", 1]]),
    "thread of a graph": Scene(_thread, _thread_again, ["c1", ["messages"], 1]),
    "item of a graph": Scene(_item, _item_again, {"n": 1}),
}
