"""The workload of a simulation, and an outside record of it.

Each workload has its roles, and a check whether all its work is settled. It finds violations by the record of the
outside system, not only by the rows of the store.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

import standfast
from standfast.clock import MINUTE_US
from standfast.errors import (
    ApprovalRequired,
    Conflict,
    EffectInDoubt,
    IllegalTransition,
    InProgress,
    LeaseLost,
    NotFound,
    VersionConflict,
)
from standfast.handle import Standfast
from standfast.record.mail import Mails
from standfast_prove.simulation.machine import ACTOR, HERE, THERE, Machine, Process

LEASE = "20s"


class Workload:
    """Roles on a machine. `sf` only reads and makes no steps."""

    def __init__(self, machine: Machine, sf: Standfast) -> None:
        self.machine, self.sf, self.draw = machine, sf, machine.draw
        self.begin()

    def begin(self) -> None:
        raise NotImplementedError

    def heal(self) -> None:
        """The phase without faults begins, and the remaining work must finish."""

    def settled(self) -> bool:
        raise NotImplementedError

    def wrong(self) -> Iterator[str]:
        raise NotImplementedError


# -- effects, approvals, doubts -----------------------------------------------------------------------------


class Asked(NamedTuple):
    """An action in the outside system that must happen once."""

    name: str
    kind: str
    """The kind of the effect: plain, probed or idempotent."""
    approve: bool
    denied: bool


class Lost(Exception):
    """The network failed: the request may have arrived."""


class Payments(Workload):
    """Agents on one session. The remote records the requests. Two approvers, and two operators who check before they
    resolve.
    """

    def begin(self) -> None:
        kinds = ["plain", "probed", "idempotent"]
        self.asked = []
        for n in range(self.draw.randint(2, 3)):
            approve = self.draw.random() < 0.35
            denied = approve and self.draw.random() < 0.25
            self.asked.append(Asked(f"payment {n}", self.draw.choice(kinds), approve, denied))
        self.applied: dict[str, list[str]] = defaultdict(list)
        """The receipts of each request, one for each arrival."""
        self.keys: dict[str, tuple[str, object]] = {}
        """The keys that the remote knows, each with its receipt and arguments."""
        self.allowed: set[str] = set()
        self.given_up: set[str] = set()
        self.returned: dict[str, set[str]] = defaultdict(set)
        for n in range(2):
            self.machine.plays(f"agent {n}", self.agent, HERE, THERE)
            self.machine.plays(f"operator {n}", self.operator, HERE, ACTOR)
            self.machine.plays(f"approver {n}", self.approver, ACTOR)

    def agent(self, process: Process) -> None:
        while True:
            stops = process.stops
            try:
                with process.sf.session("agent") as session:
                    for one in self.asked:
                        self.ask(process, session, one)
                return
            except ApprovalRequired as error:
                if process.sf.approvals.get(error.approval_id or "").state == "denied":
                    self.given_up |= {one.name for one in self.asked if one.denied}
                process.sleeps(3)
            except (InProgress, EffectInDoubt, LeaseLost, Lost, standfast.NotApplied) as error:
                process.tells(type(error).__name__)
                if isinstance(error, LeaseLost) and process.stops == stops:
                    self.machine.bad.append(f"{process.role} was awake, and its session was taken from it")
                process.sleeps(self.draw.choice((1, 5, 25)))

    def ask(self, process: Process, session: Any, one: Asked) -> None:
        if one.denied and one.name in self.given_up:
            return
        # An LLM's description differs each time. The approved action does not.
        words = "please" if one.approve else self.draw.choice(("please", "quick", "now"))
        options: dict[str, Any] = {"approve": True} if one.approve else {}
        if one.kind == "probed":
            options |= {"probe": lambda call: self.probe(process, one), "settle": 0}
        if one.kind == "idempotent":
            options["idempotent"] = True
        intent = {"to": one.name, "words": words}
        receipt = session.effect("pay", intent, by=("to",), do=lambda call: self.send(process, one, call), **options)
        self.returned[one.name].add(receipt)
        process.tells("has", one.name, receipt)

    def send(self, process: Process, one: Asked, call: standfast.Call) -> str:
        process.sending = one.name
        process.stands("send")
        process.sending = None
        luck = self.draw.random() if self.machine.faulty else 1.0
        if luck < 0.05:
            raise standfast.NotApplied("refused")
        if luck < 0.12:
            raise Lost("before it arrived")
        receipt = self.arrives(one, call)
        if luck < 0.17 and one.kind == "idempotent":
            receipt = self.arrives(one, call)  # the network delivered it twice
        process.tells("sent", one.name, call.attempt)
        process.stands("sent")
        if luck < 0.25:
            raise Lost("the answer")
        return receipt

    def arrives(self, one: Asked, call: standfast.Call) -> str:
        """The remote gets a request. If it knows the key and the arguments, it answers with the same receipt."""
        if one.approve and one.name not in self.allowed:
            self.machine.bad.append(f"{one.name} was sent without an approval")
        if one.kind == "idempotent" and call.key in self.keys:
            receipt, words = self.keys[call.key]
            if words != call.intent:
                self.machine.bad.append(f"{one.name}: other words under the same key")
            return receipt
        receipt = f"{one.name} as {len(self.applied[one.name]) + 1}"
        self.applied[one.name].append(receipt)
        self.keys[call.key] = (receipt, call.intent)
        return receipt

    def probe(self, process: Process, one: Asked) -> Any:
        process.stands("probe")
        if self.machine.faulty and self.draw.random() < 0.15:
            return standfast.Unknown("the remote does not answer")
        return standfast.Applied(self.applied[one.name][0]) if self.applied[one.name] else standfast.NotApplied()

    def approver(self, process: Process) -> None:
        """The first answer to each request, by arguments and caller."""
        denied = {one.name for one in self.asked if one.denied}
        while True:
            for found in process.sf.approvals.list(state="requested"):
                name = str(json.loads(process.sf.approvals.question(found.id).intent or "{}").get("to"))
                answer = process.sf.approvals.deny if name in denied else process.sf.approvals.grant
                if name not in denied:
                    self.allowed.add(name)
                try:
                    answer(found.id, approver=process.role)
                    process.tells("answers", name)
                except IllegalTransition:
                    process.tells("too late", name)
            process.sleeps(5)

    def operator(self, process: Process) -> None:
        """Resolve only effects without probe and key, and never while a process may still send them."""
        kinds = {one.name: one.kind for one in self.asked}
        while True:
            for found in process.sf.effects.in_doubt():
                name = str(found.intent["to"])
                about = any(one.sending == name and one.alive for one in self.machine.processes)
                if kinds[name] != "plain" or about:
                    continue
                there = self.applied[name]
                answer, result = ("applied", there[0]) if there else ("not_applied", None)
                try:
                    process.sf.effects.resolve(
                        found.id, answer, evidence="the books", result=result, attempt=found.attempt
                    )
                    process.tells("resolves", name, answer)
                except (IllegalTransition, LeaseLost, InProgress) as error:
                    process.tells("not", type(error).__name__)
            process.sleeps(8)

    def settled(self) -> bool:
        return not any(role.startswith("agent") for role in self.machine.starts_us) and not any(
            one.role.startswith("agent") for one in self.machine.processes
        )

    def wrong(self) -> Iterator[str]:
        found = {str(one.intent["to"]): one for one in self.sf.effects.list()}
        for one in self.asked:
            times, wanted = len(self.applied[one.name]), int(not one.denied)
            if times != wanted:
                yield f"{one.name} ({one.kind}) happened {times} times"
            if one.denied:
                continue
            effect = found.get(one.name)
            if effect is None or effect.state != "acknowledged":
                yield f"{one.name} is {effect.state if effect else 'not there'} at the end"
            elif {effect.result} | self.returned[one.name] != {self.applied[one.name][0]}:
                yield f"{one.name}: {self.returned[one.name]} were returned, {effect.result} is recorded"
        consumed = Counter(one.effect_id for one in self.sf.approvals.list(state="consumed"))
        names = {found[one.name].id for one in self.asked if one.approve and not one.denied and one.name in found}
        if not set(consumed) <= names or names - set(consumed):
            yield f"approvals were consumed by {consumed}, and wanted by {names}"


# -- tasks ------------------------------------------------------------------------------------------------------


class Fences:
    """The fencing tokens of claims. No token is given twice."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._given: dict[str, dict[int, int]] = defaultdict(dict)
        self.done: dict[str, list[int]] = defaultdict(list)
        self.tried: dict[str, set[int]] = defaultdict(set)

    def given(self, process: Process, name: str, fence: int, stops: int) -> None:
        """Note a fencing token. The claiming process may get its answer late, so the order of calls proves nothing."""
        process.tells("has", name, fence)
        if fence in self._given[name]:
            self._machine.bad.append(f"{name} was given out twice with fence {fence}")
        self._given[name][fence] = stops
        self._machine.count("claims")

    def late(self, process: Process, name: str, fence: int) -> None:
        """Check a refused process: it must have been paused, because a running process renews its lease."""
        self._machine.count("late and refused")
        if process.kind != ACTOR and process.stops == self._given[name][fence]:
            self._machine.bad.append(f"{process.role} was awake, and {name} was taken from it")

    def wrong(self, name: str, fence: int, over: bool) -> Iterator[str]:
        """At the end the task is closed once, by its last holder."""
        if not over:
            yield f"{name} is not over"
        if len(self.done[name]) > 1:
            yield f"{name} was done with fences {self.done[name]}"
        if self.done[name] and self.done[name] != [fence]:
            yield f"{name}: {self.done[name]} holders got an acknowledgement, and it has fence {fence}"
        if fence not in self.tried[name]:
            yield f"{name} is done with fence {fence}, and no holder of it tried"


