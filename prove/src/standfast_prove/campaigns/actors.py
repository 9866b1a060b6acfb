"""Schedulers, workers, approvers and auditors work on one family of sessions, each in a process of its own.

A job is a task. A worker that claims it opens a session for the job (a fork of the family's session), plans a step and
sends effects of every kind. One kind needs an approval, another a person who settles doubts. Approvers give different
answers. Some processes die at a crash point, others are killed or stopped at a random moment. An auditor reads one
snapshot at a time and compares it with the journal and with books outside the store:

    world    one line for each request that arrived
    told     one line for each answer that an actor got from the store
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import standfast
from standfast import config, crash, handle
from standfast.clock import SYSTEM
from standfast.core import journal, leases
from standfast.db.contract import Row, Tx
from standfast.db.sql import statement
from standfast.errors import (
    ApprovalRequired,
    Busy,
    CommitUnknown,
    EffectInDoubt,
    IllegalTransition,
    InProgress,
    LeaseLost,
    StorageError,
)
from standfast_prove.campaigns.warm import warmed
from standfast_prove.faults.children import Nursery
from standfast_prove.faults.rows import Oracle, integrity, noted
from standfast_prove.mutants.patching import Patching
from standfast_prove.outcome import Outcome

ROOT = "family"
SCOPE = "family"
HERE = "standfast_prove.campaigns.actors:"
KINDS = (("probed", "asked"), ("idempotent", "probed"), ("plain",))
"""The effect that each third of the jobs sends. `asked` needs an approval, `plain` a person if it is in doubt."""
SHORT = "20ms"
"""The lease of this claim ends before the work does. Another worker takes the task, and the fence must hold."""
PATIENCE_S = 600.0
WEATHER = ("unreachable", "timeout", "transaction_too_long")
"""Many processes on a busy machine may be too much for a server. A refused process ends, and another starts."""
GIVEN_UP = 75
SLOW_S = (0.001, 0.01, 0.1, 1.0)

_MOVES = frozenset(
    {
        ("", "planned"),
        ("planned", "dispatched"),
        ("dispatched", "acknowledged"),
        ("dispatched", "failed"),
        ("failed", "dispatched"),
    }
)
_ANSWERS = frozenset({("", "requested"), ("requested", "granted"), ("requested", "denied"), ("granted", "consumed")})

_EFFECTS = statement("SELECT id, tool, key, session_id, state, attempt, approval_id FROM effect ORDER BY id")
_APPROVALS = statement("SELECT id, effect_id, state, attempt, approver FROM approval ORDER BY id")
_TASKS = statement("SELECT id, fingerprint, episode, state, fence FROM task ORDER BY id")
_SESSIONS = statement("SELECT id, key, state, fence FROM session")
_EVENTS = statement("SELECT seq, type, subject, state FROM event WHERE seq > :seq ORDER BY seq")
_CLOSED = statement("SELECT count(*) AS n FROM task WHERE state = 'closed'")


def run(
    place: Path,
    *,
    seed: int,
    url: str | None = None,
    families: int = 1,
    jobs: int = 12,
    workers: int = 4,
    others: int = 2,
    kills: int = 10,
    careless: bool = False,
    patience_s: float = PATIENCE_S,
) -> Outcome:
    """Play `families` one after another. Each has its own file on SQLite; on a server all use one store.

    `others` is the number of processes of each other kind. `careless` is the control: no actor checks
    whether another one is alive.
    """
    outcome = Outcome("actors")
    with Nursery(words=place / "words") as nursery:
        warmed(nursery, postgres=url is not None)
        for number in range(families if url is None else 1):
            home = place / f"family-{number}"
            home.mkdir()
            asked: dict[str, object] = {"url": url or str(home / "standfast.db"), "place": str(home), "jobs": jobs}
            asked |= {"careless": careless, "crowd": workers + 3 * others}
            _found(asked, seed)
            stage = _Stage(nursery, asked, random.Random(f"{seed} {number}"), kills, url)
            stage.play({"schedule": others, "work": workers, "approve": others, "audit": others}, patience_s)
            for what, count in stage.seen.items():
                outcome.count(what, count)
            outcome.refuse(stage.failed, f"actors ended with an error: {_words(place)}")
            if not stage.failed:
                _judge(outcome, home, asked, seed)
            if outcome.bad:
                break
    return outcome


def _found(asked: dict[str, object], seed: int) -> None:
    with _opened(asked, "founder") as sf, sf.session(ROOT) as root:
        root.step("rules", lambda: f"rules of {seed}")
        root.say("user", "work through the jobs")
        root.pause("its forks work")


def _words(place: Path) -> str:
    return (place / "words").read_text(errors="replace")[-1500:]


class _Stage:
    """All processes of the campaign, and their faults."""

    def __init__(
        self, nursery: Nursery, asked: dict[str, object], draw: random.Random, kills: int, url: str | None
    ) -> None:
        self._nursery, self._asked, self._draw, self._kills, self._url = nursery, asked, draw, kills, url
        self._alive: dict[int, str] = {}
        self._number = 0
        self.failed: list[str] = []
        self.seen: Counter[str] = Counter()

    def play(self, cast: dict[str, int], patience_s: float) -> None:
        end, roles = time.monotonic() + patience_s, [role for role, count in cast.items() for _ in range(count)]
        gate = [self._starter(role) for role in roles]
        pids: list[int] = []
        for role in cast:  # stop all processes of one kind at the same moment
            of_role = [starter for starter, its in zip(gate, roles, strict=True) if its == role]
            pids += self._nursery.race(HERE + role, of_role)
        self._alive = dict(zip(pids, roles, strict=True))
        self.seen["actors"] += len(pids)
        if len(pids) >= 64:
            self.seen["crowds of 64 processes or more"] += 1
        most = 0
        with _connections(self._url) as connections:
            while self._alive and not self.failed:
                if time.monotonic() > end:
                    self.failed.append(f"it was not over in {patience_s:g} s: {Counter(self._alive.values())}")
                most = max(most, connections())
                self._torment()
                self._reap()
        if most >= 128:
            self.seen["crowds of 128 connections or more"] += 1
        for pid in self._alive:
            self._nursery.kill(pid)

    def _starter(self, role: str) -> dict[str, object]:
        self._number += 1
        fuse = 0
        if role != "audit" and self._kills > 0 and self._draw.random() < 0.6:
            fuse, self._kills = self._draw.choice([3, 10, 30, 100, 300]) + self._draw.randrange(20), self._kills - 1
        return self._asked | {"number": self._draw.randrange(2**32), "fuse": fuse}

    def _torment(self) -> None:
        time.sleep(self._draw.uniform(0.005, 0.04))
        if self._kills > 0 and self._alive:
            pid = self._draw.choice(list(self._alive))
            if self._draw.random() < 0.4:
                os.kill(pid, signal.SIGKILL)  # not reaped yet, so the kernel cannot reuse the pid
                self._kills -= 1
            else:
                os.kill(pid, signal.SIGSTOP)
                time.sleep(self._draw.uniform(0.001, 0.06))
                os.kill(pid, signal.SIGCONT)
                self.seen["pauses"] += 1

    def _reap(self) -> None:
        for pid, role in list(self._alive.items()):
            code = self._nursery.wait(pid, 0)
            if code is None:
                continue
            del self._alive[pid]
            if code in (-signal.SIGKILL, GIVEN_UP):
                self.seen["kills" if code != GIVEN_UP else "actors that gave up"] += 1
                again = self._nursery.start(HERE + role, **self._starter(role))
                self._alive[again] = role
                self.seen["actors"] += 1
            elif code != 0:
                self.failed.append(f"{role} ended with {code}")


@contextmanager
def _connections(url: str | None) -> Iterator[Callable[[], int]]:
    """The number of other connections to this database; 0 on SQLite."""
    if url is None:
        yield lambda: 0
        return
    import psycopg

    with psycopg.connect(url, autocommit=True) as asking:

        def count() -> int:
            row = asking.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            ).fetchone()
            return int(row[0]) if row else 0

        yield count


# -- the end ---------------------------------------------------------------------------------------------


def _judge(outcome: Outcome, place: Path, asked: dict[str, object], seed: int) -> None:
    """Compare with the files outside the store: everything happened once."""
    jobs = int(str(asked["jobs"]))
    world, acked = World(place).lines(), [json.loads(line) for line in noted(place / "acked")]
    with _opened(asked, "judge") as sf:
        try:
            audit = Audit(sf, place)
            audit.look()
            audit.all_of_it()
        except AssertionError as error:
            outcome.refuse(error, "the journal")
            return
        _judge_sends(outcome, audit, world, jobs)
        _judge_tasks(outcome, audit, acked, jobs)
        _judge_answers(outcome, audit, acked)
        said = [message.content for message in sf.sessions.messages(ROOT, last=1000)]
        wanted = {"work through the jobs", *(f"job {n}" for n in range(jobs))}
        outcome.refuse(sorted(said) != sorted(wanted) and said, "messages of the family")
        rules = {line["value"] for line in acked if line["what"] == "rules"}
        outcome.refuse(rules - {f"rules of {seed}"}, "a fork did not see its family's step")
    plans = Counter(line["job"] for line in {json.dumps(one): one for one in acked if one["what"] == "plan"}.values())
    outcome.refuse([job for job, values in plans.items() if values > 1], "a recorded step had two results")
    for line in acked:
        if line["what"] == "weather":
            outcome.count(f"met {line['error']}")
    _count_waits(outcome, [line["s"] for line in acked if line["what"] == "claimed"])
    if "://" not in str(asked["url"]):
        state = integrity(str(asked["url"]))
        outcome.refuse(state != "ok" and state, "integrity")
    outcome.count("jobs", jobs)


def _judge_sends(outcome: Outcome, audit: Audit, world: list[list[str]], jobs: int) -> None:
    sent = Counter((kind, job) for kind, job, _ in world)
    arrived = Counter((kind, job) for kind, job, _ in {tuple(line) for line in world})
    outcome.count("effects", len(audit.effects))
    for effect in audit.effects.values():
        name = (effect["tool"], audit.job_of(effect))
        denied = any(one["state"] == "denied" for one in audit.approvals_of(effect))
        wanted = 0 if denied else 1
        states = ("planned", "failed") if denied else ("acknowledged",)  # failed: a second grant
        outcome.refuse(effect["state"] not in states and effect, f"{name} should be {states[0]}")
        number = (arrived if effect["tool"] == "idempotent" else sent)[name]
        outcome.refuse(number != wanted and f"{number} times", f"{name} was sent")
    known = {(effect["tool"], audit.job_of(effect)) for effect in audit.effects.values()}
    outcome.refuse(set(sent) - known, "sent, and not recorded")
    expected = {(kind, str(job)) for job in range(jobs) for kind in KINDS[job % len(KINDS)]}
    outcome.refuse(expected ^ known, "not every job has its effects")


def _judge_tasks(outcome: Outcome, audit: Audit, acked: list[dict[str, Any]], jobs: int) -> None:
    names = sorted(task["fingerprint"] for task in audit.tasks.values())
    outcome.refuse(names != sorted(f"job-{n}" for n in range(jobs)) and names, "tasks")
    for task in audit.tasks.values():
        ends = [line for line in acked if line["what"] == "done" and line["task"] == task["id"]]
        outcome.refuse(len(ends) > 1 and ends, f"{task['fingerprint']} was done more than once")
        late = [line for line in ends if line["fence"] != task["fence"]]
        outcome.refuse(late, f"{task['fingerprint']} was done with another fence than {task['fence']}")
        outcome.refuse(task["state"] != "closed" and task, "a task was left open")


def _judge_answers(outcome: Outcome, audit: Audit, acked: list[dict[str, Any]]) -> None:
    outcome.count("approvals", len(audit.approvals))
    for approval in audit.approvals.values():
        answers = [line for line in acked if line["what"] == "answered" and line["approval"] == approval["id"]]
        outcome.refuse(len(answers) > 1 and answers, "an approval was answered more than once")
        state = "granted" if approval["state"] == "consumed" else approval["state"]
        for line in answers:
            same = line["state"] == state and line["by"] == approval["approver"]
            outcome.refuse(not same and (line, approval), "an approver read something else")
        types = [event["type"] for event in audit.events_of(approval["id"])]
        outcome.refuse(max(Counter(types).values()) > 1 and types, "an approval went through a state twice")
        outcome.refuse(approval["state"] not in ("consumed", "denied") and approval, "an approval was left")


def _count_waits(outcome: Outcome, waits: list[float]) -> None:
    """The numbers of claims that took longer than each limit. Numbers of several runs can be added."""
    outcome.count("claims", len(waits))
    for bound in SLOW_S:
        outcome.count(f"claims that took over {bound * 1000:g} ms", sum(wait > bound for wait in waits))


# -- the books ---------------------------------------------------------------------------------------------


class World:
    """What arrived: `kind job key`, one write a line."""

    def __init__(self, place: Path) -> None:
        self._file = place / "world"

    def receive(self, kind: str, job: int, key: str) -> str:
        book = Oracle(self._file)
        book.note(f"{kind}\t{job}\t{key}")
        book.close()
        return f"{kind} {job}"

    def lines(self) -> list[list[str]]:
        return [line.split("\t") for line in noted(self._file)]

    def has(self, kind: str, job: int) -> bool:
        return any(line[:2] == [kind, str(job)] for line in self.lines())


class Audit:
    """Reads the store repeatedly. Compares tables, journal and outside files with each other and with earlier reads."""

    def __init__(self, sf: standfast.Standfast, place: Path) -> None:
        self._sf, self._place = sf, place
        self._events: list[Row] = []
        self._cursor: str | None = None
        self._tailed: list[int] = []
        self._heard = 0
        self.effects: dict[str, Row] = {}
        self.approvals: dict[str, Row] = {}
        self.tasks: dict[str, Row] = {}
        self._sessions: dict[str, Row] = {}

    def look(self) -> None:
        """Read one snapshot. It must have every row that was acknowledged, and every request that arrived, before it
        began.
        """
        acked, world = noted(self._place / "acked"), World(self._place).lines()
        before = (self.effects, self.approvals, self.tasks, self._sessions)
        self._sf.read(self._read)
        arrived = {(kind, job) for kind, job, _ in World(self._place).lines()}
        self._agree()
        self._never_back(*before)
        for line in acked[self._heard :]:  # no later read shows an earlier state
            self._was_told(json.loads(line))
        self._heard = len(acked)
        states = {(effect["tool"], self.job_of(effect)): effect for effect in self.effects.values()}
        for kind, job, _ in world:
            found = states.get((kind, job))
            assert found is not None, f"{kind} {job} arrived, and the store has no record of it"
            assert found["state"] != "planned", f"{kind} {job} arrived before it was dispatched"
            assert kind != "asked" or found["approval_id"], f"{kind} {job} arrived without a yes"
        for name, effect in states.items():
            assert effect["state"] != "acknowledged" or name in arrived, f"{name} is acknowledged and never arrived"

    def _read(self, tx: Tx) -> None:
        # These reads share one snapshot, so their order does not matter. On PostgreSQL a journal row with a low number
        # may be committed late, so the whole journal is read each time.
        late = tx.dialect == "postgres" or not self._events
        fresh = tx.all(_EVENTS, seq=0 if late else self._events[-1]["seq"])
        self._events = fresh if late else self._events + fresh
        self.effects = {row["id"]: row for row in tx.all(_EFFECTS)}
        self.approvals = {row["id"]: row for row in tx.all(_APPROVALS)}
        self.tasks = {row["id"]: row for row in tx.all(_TASKS)}
        self._sessions = {row["id"]: row for row in tx.all(_SESSIONS)}
        rows = journal.following(tx, self._cursor, 1000)
        if rows:
            self._cursor = journal.cursor_of(rows[-1])
        self._tailed += [row["seq"] for row in rows]

    def _agree(self) -> None:
        """The journal explains the state of every row."""
        states: dict[str, str] = {}
        for event in self._events:
            noun, _, _ = event["type"].partition(".")
            if event["state"] is not None and noun in ("effect", "approval"):
                was = states.get(event["subject"], "")
                moves = _MOVES if noun == "effect" else _ANSWERS
                same = was == event["state"] and noun == "effect"
                assert same or (was, event["state"]) in moves, f"{event['subject']}: {was} → {event['type']}"
                states[event["subject"]] = event["state"]
        for row in (*self.effects.values(), *self.approvals.values()):
            assert states.get(row["id"]) == row["state"], f"the journal says {states.get(row['id'])}, the table {row}"
        closed = Counter(event["subject"] for event in self._events if event["type"] == "task.closed")
        for task in self.tasks.values():
            assert closed[task["id"]] == (task["state"] == "closed"), f"closed {closed[task['id']]} times: {task}"
        for approval in self.approvals.values():
            effect = self.effects[approval["effect_id"]]
            used = effect["state"] == "acknowledged"
            assert not used or approval["state"] == "consumed", f"sent without its yes: {effect}, {approval}"
            given = sum(one["state"] == "consumed" for one in self.approvals_of(effect))
            assert effect["attempt"] == given, f"attempt {effect['attempt']} with {given} grants: {effect}"
        assert len(self._tailed) == len(set(self._tailed)), "the tail returned an event twice"

    def _never_back(self, effects: Any, approvals: Any, tasks: Any, sessions: Any) -> None:
        for id, was in effects.items():
            now = self.effects[id]
            assert now["attempt"] >= was["attempt"], f"{was} became {now}"
            assert was["state"] != "acknowledged" or now["state"] == "acknowledged", f"{was} became {now}"
        for id, was in approvals.items():
            order = ("requested", "granted", "consumed", "denied")
            assert order.index(self.approvals[id]["state"]) >= order.index(was["state"]), f"{was} went back"
        for id, was in [*tasks.items(), *sessions.items()]:
            now = self.tasks.get(id) or self._sessions[id]
            assert now["fence"] >= was["fence"], f"{was} became {now}"
            assert was["state"] != "closed" or now["state"] == "closed", f"{was} became {now}"

    def _was_told(self, line: dict[str, Any]) -> None:
        match line["what"]:
            case "sent":
                name = (line["kind"], str(line["job"]))
                states = [
                    effect["state"]
                    for effect in self.effects.values()
                    if self.job_of(effect) == name[1] and effect["tool"] == name[0]
                ]
                assert states == ["acknowledged"], f"acked and not there: {line}"
            case "done":
                assert self.tasks[line["task"]]["state"] == "closed", f"acked and not there: {line}"
            case "answered":
                assert self.approvals[line["approval"]]["state"] in (line["state"], "consumed"), f"not there: {line}"

    def job_of(self, effect: Row) -> str:
        return str(self._sessions[effect["session_id"]]["key"].rpartition("/")[2])

    def approvals_of(self, effect: Row) -> Iterator[Row]:
        return (one for one in self.approvals.values() if one["effect_id"] == effect["id"])

    def events_of(self, subject: str) -> list[Row]:
        return [event for event in self._events if event["subject"] == subject]

    def all_of_it(self) -> None:
        """Call this when no process writes. The tail must have returned every event once."""
        for _ in range(1000):
            before = len(self._tailed)
            self._sf.read(self._read)
            if len(self._tailed) == before:
                break
        acked, there = set(self._tailed), {event["seq"] for event in self._events}
        assert acked == there, f"the tail skipped {sorted(there - acked)[:10]}"


# -- in the children ---------------------------------------------------------------------------------------


@contextmanager
def _opened(asked: dict[str, Any], actor: str) -> Iterator[standfast.Standfast]:
    data = Path(asked["place"]) / "data"
    with handle.connect(config.load(asked["url"], data_dir=data, actor=actor, scope=SCOPE)) as sf:
        yield sf


class Actor:
    """A child's handle on the store, its files outside the store, and optionally its crash point."""

    def __init__(self, sf: standfast.Standfast, asked: dict[str, Any]) -> None:
        self.sf, self.jobs, self._crowd = sf, asked["jobs"], asked["crowd"]
        self.draw = random.Random(asked["number"])
        # The control must fail within a minute, also if a commit takes longer than a request.
        self.request_s = 0.05 if asked["careless"] else 0.003
        place = Path(asked["place"])
        self.world = World(place)
        self._told = Oracle(place / "acked")

    def tell(self, what: str, **line: object) -> None:
        self._told.note(json.dumps({"what": what, **line}))

    def met(self, error: Exception) -> None:
        self.tell("weather", error=type(error).__name__)

    @contextmanager
    def weather(self) -> Iterator[None]:
        """The error of a lock that was not free for 30 s. A busy machine can cause it."""
        try:
            yield
        except Busy as error:
            self.met(error)

    def over(self) -> bool:
        return bool(self.sf.read(lambda tx: tx.one(_CLOSED)["n"]) >= self.jobs)

    def rest(self) -> None:
        time.sleep(self.draw.uniform(0.0002, 0.002) * self._crowd)


