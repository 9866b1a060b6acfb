"""Webhooks against a model of a few lines: after any calls in any order, both agree."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

import standfast
from standfast.clock import SECOND_US, ManualClock
from standfast.errors import IllegalTransition, InProgress, KeyConflict, LeaseLost, StandfastError
from standfast.ledger.webhooks import WebhookEvent
from standfast_prove.models.machine import Machine
from standfast_prove.raising import raising

STEPS = 30

NAMES = ("s/1", "s/2")
ACTORS = ("ann", "bob")
LEASE_S = 15 * 60
TRIES = 2

Refusal = type[StandfastError] | None


@dataclass
class Life:
    """The model of one event."""

    born: int
    ready_s: int
    deliveries: int = 1
    state: str = "received"
    tries: int = 0
    holder: str = ""
    until_s: int = 0
    fence: int = 0
    actor: str = ""
    result: str | None = None


@dataclass
class Model:
    now_s: int = 0
    lives: dict[str, Life] = field(default_factory=dict)

    def held(self, life: Life) -> bool:
        return bool(life.holder) and self.now_s < life.until_s

    def ends(self, life: Life, actor: str, **columns: object) -> None:
        """The event has no holder any more, and another earlier holder is fenced off."""
        life.fence += int(life.holder not in ("", actor))
        life.holder, life.actor = "", actor
        for name, value in columns.items():
            setattr(life, name, value)

    def take(self, life: Life, actor: str) -> bool:
        """Claim the event. Returns False if no attempt is left: then the event is dead."""
        if life.tries >= TRIES:
            self.ends(life, actor, state="dead")
            return False
        life.tries, life.fence, life.actor = life.tries + 1, life.fence + 1, actor
        life.holder, life.until_s = actor, self.now_s + LEASE_S
        return True

    def claim(self, actor: str) -> str | None:
        for name, life in sorted(self.lives.items(), key=lambda pair: (pair[1].ready_s, pair[1].born)):
            ready = life.state == "received" and life.ready_s <= self.now_s and not self.held(life)
            if ready and self.take(life, actor):
                return name
        return None

    def done(self, life: Life, actor: str, fence: int | None) -> Refusal:
        if fence is not None and fence != life.fence:
            return LeaseLost
        if life.state == "done":
            return None if fence is not None or life.actor == actor else IllegalTransition
        if life.state == "dead":
            return IllegalTransition
        if self.held(life) and life.holder != actor:
            return LeaseLost
        self.ends(life, actor, state="done", result=f"by {actor}")
        return None

    def fail(self, life: Life, actor: str, fence: int | None) -> Refusal:
        if fence is not None and fence != life.fence:
            return LeaseLost
        if life.state != "received":
            return IllegalTransition
        if life.holder != actor:
            return None if fence is not None and not life.holder else LeaseLost
        if life.tries >= TRIES:
            self.ends(life, actor, state="dead")
        else:
            self.ends(life, actor, ready_s=self.now_s + (30 << (life.tries - 1)))
        return None

    def retry(self, life: Life, actor: str) -> Refusal:
        if life.state == "done":
            return IllegalTransition
        if self.held(life):
            return InProgress
        self.ends(life, actor, state="received", ready_s=self.now_s, tries=0 if life.state == "dead" else life.tries)
        return None


class Program(Machine):
    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.start_us = self.clock.now_us()
        self.model = Model()
        self.claimed: list[WebhookEvent] = []
        self.handles: dict[str, standfast.Standfast] = {}

    @initialize()
    def fresh(self) -> None:
        for name in ACTORS:
            self.handles[name] = self.opened(clock=self.clock, actor=name, as_actor=True)

    def teardown(self) -> None:
        for sf in self.handles.values():
            sf.close()

    def expect(self, refusal: Refusal, ask: Callable[[], object]) -> None:
        if refusal is None:
            ask()
            return
        with raising(refusal):
            ask()

    @rule(name=st.sampled_from(NAMES), actor=st.sampled_from(ACTORS))
    def is_delivered(self, name: str, actor: str) -> None:
        event = self.handles[actor].webhooks.receive("s", name[2:], {"n": name}, attempts_max=TRIES)
        life = self.model.lives.get(name)
        assert event.fresh == (life is None)
        if life is None:
            self.model.lives[name] = Life(len(self.model.lives), self.model.now_s)
        else:
            life.deliveries += 1
            assert event.result == life.result, "answered with what became of the first"

    @rule(name=st.sampled_from(NAMES), actor=st.sampled_from(ACTORS))
    def another_event_comes_under_its_id(self, name: str, actor: str) -> None:
        if name in self.model.lives:
            with raising(KeyConflict, match="with another payload"):
                self.handles[actor].webhooks.receive("s", name[2:], {"n": "another"}, attempts_max=TRIES)

    @rule(seconds=st.sampled_from([29, 31, LEASE_S + 1]))
    def time_passes(self, seconds: int) -> None:
        self.clock.advance(seconds)
        self.model.now_s += seconds

    @rule(actor=st.sampled_from(ACTORS))
    def claims(self, actor: str) -> None:
        claimed = self.handles[actor].webhooks.claim()
        assert (claimed.name if claimed else None) == self.model.claim(actor)
        if claimed is not None:
            self.claimed.append(claimed)

    @rule(name=st.sampled_from(NAMES), actor=st.sampled_from(ACTORS))
    def claims_one(self, name: str, actor: str) -> None:
        life, sf = self.model.lives.get(name), self.handles[actor]
        if life is None:
            return
        if life.state != "received":
            self.expect(IllegalTransition, lambda: sf.webhooks.claim(name))
        elif self.model.held(life) and life.holder == actor:
            self.claimed.append(sf.webhooks.claim(name))
            life.until_s = self.model.now_s + LEASE_S
        elif self.model.held(life):
            self.expect(InProgress, lambda: sf.webhooks.claim(name))
        elif self.model.take(life, actor):
            self.claimed.append(sf.webhooks.claim(name))
        else:
            self.expect(IllegalTransition, lambda: sf.webhooks.claim(name))

    @rule(number=st.integers(0, 5), how=st.sampled_from(["done", "fail"]))
    def a_claim_of_some_time_ends(self, number: int, how: str) -> None:
        if not self.claimed:
            return
        held = self.claimed[-1 - number % len(self.claimed)]
        assert held.agent is not None
        self.ends(held.name, held.agent, how, held)

    @rule(name=st.sampled_from(NAMES), actor=st.sampled_from(ACTORS), how=st.sampled_from(["done", "fail"]))
    def ends_by_name(self, name: str, actor: str, how: str) -> None:
        if name in self.model.lives:
            self.ends(name, actor, how, None)

    def ends(self, name: str, actor: str, how: str, held: WebhookEvent | None) -> None:
        resource, which = self.handles[actor].webhooks, held or name
        fence = held.fence if held is not None else None
        refusal = getattr(self.model, how)(self.model.lives[name], actor, fence)
        if how == "done":
            self.expect(refusal, lambda: resource.done(which, f"by {actor}"))
        else:
            self.expect(refusal, lambda: resource.fail(which, "why"))

    @rule(name=st.sampled_from(NAMES), actor=st.sampled_from(ACTORS))
    def is_retried(self, name: str, actor: str) -> None:
        life = self.model.lives.get(name)
        if life is not None:
            self.expect(self.model.retry(life, actor), lambda: self.handles[actor].webhooks.retry(name))

    @rule(name=st.sampled_from(NAMES), actor=st.sampled_from(ACTORS))
    def is_resolved(self, name: str, actor: str) -> None:
        life, sf = self.model.lives.get(name), self.handles[actor]
        if life is None:
            return
        refusal = None if life.state == "dead" else IllegalTransition
        if refusal is None:
            self.model.ends(life, actor, state="done", result="by hand")
        self.expect(refusal, lambda: sf.webhooks.resolve(name, note="by hand", result="by hand"))

    @invariant()
    def both_agree(self) -> None:
        if not self.handles:
            return
        resource, lives = self.handles["ann"].webhooks, self.model.lives
        events = {event.name: event for event in resource.list()}
        assert events.keys() == lives.keys()
        for name, life in lives.items():
            event = events[name]
            ready_s = (event.ready_us - self.start_us) // SECOND_US
            found = (
                event.state,
                event.attempts,
                event.deliveries,
                event.fence,
                event.holder,
                event.result,
                ready_s,
            )
            holder = f"a:{life.holder}" if life.holder else None
            wanted = (life.state, life.tries, life.deliveries, life.fence, holder, life.result, life.ready_s)
            assert found == wanted, name
        dead = {events[name].id for name, life in lives.items() if life.state == "dead"}
        assert {letter.subject for letter in resource.dead()} == dead, "dead, and with a letter that says why"