class Chores(Workload):
    """Tasks that several processes report and work on."""

    def begin(self) -> None:
        self.titles = [f"chore {n}" for n in range(self.draw.randint(2, 4))]
        self.fences = Fences(self.machine)
        for n in range(2):
            self.machine.plays(f"reporter {n}", self.reporter, HERE, ACTOR)
            self.machine.plays(f"worker {n}", self.worker, HERE, THERE, ACTOR)

    def reporter(self, process: Process) -> None:
        for title in self.titles:
            process.sf.tasks.add(title, fingerprint=title, cool_down="416d16h")

    def worker(self, process: Process) -> None:
        while True:
            stops = process.stops
            task = process.sf.tasks.claim(for_=LEASE)
            if task is None:
                process.sleeps(12)
                continue
            self.fences.given(process, task.title, task.fence, stops)
            process.stands("work")
            self.fences.tried[task.title].add(task.fence)
            try:
                process.sf.tasks.done(task)
                self.fences.done[task.title].append(task.fence)
            except LeaseLost:
                self.fences.late(process, task.title, task.fence)

    def settled(self) -> bool:
        found = self.sf.tasks.list(state="any")
        return len(found) >= len(self.titles) and all(task.state == "closed" for task in found)

    def wrong(self) -> Iterator[str]:
        found = self.sf.tasks.list(state="any")
        if sorted(task.title for task in found) != self.titles:
            yield f"tasks {[task.title for task in found]} for {self.titles}"
        for task in found:
            yield from self.fences.wrong(task.title, task.fence, task.state == "closed")