@contextmanager
def _living(asked: dict[str, Any], role: str) -> Iterator[Actor]:
    """Run one process. With a fuse it is killed at the given crash point."""
    number, fuse = asked["number"], asked["fuse"]
    with Patching() as patch:
        if asked["careless"]:
            patch.setattr(leases, "is_gone", _taken_for_dead)
        if fuse:
            _light(fuse)
        try:
            with _opened(asked, f"{role} {number}") as sf:
                yield Actor(sf, asked)
        except StorageError as error:
            if not isinstance(error, Busy | CommitUnknown) and error.code not in WEATHER:
                raise
            os._exit(GIVEN_UP)


def _light(fuse: int) -> None:
    passed = iter(range(1, fuse + 1))

    def hook(name: str) -> None:
        if next(passed, fuse) == fuse:
            crash.die()

    crash.arm(hook)


def _taken_for_dead(holder: str, clock: Any) -> bool:
    found = leases.parse_process(holder)
    return found is not None and found.pid != os.getpid()


def schedule(**asked: Any) -> None:
    """Report every job, in any order. Another scheduler may have reported it already."""
    with _living(asked, "scheduler") as actor:
        left = actor.draw.sample(range(actor.jobs), actor.jobs)
        while left:
            with actor.weather():
                actor.sf.tasks.add(f"job {left[0]}", fingerprint=f"job-{left[0]}", cool_down="1d")
                actor.sf.sessions.say(ROOT, "user", f"job {left[0]}", key=f"job-{left[0]}")
                left.pop(0)


