"""Walks: for each resource, one sequence of calls that uses every method that changes something.

A walk is a generator. It yields after each call, so that a test can look at the store between two calls, and
interleave two walks. `Names` holds every name a walk uses. Two walks whose names differ in one field
are neighbours in that field only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import standfast
from standfast import config, handle
from standfast.clock import Clock
from standfast.config.scope import Label
from standfast.record.items import Change
from standfast.record.threads import Write

HERE = "here"
"""The repository of the working directory, if there is one."""


@dataclass(frozen=True)
class Names:
    """Every name that a walk uses."""

    scope: str = "github.com/a/shop"
    actor: str = "ann"
    key: str = "k"
    lock: str = "deploy"
    namespace: str = "ns"
    source: str = "ci"
    stream: str = "orders"
    consumer: str = "billing"
    box: str = "reviewer"
    event: str = "evt-1"
    account: str = "acme"
    unit: str = "credits"
    budget: str = "team"
    loop: str = "nightly"
    session: str = "fix-42"
    agent: str = "builder"
    pattern: str = "git push*"
    what: str = "use the parser"
    path: str = "memory"
    thread: str = "t-1"
    repository: str = HERE

    def with_other(self, field: str, number: int) -> Names:
        return replace(self, **{field: f"{getattr(self, field)}-{number}"})


class Step(NamedTuple):
    """The return value of a call, and a function that reads the same row."""

    answer: Any
    reread: Callable[[], Any] | None = None


Walk = Callable[[standfast.Standfast, Names], Iterator[Step]]


def opened(
    url: str, place: Path, names: Names, *, clock: Clock | None = None, as_actor: bool = True, pid: int | None = None
) -> standfast.Standfast:
    """Open the store as one caller: an actor in a repository, or a process. All tests of callers use this function."""
    settings = config.load(url, data_dir=place / "data", actor=names.actor, scope=names.scope)
    if names.repository != HERE:
        settings = settings._replace(label=Label(None, names.repository))
    return handle.connect(settings, clock=clock, as_actor=as_actor, pid=pid)


def granted(sf: standfast.Standfast, approval: str) -> Any:
    """Approve as a person does. Every test of approvals uses this function."""
    sf.approvals.pose(approval)
    return sf.approvals.grant(approval, approver="boss")


# -- one walk for each resource --------------------------------------------------------------------------


def locks(sf: standfast.Standfast, n: Names) -> Iterator[Step]:
    reread = lambda: sf.leases.get(n.lock)  # noqa: E731
    lock = sf.leases.acquire(n.lock, note="release 7")
    yield Step(lock, reread)
    yield Step(sf.leases.acquire(n.lock, for_="20m"), reread)
    yield Step(sf.leases.renew(n.lock, lock.fence, for_="30m"), reread)
    yield Step(sf.leases.release(n.lock, lock.fence), reread)
    lock = sf.leases.acquire(n.lock)
    yield Step(lock, reread)
    yield Step(sf.leases.release(n.lock), reread)
    with sf.leases.hold(n.lock) as lock:
        yield Step(lock, reread)
    yield Step(sf.leases.get(n.lock))


def state(sf: standfast.Standfast, n: Names) -> Iterator[Step]:
    at: dict[str, Any] = {"namespace": n.namespace}
    reread = lambda: sf.state.get(n.key, **at)  # noqa: E731
    yield Step(sf.state.set(n.key, {"a": 1}, **at, json_schema={"type": "object"}, verify="make check"), reread)
    yield Step(sf.state.verified(n.key, version=1, verdict="fresh", evidence="ran it", **at), reread)
    yield Step(sf.state.swap(n.key, {"a": 2}, version=1, **at, for_="1h"), reread)
    yield Step(sf.state.verified(n.key, version=2, verdict="stale", **at), reread)
    yield Step(sf.state.update(n.key, lambda value: {**value, "b": 1}, **at), reread)
    yield Step(sf.state.delete(n.key, **at))
    yield Step([entry for entry in sf.state.list(**at) if entry.key == n.key])
    yield Step(sf.state.set(n.key, {"a": 3}, **at), reread)
    yield Step(sf.state.expire())
    yield Step(reread())


def tasks(sf: standfast.Standfast, n: Names) -> Iterator[Step]:
    t = sf.tasks
    seen = lambda title: t.add(title, source=n.source, fingerprint=f"{title} {n.source}")  # noqa: E731
    first = seen("parser is flaky")
    reread = lambda: t.get(first.id)  # noqa: E731
    yield Step(first, reread)
    yield Step(seen("parser is flaky"), reread)
    second = seen("docs are stale")
    yield Step(second, lambda: t.get(second.id))
    yield Step(t.edit(first.id, priority=1, labels=["x", "y"], body="why", branch="fix", assignee=sf.agent), reread)
    yield Step(t.note(first.id, "look at line 4"))
    yield Step(t.need(first.id, second.id), reread)
    yield Step(t.unneed(first.id, second.id), reread)
    yield Step(t.snooze(first.id, for_="1h"), reread)
    yield Step(t.reopen(first.id), reread)
    yield Step(t.accept(first.id, reason="known"), reread)
    yield Step(t.reopen(first.id), reread)
    claimed = t.claim(first.id)
    yield Step(claimed, reread)
    yield Step(t.renew(claimed, for_="30m"), reread)
    yield Step(t.release(claimed), reread)
    claimed = t.claim(first.id)
    yield Step(claimed, reread)
    yield Step(t.done(claimed, result={"pr": 7}, cool_down="1h"), reread)
    yield Step(seen("parser is flaky"), reread)  # the task is within its cool-down: the report is only counted
    for _ in range(4):  # the second task is absent from a fourth report, which closes it
        yield Step(t.sweep(n.source, seen=["new problem"]))
    yield Step(t.get(second.id))
    yield Step(seen("docs are stale"))


def streams(sf: standfast.Standfast, n: Names) -> Iterator[Step]:
    e = sf.events
    reread = lambda: e.stream(n.stream)  # noqa: E731
    yield Step(e.append(n.stream, "order.placed", {"id": 1}, key=f"{n.key} 1"))
    yield Step(e.append_many(n.stream, [("order.paid", {"id": 1}), ("order.sent", {"id": 1})], key=f"{n.key} 2"))
    yield Step(reread())
    yield Step(e.consumer(n.consumer, n.stream))
    batch = e.poll(n.consumer, n.stream, limit=2)
    yield Step([event.data for event in batch.events])
    yield Step(e.commit(batch).version)
    yield Step(e.seek(n.consumer, n.stream, to="beginning").version)
    batch = e.poll(n.consumer, n.stream)
    yield Step([event.version for event in batch.events])
    yield Step(e.commit(batch).version)
    total = lambda total, event: total + event.version  # noqa: E731
    yield Step(e.fold(n.stream, total, 0, name=f"sum {n.consumer}", snapshot_every=1).state)
    yield Step(e.delete_snapshots(f"sum {n.consumer}", n.stream))
    yield Step(e.forget(n.consumer, n.stream).name)
    yield Step([event.version for event in e.poll(n.consumer, n.stream).events])
    with e.consume(n.consumer, n.stream, idle=0) as consuming:
        yield Step([event.version for event in consuming])


def mail(sf: standfast.Standfast, n: Names) -> Iterator[Step]:
    m = sf.mail
    yield Step(m.bound(n.box, 50))
    first = m.send(n.box, {"do": "review"}, key=f"{n.key} {n.box}", subject="PR 7", sender=f"{n.box}-sender")
    reread = lambda: m.get(first.id)  # noqa: E731
    yield Step(first, reread)
    claimed = m.claim(n.box)
    yield Step(claimed, reread)
    yield Step(m.renew(claimed, for_="30m"), reread)
    yield Step(m.release(claimed, reason="busy"), reread)
    claimed = m.read(to=n.box)
    yield Step(claimed, reread)
    yield Step(m.defer(claimed, for_="1us"), reread)
    claimed = m.read(first.id)
    yield Step(claimed, reread)
    answer = m.reply(claimed, {"ok": True}, done=True, key=f"{n.key} {n.box} answer")
    yield Step(answer, lambda: m.get(answer.id))
    yield Step(reread())
    second = m.send(n.box, {"do": "again"})
    claimed = m.claim(n.box)
    yield Step(m.refuse(claimed, "not mine"), lambda: m.get(second.id))
    yield Step(m.retry(second), lambda: m.get(second.id))
    claimed = m.claim(n.box)
    yield Step(m.refuse(claimed, "not mine"), lambda: m.get(second.id))
    yield Step(m.resolve(second, note="called them"))
    third = m.send(n.box, "hello")
    for one in m.follow(n.box, timeout=0):
        yield Step(m.done(one, note="read"), lambda: m.get(third.id))
    yield Step(m.sweep())
    yield Step(reread())
    yield Step(m.send(n.box, "left for later"))  # a claim in another scope must not get it


def webhooks(sf: standfast.Standfast, n: Names) -> Iterator[Step]:
    w = sf.webhooks
    got = lambda number: w.receive(n.source, f"{n.event}-{number}", {"n": number}, kind=n.event, attempts_max=2)  # noqa: E731
    first = got(1)
    reread = lambda: w.get(first.id)  # noqa: E731
    yield Step(first, reread)
    yield Step(got(1), reread)
    claimed = w.claim(source=n.source, kind=n.event)
    yield Step(claimed, reread)
    yield Step(w.renew(claimed, for_="30m"), reread)
    yield Step(w.fail(claimed, "no network", again=0), reread)
    claimed = w.claim(first.id)
    yield Step(claimed, reread)
    yield Step(w.fail(claimed, "no network"), reread)  # the second of two attempts fails: the task is dead
    yield Step(w.retry(first.id, note="the network is back"), reread)
    claimed = w.claim(first.id)
    yield Step(w.done(claimed, {"ok": 1}), reread)
    second = got(2)
    claimed = w.claim(second.id)
    yield Step(w.fail(claimed, "bad payload", dead=True), lambda: w.get(second.id))
    yield Step(w.resolve(second.id, note="by hand", result={"ok": 2}), lambda: w.get(second.id))
    third = got(3)
    yield Step(w.handle(n.source, lambda event: {"handled": True}, kind=n.event), None)
    yield Step(w.get(third.id))
    yield Step(got(4))  # this one stays unfinished


def credits(sf: standfast.Standfast, n: Names) -> Iterator[Step]:
    c, at = sf.credits, {"unit": n.unit}
    key = f"{n.account} {n.unit} {n.key}"
    entry = c.grant(n.account, 100, key=f"{key} topup", reason="november", **at)
    yield Step(entry, lambda: c.get(f"{key} topup"))
    entry = c.spend(n.account, 70, key=f"{key} call", **at)
    yield Step(entry, lambda: c.get(f"{key} call"))
    with pytest.raises(standfast.Conflict):
        c.spend(n.account, 31, key=f"{key} too much", **at)
    yield Step(c.balance(n.account, **at))
    entry = c.refund(f"{key} call", amount=20)
    yield Step(entry, lambda: c.get(f"refund:{key} call"))
    yield Step(c.balance(n.account, **at))
    yield Step(c.list(account=n.account, **at))


def budgets(sf: standfast.Standfast, n: Names) -> Iterator[Step]:
    b = sf.budgets
    inner = f"{n.budget} inner"
    yield Step(b.set(n.budget, tokens=10_000, per="month"), lambda: b.get(n.budget))
    yield Step(b.set(inner, tokens=5_000, within=n.budget), lambda: b.get(inner))
    yield Step(b.set(inner, tokens=6_000, action="block"), lambda: b.get(inner))
    first = b.reserve(inner, tokens=2_000, key=f"{n.budget} {n.key}")
    reread = lambda: b.hold(first.id)  # noqa: E731
    yield Step(first, reread)
    with pytest.raises(standfast.Conflict):
        b.reserve(inner, tokens=4_001)
    yield Step(b.settle(first, tokens=812), reread)
    second = b.reserve(inner, tokens=100)
    yield Step(b.release(second), lambda: b.hold(second.id))
    third = b.reserve(n.budget, tokens=300)
    yield Step(b.give_up(third, note="no answer"), lambda: b.hold(third.id))
    yield Step(b.get(n.budget))
    yield Step(b.remove(inner).removed_us is not None)
    yield Step([one.name for one in b.list() if one.name in (n.budget, inner)])


def loops(sf: standfast.Standfast, n: Names) -> Iterator[Step]:
    loop = sf.loops.add(n.loop, ["true"], every="1h", retries_max=1, failures_max=2, backoff="1us", cwd="/")
    reread = lambda: sf.loops.get(loop.id)  # noqa: E731
    yield Step(loop, reread)
    yield Step(sf.loops.pause(n.loop, "holidays"), reread)
    yield Step(sf.loops.resume(n.loop), reread)
    run = sf.runs.ask(n.loop)
    again = lambda: sf.runs.get(run.id)  # noqa: E731
    yield Step(run, again)
    claimed = sf.runs.claim(host="here", run_id=run.id)
    yield Step(claimed, again)
    yield Step(sf.runs.started(run.id, 1, pid=1, process="p:elsewhere:1:1:1:1"), again)
    yield Step(sf.runs.requeue(run.id, 1, reason="it never began"), again)
    yield Step(sf.runs.claim(host="here", run_id=run.id), again)
    yield Step(sf.runs.adopt(run.id, 2), again)
    yield Step(sf.runs.cancel(run.id, "not today"), again)
    yield Step([one.id for one in sf.runs.to_cancel() if one.id == run.id])
    yield Step(sf.runs.finish(run.id, 2, exit_code=1, duration="5us", cancelled=True), again)
    for expected in ("failed", "failed"):  # the second failure in a row pauses the loop
        run = sf.runs.ask(n.loop)
        sf.runs.claim(host="here", run_id=run.id)
        first = sf.runs.finish(run.id, 1, exit_code=3, duration="5us")
        yield Step(first, again)
        sf.runs.claim(host="here", run_id=run.id)
        ended = sf.runs.finish(run.id, 2, exit_code=3, duration="5us")
        assert ended.state == expected
        yield Step(ended, again)
    yield Step(reread())
    yield Step(sf.runs.abandon_dead())
    yield Step(sf.loops.fire_due())
    yield Step(sf.loops.remove(n.loop), reread)


def sessions(sf: standfast.Standfast, n: Names) -> Iterator[Step]:
    with sf.session(n.session, agent="builder") as s:
        reread = lambda: sf.sessions.get(s.id)  # noqa: E731
        yield Step(s.record, reread)
        yield Step(s.say("user", "please", key="1"))
        yield Step(sf.sessions.say(s.id, "assistant", "yes", key="2"))
        yield Step(s.step("build", lambda: {"ok": 1}))
        s.cursor = {"line": 4}
        yield Step(reread().cursor)
        s.state["branch"] = "fix"
        yield Step(s.state["branch"])
        yield Step(s.log("note.taken", {"a": 1}).version)
        yield Step(s.checkpoint(summary="asked"))
        yield Step(s.fold(lambda said: f"{len(said)} messages", keep_last=0))
        yield Step(s.subagent("reviewer").say("user", "look"))
        with s.decide("edit parser.py", why="slow", then="run the tests") as decision:
            yield Step(decision.id)
        yield Step(s.effect("mail.send", {"to": "ann"}, do=lambda call: {"sent": 1}))
        s.pause("lunch")
    yield Step(reread())
    fork = sf.sessions.fork(s.id, f"{n.session} fork")
    yield Step(fork, lambda: sf.sessions.get(fork.id))
    opened = sf.sessions.open(n.session).record
    yield Step(opened, reread)
    yield Step(sf.sessions.take(s.id), reread)
    yield Step(sf.sessions.end(s.id, "failed", reason="gave up"), reread)
    opened = sf.sessions.open(n.session).record
    yield Step(sf.sessions.exited(s.id, holder=opened.holder or "", code=3), reread)
    yield Step([message.content for message in sf.sessions.messages(fork.id)])
    yield Step(sf.checkpoints.delete_all(s.id))
    with sf.session(f"{n.session} again") as again:
        yield Step(again.proceed("nothing is in doubt"))
    left = sf.sessions.open(f"{n.session} again").record
    yield Step(sf.sessions.leave(left.id, fence=left.fence), lambda: sf.sessions.get(left.id))


def effects(sf: standfast.Standfast, n: Names) -> Iterator[Step]:
    e = sf.effects
    planned = e.plan("mail.send", {"to": "ann"}, key=n.key)
    reread = lambda: e.get(planned.id)  # noqa: E731
    yield Step(planned, reread)
    yield Step(e.dispatch(planned.id), reread)
    yield Step(e.fail(planned.id, "no network", attempt=1), reread)
    yield Step(e.begin("mail.send", {"to": "ann"}, key=n.key), reread)
    yield Step(e.done(planned.id, {"id": 7}, attempt=2, external_ref="msg-7"), reread)
    second = e.plan("mail.send", {"to": "bob"}, key=f"{n.key} second")
    yield Step(e.supersede(second.id, reason="not needed"), lambda: e.get(second.id))


def approvals(sf: standfast.Standfast, n: Names) -> Iterator[Step]:
    planned = sf.effects.plan("shop.refund", {"order": 7}, key=f"{n.key} refund", approve=True)
    asked = sf.approvals.request(planned.id, why="policy")
    reread = lambda: sf.approvals.get(asked.id)  # noqa: E731
    yield Step(asked, reread)
    yield Step(sf.approvals.question(asked.id))
    yield Step(granted(sf, asked.id), reread)
    sent = sf.effects.begin("shop.refund", {"order": 7}, key=f"{n.key} refund", approve=True)
    yield Step(sent.state)
    yield Step(reread())  # this call uses the approval
    other = sf.effects.plan("shop.refund", {"order": 8}, key=f"{n.key} refund, no", approve=True)
    asked = sf.approvals.request(other.id)
    yield Step(sf.approvals.deny(asked.id, approver="boss", rationale="too much"), reread)


def gates(sf: standfast.Standfast, n: Names) -> Iterator[Step]:
    gate = sf.gates.add(n.pattern, why="policy")
    yield Step(gate)
    yield Step([one.need for one in sf.gates.list() if one.pattern == n.pattern])
    with suppress(OSError):
        sf.gates.mirror()
    yield Step(sf.gates.pause(n.pattern, for_="1h", why="release"))
    yield Step(sf.gates.resume(n.pattern))
    yield Step([one.pattern for one in sf.gates.add_preset("kubectl-delete")])
    yield Step(sf.gates.remove(n.pattern))
    yield Step([one.need for one in sf.gates.list() if one.pattern == n.pattern])


def decisions(sf: standfast.Standfast, n: Names) -> Iterator[Step]:
    d = sf.decisions
    first = d.record(n.what, why="faster", then="measure", tags=["perf"])
    reread = lambda: d.show(first.id)  # noqa: E731
    yield Step(first, reread)
    yield Step(d.done(first.id, {"faster": True}), reread)
    second = d.record(f"{n.what} again", then="measure")
    yield Step(d.fail(second.id, "slower"), lambda: d.show(second.id))
    rule = d.record(f"{n.what} always", standing=True)
    yield Step(rule, lambda: d.show(rule.id))
    yield Step(d.withdraw(rule.id, "not any more"), lambda: d.show(rule.id))
    yield Step(d.reopen(rule.id), lambda: d.show(rule.id))
    yield Step(d.withdraw(rule.id, "still not"), lambda: d.show(rule.id))
    yield Step(d.catch(f"{n.what} caught", control="review"))
    yield Step(d.record(n.what, then="measure"))  # left open


def agents(sf: standfast.Standfast, n: Names) -> Iterator[Step]:
    reread = lambda: sf.agents.get(n.agent)  # noqa: E731
    yield Step(sf.agents.set(n.agent, kind="claude-code", status="active", config={"m": 1}), reread)
    yield Step(sf.agents.set(n.agent, status="blocked", why="waits", metadata={"x": 1}), reread)
    yield Step(sf.agents.set(n.agent, status="idle"), reread)
    yield Step(sf.agents.name(f"{n.agent} named", agent=n.agent).kind)


def artifacts(sf: standfast.Standfast, n: Names) -> Iterator[Step]:
    put = sf.artifacts.put(b"log", name=f"{n.key}.log", kind="log", retention="scratch")
    yield Step(put, lambda: sf.artifacts.show(put.id))
    yield Step(sf.artifacts.read(put.id))
    yield Step(sf.artifacts.remove(put.id))


def items(sf: standfast.Standfast, n: Names) -> Iterator[Step]:
    path = (n.path, "facts")
    yield Step(sf.items.change([Change(path, n.key, {"a": 1}, vectors={"f": [1.0, 2.0]})]))
    yield Step(sf.items.get(path, n.key))
    yield Step(sf.items.change([Change(path, n.key, {"a": 2})]))
    yield Step(sf.items.refresh([(path, n.key)]))
    yield Step(sf.items.change([Change(path, n.key, None)]))
    yield Step(sf.items.get(path, n.key))
    yield Step(sf.items.change([Change(path, n.key, {"a": 3})]))
    yield Step(sf.items.sweep())


def knowledge(sf: standfast.Standfast, n: Names) -> Iterator[Step]:
    k = sf.knowledge
    first = k.add("CI needs node 20", agent=n.agent, source="https://ci.test/1", tags=["ci"], embedding=[1.0, 2.0])
    yield Step(first, lambda: k.show(first.id))
    second = k.add("CI needs node 22", agent=n.agent, supersedes=first.id, fresh_for="30d")
    yield Step(second, lambda: k.show(second.id))
    yield Step([one.text for one in k.search("node", agent=n.agent, embedding=[1.0, 2.0])])
    yield Step(k.forget(second.id).id)
    yield Step([one.text for one in k.list(agent=n.agent)])


def threads(sf: standfast.Standfast, n: Names) -> Iterator[Step]:
    t, at = sf.threads, {"namespace": n.namespace}

    def put(id: str, parent: str | None) -> Any:
        value = lambda channel: ("json", f"{channel} {id}".encode())  # noqa: E731
        return t.put(
            n.thread, id, header=b"{}", parent_id=parent, values={"a": False}, value_of=value, run_id=n.thread, **at
        )

    yield Step(put("1", None) is not None)
    yield Step(put("2", "1") is not None)
    yield Step(t.put_writes(n.thread, "2", [Write("task", "", 0, "a", ("json", b"1"))], **at))
    yield Step(t.copy(n.thread, f"{n.thread} copy"))
    yield Step(t.prune(f"{n.thread} copy"))
    yield Step(t.delete(f"{n.thread} copy"))
    yield Step(sorted(id for _, id in t.ids(n.thread)) if n.namespace == "ns" else ["1", "2"])
    yield Step(t.delete_runs([n.thread]) >= 0)
    yield Step(put("3", None) is not None)


class Resource(NamedTuple):
    walk: Walk
    beside: tuple[str, ...]
    """The names in which a neighbour may differ. Each of them is part of the identity of its rows."""


RESOURCES = {
    "locks": Resource(locks, ("scope", "lock")),
    "state": Resource(state, ("scope", "repository", "namespace", "key")),
    "tasks": Resource(tasks, ("scope", "repository", "source")),
    "streams": Resource(streams, ("scope", "stream", "consumer")),
    "mail": Resource(mail, ("scope", "box")),
    "webhooks": Resource(webhooks, ("scope", "source", "event")),
    "credits": Resource(credits, ("scope", "account", "unit")),
    "budgets": Resource(budgets, ("scope", "budget")),
    "loops": Resource(loops, ("scope", "loop")),
    "sessions": Resource(sessions, ("scope", "session")),
    "effects": Resource(effects, ("scope", "key")),
    "approvals": Resource(approvals, ("scope", "key")),
    "gates": Resource(gates, ("scope", "repository", "pattern")),
    "decisions": Resource(decisions, ("scope", "repository", "what")),
    "agents": Resource(agents, ("scope", "agent")),
    "artifacts": Resource(artifacts, ("scope", "key")),
    "items": Resource(items, ("scope", "path", "key")),
    "knowledge": Resource(knowledge, ("scope", "agent")),
    "threads": Resource(threads, ("scope", "thread")),
}