# -- mail -------------------------------------------------------------------------------------------------------


class Letters(Workload):
    """Mail that is sent once per key, received at least once, and ended once."""

    def begin(self) -> None:
        self.count = self.draw.randint(2, 4)
        self.fences = Fences(self.machine)
        self.sent: dict[str, str] = {}
        for n in range(2):
            self.machine.plays(f"sender {n}", self.sender, HERE, ACTOR)
            self.machine.plays(f"reader {n}", self.reader, HERE, THERE, ACTOR)

    def sender(self, process: Process) -> None:
        for n in range(self.count):
            mail = process.sf.mail.send("role:clerk", f"letter {n}", key=f"letter {n}", attempts_max=100)
            if self.sent.setdefault(f"letter {n}", mail.id) != mail.id:
                self.machine.bad.append(f"letter {n} was sent twice")

    def reader(self, process: Process) -> None:
        while True:
            stops = process.stops
            # a new handle checks for dead processes at each call, not by the real clock
            resource = Mails(process.store)
            mail = resource.claim("role:clerk", for_=LEASE)
            if mail is None:
                process.sleeps(12)
                continue
            name = str(mail.body)
            self.fences.given(process, name, mail.fence, stops)
            process.stands("read it")
            try:
                if self.machine.faulty and self.draw.random() < 0.2:
                    resource.defer(mail, for_="5s")
                    continue
                self.fences.tried[name].add(mail.fence)
                resource.done(mail)
                self.fences.done[name].append(mail.fence)
            except LeaseLost:
                self.fences.late(process, name, mail.fence)

    def settled(self) -> bool:
        found = self.sf.mail.list(state="any")
        return len(found) >= self.count and all(one.state == "done" for one in found)

    def wrong(self) -> Iterator[str]:
        found = self.sf.mail.list(state="any")
        if sorted(str(one.body) for one in found) != [f"letter {n}" for n in range(self.count)]:
            yield f"{[one.body for one in found]} are there, {self.count} were sent"
        for one in found:
            yield from self.fences.wrong(str(one.body), one.fence, one.state == "done")