def work(**asked: Any) -> None:
    with _living(asked, "worker") as actor:
        while not actor.over():
            with actor.weather():
                _work(actor)


def _work(actor: Actor) -> None:
    before = time.monotonic()
    task = actor.sf.tasks.claim(for_=actor.draw.choice([None, None, SHORT]))
    if task is None:
        actor.rest()
        return
    actor.tell("claimed", s=round(time.monotonic() - before, 6), task=task.id, fence=task.fence)
    try:
        _perform(actor, task)
    except (InProgress, LeaseLost, EffectInDoubt, ApprovalRequired, IllegalTransition, Busy) as error:
        actor.met(error)
        _give_back(actor, task)


def _give_back(actor: Actor, task: Any) -> None:
    try:
        actor.sf.tasks.release(task)
    except (LeaseLost, IllegalTransition) as error:
        actor.met(error)
    actor.rest()


def _perform(actor: Actor, task: Any) -> None:
    job = int(task.fingerprint.removeprefix("job-"))
    key = f"{ROOT}/{job}"
    actor.sf.sessions.fork(ROOT, key, at=1)
    with actor.sf.session(key) as s:
        actor.tell("rules", value=s.step("rules", lambda: "no rules"))
        actor.tell("plan", job=job, value=s.step("plan", lambda: f"planned by {actor.draw.random()}"))
        for kind in KINDS[job % len(KINDS)]:
            _send(actor, s, kind, job)
    actor.sf.tasks.done(task, result={"fence": task.fence})
    actor.tell("done", task=task.id, fence=task.fence)


