"""Mail against a model of a few lines: after any calls in any order, both agree."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

import standfast
from standfast.clock import ManualClock
from standfast.errors import Conflict, IllegalTransition, InProgress, LeaseLost
from standfast.record.mail import Mail
from standfast_prove.models.machine import Machine
from standfast_prove.raising import raising

STEPS = 30

ACTORS = ("ann", "bob")
LEASE_M = 15
BOUND = 4


@dataclass(frozen=True)
class Draft:
    """The model: one mail."""

    priority: int
    attempts_max: int
    expires: int | None
    state: str = "sent"
    ready: int = 0
    attempts: int = 0
    fence: int = 0
    holder: str = ""
    until: int = 0
    by: str = ""
    """The actor that ended it."""
    fates: tuple[str, ...] = ()
    """How its attempts ended."""


@dataclass
class Model:
    minute: int = 0
    letters: list[Draft] = field(default_factory=list)

    def live(self, one: Draft) -> bool:
        return bool(one.holder) and self.minute < one.until

    def over(self, one: Draft) -> bool:
        """Whether its lease has ended, so that no reader holds it."""
        late = one.expires is not None and one.expires <= self.minute
        return one.state in ("sent", "leased", "read") and late and not self.live(one)

    def queue(self) -> list[int]:
        ready = [
            n
            for n, one in enumerate(self.letters)
            if one.state in ("sent", "leased", "read")
            and one.ready <= self.minute
            and not self.live(one)
            and (one.expires is None or one.expires > self.minute)
        ]
        return sorted(ready, key=lambda n: (self.letters[n].priority, n))

    def waiting(self) -> int:
        return sum(one.state in ("sent", "leased", "read") for one in self.letters)

    def back(self, one: Draft, fate: str, ready: int | None = None) -> Draft:
        """An attempt ends without the mail being done."""
        dead = fate == "refused" or one.attempts >= one.attempts_max
        state = "dead" if dead else "sent"
        ready = one.ready if ready is None or dead else ready
        return replace(one, state=state, holder="", fence=one.fence + 1, fates=(*one.fates, fate), ready=ready)

    def taken(self, one: Draft, actor: str) -> Draft:
        until = self.minute + LEASE_M
        return replace(one, state="leased", holder=actor, until=until, fence=one.fence + 1, attempts=one.attempts + 1)

    def forced(self, one: Draft, actor: str) -> Draft:
        """The actor takes the mail from any other holder. A late holder loses it, also after the last attempt."""
        if one.holder == actor:
            return one
        if one.holder:
            one = replace(one, holder="", state="sent", fence=one.fence + 1, fates=(*one.fates, "lost"))
        return self.taken(one, actor)

    def shown(self, one: Draft) -> tuple[object, ...]:
        state = "expired" if self.over(one) else one.state
        return (state, one.attempts, one.fence, f"a:{one.holder}" if one.holder else None)


class Program(Machine):
    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.model = Model()
        self.ids: list[str] = []
        self.claims: list[Mail] = []
        self.handles: dict[str, standfast.Standfast] = {}

    @initialize()
    def fresh(self) -> None:
        for name in ACTORS:
            self.handles[name] = self.opened(clock=self.clock, actor=name, as_actor=True)
        self.look = self.handles["ann"]
        self.look.mail.bound("box", BOUND)

    def teardown(self) -> None:
        for sf in self.handles.values():
            sf.close()

    @rule(
        actor=st.sampled_from(ACTORS),
        key=st.sampled_from([None, "k", "l"]),
        priority=st.integers(0, 1),
        attempts=st.integers(1, 3),
        minutes=st.sampled_from([None, None, 5, 20]),
    )
    def sends(self, actor: str, key: str | None, priority: int, attempts: int, minutes: int | None) -> None:
        asked = {"key": key, "priority": priority, "attempts_max": attempts}
        for_ = None if minutes is None else f"{minutes}m"
        known = [n for n, id in enumerate(self.ids) if key and self.look.mail.get(id).key == key]
        if not known and self.model.waiting() >= BOUND:
            with raising(Conflict, match="is full"):
                self.handles[actor].mail.send("box", "hi", for_=for_, **asked)  # type: ignore[arg-type]
            return
        sent = self.handles[actor].mail.send("box", "hi", for_=for_, **asked)  # type: ignore[arg-type]
        assert sent.replayed == bool(known)
        if known:
            assert sent.id == self.ids[known[0]]
            return
        expires = None if minutes is None else self.model.minute + minutes
        self.model.letters.append(Draft(priority, attempts, expires, ready=self.model.minute))
        self.ids.append(sent.id)

    @rule(minutes=st.sampled_from([1, 4, 16]))
    def waits(self, minutes: int) -> None:
        self.clock.advance(minutes * 60)
        self.model.minute += minutes

    @rule(actor=st.sampled_from(ACTORS), read=st.booleans())
    def takes(self, actor: str, read: bool) -> None:
        resource = self.handles[actor].mail
        found = resource.read(to="box") if read else resource.claim("box")
        expected = None
        while queue := self.model.queue():
            expected = queue[0]
            one = self.model.letters[expected]
            if one.holder:
                one = self.model.letters[expected] = self.model.back(one, "lost")
            if one.state != "dead":
                taken = self.model.taken(one, actor)
                self.model.letters[expected] = replace(taken, state="read" if read else "leased")
                break
            expected = None
        assert (found.id if found else None) == (self.ids[expected] if expected is not None else None)
        if found is not None:
            self.claims.append(found)

    @rule(
        number=st.integers(0, 3),
        actor=st.sampled_from(ACTORS),
        verb=st.sampled_from(["done", "defer", "release", "refuse"]),
        claim=st.integers(-1, 2),
    )
    def ends(self, number: int, actor: str, verb: str, claim: int) -> None:
        """End it by id, or with one of the actor's claims, the newest first."""
        if number >= len(self.ids):
            return
        id, one = self.ids[number], self.model.letters[number]
        had = [mail for mail in self.claims if (mail.id, mail.agent) == (id, actor)][::-1]
        mail = had[claim] if 0 <= claim < len(had) else None
        act = self.act(actor, verb, mail or id)
        expected = self.refused(one, actor, verb, mail)
        if expected is not None:
            with raising(expected):
                act()
            return
        act()
        if one.state == "done":
            return  # the same call again
        held = self.model.forced(one, actor)
        later = self.model.minute + 10 if verb == "defer" else None
        fate = {"defer": "deferred", "release": "returned", "refuse": "refused"}.get(verb, "done")
        if verb == "done":
            fates = (*held.fates, "done")
            self.model.letters[number] = replace(held, state="done", holder="", by=actor, fates=fates)
        else:
            self.model.letters[number] = self.model.back(held, fate, later)

    def act(self, actor: str, verb: str, which: Mail | str) -> Callable[[], object]:
        resource = self.handles[actor].mail
        return {
            "done": lambda: resource.done(which),
            "defer": lambda: resource.defer(which, for_="10m"),
            "release": lambda: resource.release(which),
            "refuse": lambda: resource.refuse(which, "no"),
        }[verb]

    def refused(self, one: Draft, actor: str, verb: str, mail: Mail | None) -> type[Exception] | None:
        if one.state == "done" and verb == "done":
            if mail is not None:
                return None if mail.fence == one.fence else LeaseLost
            return None if one.by == actor else IllegalTransition
        if mail is not None and mail.fence != one.fence:
            return LeaseLost
        if self.model.live(one) and one.holder != actor:
            return LeaseLost
        if one.state in ("done", "dead", "expired"):
            return IllegalTransition
        if self.model.over(one) and one.holder != actor:
            return IllegalTransition
        return None

    @rule(number=st.integers(0, 3), actor=st.sampled_from(ACTORS))
    def reads_by_name(self, number: int, actor: str) -> None:
        if number >= len(self.ids):
            return
        one, resource = self.model.letters[number], self.handles[actor].mail
        if self.model.live(one) and one.holder != actor:
            with raising(InProgress):
                resource.read(self.ids[number])
        elif one.state in ("done", "dead", "expired") or self.model.over(one):
            with raising(IllegalTransition):
                resource.read(self.ids[number])
        else:
            found = resource.read(self.ids[number])
            assert found is not None
            self.claims.append(found)
            if not self.model.live(one):
                if one.holder:
                    one = replace(one, holder="", fence=one.fence + 1, fates=(*one.fates, "lost"))
                one = self.model.taken(one, actor)
            self.model.letters[number] = replace(one, state="read")

    @rule(number=st.integers(0, 3))
    def tries_again(self, number: int) -> None:
        if number >= len(self.ids):
            return
        one = self.model.letters[number]
        if self.model.over(one) and not one.holder:  # the dead letter is also recorded if the call fails
            one = self.model.letters[number] = replace(one, state="expired", fence=one.fence + 1)
        if one.state not in ("dead", "expired"):
            with raising(IllegalTransition):
                self.look.mail.retry(self.ids[number], attempts=1)
        elif self.model.waiting() >= BOUND:
            with raising(Conflict, match="is full"):
                self.look.mail.retry(self.ids[number], attempts=1)
        else:
            self.look.mail.retry(self.ids[number], attempts=1)
            self.model.letters[number] = replace(
                one,
                state="sent",
                attempts_max=one.attempts + 1,
                expires=None,
                ready=self.model.minute,
                fence=one.fence + 1,
            )

    @rule()
    def sweeps(self) -> None:
        swept = self.look.mail.sweep()
        assert not swept.more
        for n, one in enumerate(self.model.letters):
            if one.holder and not self.model.live(one):
                one = self.model.letters[n] = self.model.back(one, "lost")
            if one.state == "sent" and self.model.over(one):
                self.model.letters[n] = replace(one, state="expired", fence=one.fence + 1)

    @invariant()
    def both_agree(self) -> None:
        if not self.handles:
            return
        found = {mail.id: mail for mail in self.look.mail.list(state="any", limit=1000)}
        shown = [(m.state, m.attempts, m.fence, m.holder) for m in (found[id] for id in self.ids)]
        assert shown == [self.model.shown(one) for one in self.model.letters]
        for id, one in zip(self.ids, self.model.letters, strict=True):
            fates = [attempt.outcome for attempt in self.look.mail.delivered(id).attempts]
            assert fates == [*one.fates, *([None] if one.holder else [])]
        dead = {letter.subject for letter in self.look.mail.dead()}
        assert dead == {id for id, one in zip(self.ids, self.model.letters, strict=True) if one.state == "dead"}