# -- webhooks and credits ---------------------------------------------------------------------------------------


class Orders(Workload):
    """A shop delivers each event until it is acknowledged, and sometimes once more. The balance shows duplicates."""

    def begin(self) -> None:
        self.amounts = {f"order {n}": self.draw.randint(1, 9) for n in range(self.draw.randint(2, 4))}
        self.fences = Fences(self.machine)
        for n in range(2):
            self.machine.plays(f"door {n}", self.door, HERE, THERE)
            self.machine.plays(f"clerk {n}", self.clerk, HERE, THERE, ACTOR)

    def door(self, process: Process) -> None:
        for name, amount in self.amounts.items():
            for _ in range(self.draw.choice((1, 1, 2))):
                process.sf.webhooks.receive("shop", name, {"amount": amount}, attempts_max=100)

    def clerk(self, process: Process) -> None:
        while True:
            stops = process.stops
            event = process.sf.webhooks.claim(source="shop", for_=LEASE)
            if event is None:
                process.sleeps(12)
                continue
            self.fences.given(process, event.event_id, event.fence, stops)
            process.stands("handle")
            try:
                self.book(process, event)
            except LeaseLost:
                self.fences.late(process, event.event_id, event.fence)

    def book(self, process: Process, event: Any) -> None:
        """Credits and the end of the event in one transaction, or one after the other with a key."""
        name, amount = event.event_id, self.amounts[event.event_id]
        self.fences.tried[name].add(event.fence)
        if self.draw.random() < 0.5:
            with process.sf.transaction() as tx:
                tx.credits.grant("ada", amount, key=name)
                tx.webhooks.done(event)
        else:
            process.sf.credits.grant("ada", amount, key=name)
            process.sf.webhooks.done(event)
        self.fences.done[name].append(event.fence)

    def settled(self) -> bool:
        found = self.sf.webhooks.list()
        return len(found) >= len(self.amounts) and all(one.state == "done" for one in found)

    def wrong(self) -> Iterator[str]:
        for one in self.sf.webhooks.list():
            yield from self.fences.wrong(one.event_id, one.fence, one.state == "done")
        balance = self.sf.credits.balance("ada").balance
        if balance != sum(self.amounts.values()):
            yield f"ada has {balance} of {sum(self.amounts.values())}"