def _send(actor: Actor, s: Any, kind: str, job: int) -> None:
    def do(call: standfast.Call) -> str:
        time.sleep(actor.draw.uniform(0.0, actor.request_s))  # a request is in flight
        return actor.world.receive(kind, job, call.key)

    def probe(call: standfast.Call) -> Any:
        return standfast.Applied(f"{kind} {job}") if actor.world.has(kind, job) else standfast.NotApplied()

    options: dict[str, Any] = {"probe": probe, "settle": 0} if kind in ("probed", "asked") else {}
    options |= {"idempotent": kind == "idempotent", "approve": kind == "asked"}
    try:
        result = s.effect(kind, {"job": job}, by="job", do=do, **options)
    except ApprovalRequired as refused:
        if refused.code != "approval_denied":
            raise
        return
    assert result == f"{kind} {job}", f"{kind} {job} gave {result}"
    actor.tell("sent", kind=kind, job=job)


def approve(**asked: Any) -> None:
    """Answer the open requests. Then resolve each effect in doubt by looking at the outside system."""
    with _living(asked, "approver") as actor:
        while not actor.over():
            with actor.weather():
                for approval in actor.sf.approvals.list(state="requested"):
                    _answer(actor, approval.id)
                for effect in actor.sf.effects.in_doubt():
                    if effect.tool == "plain" and _silent(effect):
                        _settle(actor, effect)
            actor.rest()


