"""Sessions against a model of ten lines: after any calls of two actors at any time, both agree."""

from __future__ import annotations

from contextlib import nullcontext
from itertools import count

from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

import standfast
from standfast.clock import MINUTE_US, ManualClock
from standfast_prove.models.machine import Machine
from standfast_prove.raising import raising
from standfast_prove.scenes import orphan

STEPS = 25

ACTORS = st.sampled_from(["ada", "bob"])
MINUTES = st.integers(1, 12)


class Model:
    """The model of a session: a state, an owner until a time, a growing fencing token, and its messages."""

    def __init__(self) -> None:
        self.state, self.until, self.fence = "", 0, 0
        self.owner: str | None = None
        self.said: list[str] = []
        self.crashes = 0
        self.doubt: str | None = None
        """Its effect in doubt, which stops every other effect."""

    def live(self, now: int) -> bool:
        return self.owner is not None and now < self.until

    def open(self, actor: str, now: int, until: int) -> bool:
        if self.live(now) and self.owner != actor:
            return False
        if not self.live(now):
            self.crashes += self.owner is not None
            self.fence += 1
        self.state, self.owner, self.until = "active", actor, until
        return True

    def end(self, actor: str, now: int, state: str) -> bool:
        if not self.state or (self.live(now) and self.owner != actor):
            return False
        self.state, self.owner = state, None
        return True

    def leave(self, actor: str) -> bool:
        if self.owner != actor:
            return False
        self.state, self.owner = "waiting" if self.doubt else "completed", None
        return True

    def take(self) -> bool:
        if self.owner is None:
            return False
        self.state, self.owner, self.fence = "waiting", None, self.fence + 1
        return True


class Program(Machine):
    def __init__(self) -> None:
        super().__init__()
        self.key = f"the session of {self.scope}"
        self.clock = ManualClock()
        self.model = Model()
        self.numbers = count(1)
        self.handles = {actor: self.opened(clock=self.clock, actor=actor, as_actor=True) for actor in ("ada", "bob")}

    def teardown(self) -> None:
        for sf in self.handles.values():
            sf.close()

    @rule(actor=ACTORS, minutes=MINUTES)
    def open(self, actor: str, minutes: int) -> None:
        now = self.clock.now_us()
        expected = self.model.open(actor, now, now + minutes * MINUTE_US)
        resource = self.handles[actor].sessions
        if expected:
            assert resource.open(self.key, for_=f"{minutes}m").record.fence == self.model.fence
        else:
            with raising(standfast.InProgress, match=f"held by {self.model.owner}"):
                resource.open(self.key, for_=f"{minutes}m")

    @rule(actor=ACTORS, state=st.sampled_from(["completed", "failed", "waiting"]))
    def end(self, actor: str, state: str) -> None:
        expected = self.model.end(actor, self.clock.now_us(), state)
        with nullcontext() if expected else raising((standfast.InProgress, standfast.NotFound)):
            self.handles[actor].sessions.end(self.key, state)

    @rule(actor=ACTORS)
    @precondition(lambda self: self.model.state)
    def leave(self, actor: str) -> None:
        """Leave the block: the session is completed, unless an effect is in doubt."""
        resource, fence = self.handles[actor].sessions, self.model.fence
        session = resource.get(self.key).id
        expected = self.model.leave(actor)
        with nullcontext() if expected else raising(standfast.LeaseLost):
            resource.leave(session, fence=fence)

    @rule(actor=ACTORS)
    @precondition(lambda self: self.model.state)
    def lose_an_effect(self, actor: str) -> None:
        sf, intent = self.handles[actor], {"n": self.clock.now_us(), "by": actor, "steps": next(self.numbers)}
        if self.model.doubt:
            with raising(standfast.EffectInDoubt):
                sf.effects.begin("model.post", intent, session=self.key)
        else:
            self.model.doubt = sf.effects.begin("model.post", intent, session=self.key).id
            orphan(sf, self.model.doubt)

    @rule(actor=ACTORS, answer=st.sampled_from(["applied", "not_applied"]))
    @precondition(lambda self: self.model.doubt)
    def resolve(self, actor: str, answer: str) -> None:
        assert self.model.doubt is not None
        self.handles[actor].effects.resolve(self.model.doubt, answer, evidence="the books")
        self.model.doubt = None

    @rule(actor=ACTORS)
    def take(self, actor: str) -> None:
        expected = self.model.take()
        with nullcontext() if expected else raising((standfast.Conflict, standfast.NotFound)):
            self.handles[actor].sessions.take(self.key)

    @rule(actor=ACTORS, text=st.sampled_from("abc"))
    def say_once(self, actor: str, text: str) -> None:
        with nullcontext() if self.model.state else raising(standfast.NotFound):
            self.handles[actor].sessions.say(self.key, "user", text, key=text)
        if self.model.state and text not in self.model.said:
            self.model.said.append(text)

    @rule(minutes=MINUTES)
    def time_passes(self, minutes: int) -> None:
        self.clock.advance(minutes * 60)

    @rule()
    def lid_is_closed(self) -> None:
        # On one host a lease counts time awake; on a server, the server's time.
        if self.handles["ada"].engine.name == "sqlite":
            self.clock.sleep("1h")
            self.model.until += 60 * MINUTE_US

    @invariant()
    def the_store_agrees(self) -> None:
        sf = self.handles["ada"]
        if not self.model.state:
            with raising(standfast.NotFound):
                sf.sessions.get(self.key)
            return
        record = sf.sessions.get(self.key)
        owner = f"a:{self.model.owner}" if self.model.owner else None
        assert (record.state, record.holder, record.fence) == (self.model.state, owner, self.model.fence)
        alive = self.model.live(self.clock.now_us())
        assert record.crashed == (record.state == "active" and not alive)
        assert [m.content for m in sf.sessions.messages(self.key)] == self.model.said
        acked = [event.type for event in sf.journal.about(record.id, limit=1000)]
        assert acked.count("session.taken_over") == self.model.crashes