# -- loops ------------------------------------------------------------------------------------------------------


class Rounds(Workload):
    """Loops: two daemons fire them, and any free worker runs them. Every slot runs once, every attempt ends once."""

    def begin(self) -> None:
        self.fences = Fences(self.machine)
        every = {"catch_up": "all", "catch_up_max": 50, "overlap": "queue", "retries_max": 10, "cwd": "/"}
        self.loops = [self.sf.loops.add("minutes", ["true"], every="2m", **every)]  # type: ignore[arg-type]
        for n in range(2):
            self.machine.plays(f"daemon {n}", self.daemon, HERE, THERE)
            self.machine.plays(f"runner {n}", self.runner, HERE, THERE)

    def daemon(self, process: Process) -> None:
        while True:
            process.sf.loops.fire_due(limit=self.draw.choice((1, 100)))
            process.sf.runs.abandon_dead()
            process.sleeps(20)

    def runner(self, process: Process) -> None:
        while True:
            stops = process.stops
            run = process.sf.runs.claim(host="host")
            if run is None:
                process.sleeps(15)
                continue
            name = f"slot {run.slot_us - self.loops[0].anchor_us}"
            self.fences.given(process, name, run.attempt, stops)
            process.stands("run")
            self.fences.tried[name].add(run.attempt)
            try:
                process.sf.runs.finish(run.id, run.attempt, exit_code=0, duration="1us")
                self.fences.done[name].append(run.attempt)
            except LeaseLost:
                self.fences.late(process, name, run.attempt)

    def heal(self) -> None:
        """Stop new slots. Every due run was fired and now ends."""
        self.sf.loops.fire_due()

    def settled(self) -> bool:
        states = {run.state for run in self.sf.runs.list(self.loops[0].id, limit=1000)}
        return not states & {"queued", "running"}

    def wrong(self) -> Iterator[str]:
        loop = self.sf.loops.get(self.loops[0].id)
        runs = {run.slot_us: run for run in self.sf.runs.list(loop.id, limit=1000)}
        next_us = loop.next_slot_us or 0
        wanted = list(range(loop.anchor_us + 2 * MINUTE_US, next_us, 2 * MINUTE_US))
        if sorted(runs) != wanted:
            yield f"{len(runs)} slots have a row, of {len(wanted)}"
        for slot_us, run in runs.items():
            if run.state == "done":
                yield from self.fences.wrong(f"slot {slot_us - loop.anchor_us}", run.attempt, True)
            elif run.state != "missed":
                yield f"slot {slot_us} is {run.state}"


# -- state ------------------------------------------------------------------------------------------------------


class Counting(Workload):
    """One number that several processes increase by compare-and-set. It equals the number of successes."""

    def begin(self) -> None:
        self.wins = self.unheard = 0
        for n in range(3):
            self.machine.plays(f"adder {n}", self.adder, HERE, THERE, ACTOR)

    def adder(self, process: Process) -> None:
        left = 2
        while left:
            try:
                found = process.sf.state.get("n")
                value, version = int(found.value), found.version
            except NotFound:
                value = version = 0
            self.unheard += 1
            try:
                process.sf.state.swap("n", value + 1, version=version)
                self.unheard, self.wins, left = self.unheard - 1, self.wins + 1, left - 1
            except (VersionConflict, NotFound, Conflict):
                self.unheard -= 1

    def settled(self) -> bool:
        roles = [*self.machine.starts_us, *(one.role for one in self.machine.processes)]
        return not any(role.startswith("adder") for role in roles)

    def wrong(self) -> Iterator[str]:
        found = self.sf.state.get("n")
        value = int(found.value)
        if value != found.version:
            yield f"{value} after {found.version} changes"
        if not self.wins <= value <= self.wins + self.unheard:
            yield f"{value}, and {self.wins} additions were acknowledged ({self.unheard} got no answer)"


WORKLOADS: tuple[type[Workload], ...] = (Payments, Chores, Letters, Orders, Rounds, Counting)