def _silent(effect: Any) -> bool:
    """Whether the sender of the effect is dead. A sender that is only late may still send, so the doubt cannot be
    resolved yet.
    """
    return effect.gave_up_us is not None or not effect.holder or leases.is_gone(effect.holder, SYSTEM)


def _answer(actor: Actor, approval: str) -> None:
    answer = actor.draw.choice([actor.sf.approvals.grant, actor.sf.approvals.grant, actor.sf.approvals.deny])
    try:
        made = answer(approval, approver=actor.sf.agent)
        actor.tell("answered", approval=approval, state=made.state, by=actor.sf.agent)
    except IllegalTransition as error:  # another process was faster
        actor.met(error)


def _settle(actor: Actor, effect: Any) -> None:
    job = effect.intent["job"]
    there = actor.world.has("plain", job)
    actor.rest()
    try:
        answer, result = ("applied", f"plain {job}") if there else ("not_applied", None)
        actor.sf.effects.resolve(effect.id, answer, evidence="the world's books", result=result, attempt=effect.attempt)
        actor.tell("settled", effect=effect.id, attempt=effect.attempt, answer=answer)
    except (InProgress, IllegalTransition, LeaseLost) as error:
        actor.met(error)


def audit(**asked: Any) -> None:
    with _living(asked, "auditor") as actor:
        looking = Audit(actor.sf, Path(asked["place"]))
        over = False
        while not over:
            over = actor.over()
            with actor.weather():
                looking.look()
            actor.rest()
