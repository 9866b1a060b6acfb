"""Tasks against a model of a few lines: after any calls in any order, both agree."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

import standfast
from standfast.clock import ManualClock
from standfast.errors import Conflict, IllegalTransition, InProgress, LeaseLost
from standfast.record.tasks import Task
from standfast_prove.models.machine import Machine
from standfast_prove.raising import raising

STEPS = 30

TITLES = ("a", "b")
ACTORS = ("ann", "bob")
LEASE_M = 15


@dataclass(frozen=True)
class Life:
    """The model: one episode."""

    born: int
    priority: int
    seen: int = 1
    state: str = "open"
    closed: int = 0
    cool_down: int = 0
    asleep_until: int = 0
    holder: str = ""
    until: int = 0
    fence: int = 0


@dataclass
class Model:
    minute: int = 0
    count: int = 0
    lives: dict[str, list[Life]] = field(default_factory=dict)

    def add(self, title: str, priority: int, cool_down: int) -> str:
        past = self.lives.setdefault(title, [])
        last = past[-1] if past else None
        if last and (last.state != "closed" or self.minute - last.closed < last.cool_down):
            cooling = last.state == "closed"
            past[-1] = replace(last, seen=last.seen + 1, cool_down=last.cool_down if cooling else cool_down)
            return "cooling" if cooling else "again"
        self.count += 1
        past.append(Life(self.count, priority, cool_down=cool_down))
        return "new" if len(past) == 1 else "returned"

    def ready(self, life: Life) -> bool:
        awake = life.state == "open" or (life.state == "snoozed" and life.asleep_until <= self.minute)
        return awake and not self.held(life)

    def held(self, life: Life) -> bool:
        return bool(life.holder) and self.minute < life.until

    def queue(self) -> list[str]:
        current = {title: past[-1] for title, past in self.lives.items()}
        ready = [title for title, life in current.items() if self.ready(life)]
        return sorted(ready, key=lambda title: (current[title].priority, current[title].born))

    def shown(self, life: Life) -> tuple[object, ...]:
        awake = life.state == "snoozed" and life.asleep_until <= self.minute
        return ("open" if awake else life.state, life.seen, life.fence, f"a:{life.holder}" if life.holder else None)


class Program(Machine):
    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.model = Model()
        self.claimed: list[Task] = []
        self.closer: dict[str, str] = {}
        self.handles: dict[str, standfast.Standfast] = {}

    @initialize()
    def fresh(self) -> None:
        for name in ACTORS:
            self.handles[name] = self.opened(clock=self.clock, actor=name, as_actor=True)
        self.look = self.handles["ann"]

    def teardown(self) -> None:
        for sf in self.handles.values():
            sf.close()

    def last(self, title: str) -> Life:
        return self.model.lives[title][-1]

    def change(self, title: str, **columns: object) -> None:
        self.model.lives[title][-1] = replace(self.last(title), **columns)  # type: ignore[arg-type]

    def known(self, title: str) -> bool:
        return title in self.model.lives

    def fingerprint(self, title: str) -> str:
        return f"key {title}"

    @rule(
        title=st.sampled_from(TITLES),
        actor=st.sampled_from(ACTORS),
        priority=st.integers(0, 2),
        cool=st.sampled_from([0, 5, 60]),
    )
    def sees(self, title: str, actor: str, priority: int, cool: int) -> None:
        self.clock.advance(0.001)  # the next task of the same priority is younger
        seen = self.handles[actor].tasks.add(
            title, fingerprint=self.fingerprint(title), priority=priority, cool_down=f"{cool}m"
        )
        assert seen.sighting == self.model.add(title, priority, cool)

    @rule(minutes=st.sampled_from([1, 4, 16, 61]))
    def waits(self, minutes: int) -> None:
        self.clock.advance(minutes * 60)
        self.model.minute += minutes

    @rule(actor=st.sampled_from(ACTORS))
    def claims(self, actor: str) -> None:
        claimed = self.handles[actor].tasks.claim()
        queue = self.model.queue()
        assert (claimed.title if claimed else None) == (queue[0] if queue else None)
        if claimed is not None:
            fence = self.last(claimed.title).fence + 1
            self.change(claimed.title, state="open", holder=actor, until=self.model.minute + LEASE_M, fence=fence)
            self.claimed.append(claimed)
            assert claimed.fence == fence

    @rule(actor=st.sampled_from(ACTORS))
    def claims_and_goes_silent(self, actor: str) -> None:
        self.claims(actor)
        self.waits(LEASE_M + 1)

    @rule(number=st.integers(0, 1))
    def a_claim_of_long_ago_is_done(self, number: int) -> None:
        if self.claimed:
            task = self.claimed[number % len(self.claimed)]
            same = [one for one in self.claimed if (one.id, one.agent) == (task.id, task.agent)][::-1]
            self.is_done(task.title, task.agent or "", same.index(task))

    @rule(title=st.sampled_from(TITLES), actor=st.sampled_from(ACTORS), claim=st.integers(-1, 3))
    def is_done(self, title: str, actor: str, claim: int) -> None:
        """End it by name, or with one of the actor's claims, the newest first."""
        if not self.known(title):
            return
        life, sf = self.last(title), self.handles[actor]
        current = sf.tasks.get(self.fingerprint(title))
        had = [one for one in self.claimed if (one.id, one.agent) == (current.id, actor)][::-1]
        task = had[claim] if 0 <= claim < len(had) else None
        refused = self.refused(life, actor, task)
        with self.expecting(refused, closed=life.state == "closed"):
            closed = sf.tasks.done(task or current.id)
            assert closed.state == "closed"
        if not refused and life.state != "closed":
            grown = int(bool(life.holder) and life.holder != actor)
            self.change(
                title, state="closed", closed=self.model.minute, holder="", fence=life.fence + grown, asleep_until=0
            )
            self.closer[current.id] = actor

    def refused(self, life: Life, actor: str, task: Task | None) -> bool:
        if task is not None and task.fence != life.fence:
            return True
        if life.state == "closed":
            return task is None and self.closer.get(self.look.tasks.get(self.key_of(life)).id) != actor
        return self.model.held(life) and life.holder != actor

    def key_of(self, life: Life) -> str:
        return next(self.fingerprint(title) for title, past in self.model.lives.items() if past[-1] is life)

    @contextmanager
    def expecting(self, refused: bool, *, closed: bool) -> Iterator[None]:
        if not refused:
            yield
            return
        with raising((LeaseLost, IllegalTransition) if closed else LeaseLost):
            yield

    @rule(title=st.sampled_from(TITLES), actor=st.sampled_from(ACTORS))
    def gives_back(self, title: str, actor: str) -> None:
        if not self.known(title):
            return
        life = self.last(title)
        refused = self.model.held(life) and life.holder != actor
        with self.expecting(refused, closed=False):
            self.handles[actor].tasks.release(self.fingerprint(title))
        if not refused and life.holder:
            self.change(title, holder="", fence=life.fence + int(life.holder != actor))

    @rule(title=st.sampled_from(TITLES), actor=st.sampled_from(ACTORS))
    def asks_for_one(self, title: str, actor: str) -> None:
        if not self.known(title):
            return
        life, sf = self.last(title), self.handles[actor]
        name = self.fingerprint(title)
        if life.state in ("closed", "accepted"):
            with raising(IllegalTransition):
                sf.tasks.claim(name)
        elif self.model.held(life) and life.holder != actor:
            with raising(InProgress):
                sf.tasks.claim(name)
        else:
            kept = self.model.held(life)
            claimed = sf.tasks.claim(name)
            until = self.model.minute + LEASE_M
            fence = life.fence if kept else life.fence + 1
            state = life.state if kept else "open"
            self.change(title, state=state, holder=actor, until=until, fence=fence)
            self.claimed.append(claimed)

    @rule(title=st.sampled_from(TITLES), actor=st.sampled_from(ACTORS), how=st.sampled_from(["snooze", "accept"]))
    def puts_aside(self, title: str, actor: str, how: str) -> None:
        if not self.known(title):
            return
        life, sf = self.last(title), self.handles[actor]
        refused = self.model.held(life) and life.holder != actor

        def ask() -> None:
            name = self.fingerprint(title)
            sf.tasks.snooze(name, for_="10m") if how == "snooze" else sf.tasks.accept(name)

        if life.state == "closed":
            with raising(IllegalTransition):
                ask()
            return
        with self.expecting(refused, closed=False):
            ask()
        if not refused:
            grown = int(bool(life.holder) and life.holder != actor)
            asleep = self.model.minute + 10 if how == "snooze" else 0
            state = "snoozed" if how == "snooze" else "accepted"
            self.change(title, state=state, asleep_until=asleep, holder="", fence=life.fence + grown)

    @rule(title=st.sampled_from(TITLES))
    def opens_again(self, title: str) -> None:
        if self.known(title):
            self.look.tasks.reopen(self.fingerprint(title))
            self.change(title, state="open", asleep_until=0, closed=0)

    @rule(title=st.sampled_from(TITLES))
    def opens_an_earlier_life(self, title: str) -> None:
        if self.known(title) and len(self.model.lives[title]) > 1:
            first = self.look.tasks.show(self.fingerprint(title)).episodes[0]
            with raising(Conflict, match="has a later episode"):
                self.look.tasks.reopen(first.id)

    @invariant()
    def both_agree(self) -> None:
        if not self.handles:
            return
        assert [task.title for task in self.look.tasks.next(limit=10)] == self.model.queue()
        found: dict[str, dict[int, tuple[object, ...]]] = {}
        for task in self.look.tasks.list(state="any", limit=1000):
            held = (task.state, task.occurrences, task.fence, task.holder)
            found.setdefault(task.title, {})[task.episode] = held
        assert found == {
            title: {number: self.model.shown(life) for number, life in enumerate(past, 1)}
            for title, past in self.model.lives.items()
        }
