"""Killed at every crash point around the request, the answer, the use of the answer and the action; and again in the
recovery.

The oracle is a file outside the store. It has each approval of the person and each request that arrived. After every
kill the action has happened once or not yet, and never without an approval of exactly these bytes. After the last
recovery it has happened exactly once.
"""

from __future__ import annotations

from typing import ClassVar

import standfast
from standfast import serial
from standfast.crash import Schedule
from standfast.errors import ApprovalRequired, EffectInDoubt
from standfast_prove.crashes.world import World

TRIES_MAX = 12
EFFECT = "SELECT id, state, intent_hash, approval_id, attempt FROM effect WHERE scope = :scope"


class Approvals(World):
    """An agent that needs an approval, a person who grants it, and an outside system that counts."""

    words: ClassVar[str] = "fixes the parser"
    answer: ClassVar[str] = "granted"
    probed: ClassVar[bool] = False

    def note(self, what: str, bytes: str) -> None:
        self.tell(f"{what} {bytes}")

    def booked(self) -> list[tuple[str, str]]:
        return [(what, bytes) for what, _, bytes in (line.partition(" ") for line in self.lines())]

    @property
    def sent(self) -> list[str]:
        return [bytes for what, bytes in self.booked() if what == "sent"]

    def agent(self, sf: standfast.Standfast, words: str) -> None:
        intent = {"branch": "fix-42", "body": words}

        def do(call: standfast.Call) -> str:
            self.note("sent", serial.canonical(call.intent))
            return "done"

        def probe(_: standfast.Call) -> standfast.Applied | standfast.NotApplied:
            return standfast.Applied("done") if self.sent else standfast.NotApplied()

        with sf.session(self.name) as s:
            asking = probe if self.probed else None
            assert s.effect("open_pr", intent, by=("branch",), do=do, probe=asking, approve=True, settle=0) == "done"

    def person(self, sf: standfast.Standfast) -> None:
        """Reads each request, decides and answers; it settles a doubt by looking at the outside system."""
        for doubt in sf.effects.in_doubt():
            if self.sent:
                sf.effects.resolve(doubt.id, "applied", result="done", evidence="looked: it is there")
            else:
                sf.effects.resolve(doubt.id, "not_applied", evidence="looked: it is not there")
        for waiting in sf.approvals.list(state="requested"):
            question = sf.approvals.pose(waiting.id)
            assert question.exact
            verb = sf.approvals.grant if self.answer == "granted" else sf.approvals.deny
            self.note("yes" if self.answer == "granted" else "no", question.intent or "")
            verb(waiting.id, approver="ada")

    def live(self) -> None:
        self.night(self.words)

    def night(self, words: str) -> None:
        """Run the agent and the person in turns, until the effect is done or denied."""
        with self.open() as sf:
            for _ in range(TRIES_MAX):
                try:
                    return self.agent(sf, words)
                except ApprovalRequired as error:
                    if error.code == "approval_denied":
                        return None
                except EffectInDoubt:
                    pass
                self.person(sf)
        raise AssertionError("neither done nor denied")

    def check(self, schedule: Schedule) -> None:
        said: set[str] = set()
        for what, bytes in self.booked():
            if what == "yes":
                said.add(bytes)
            elif what == "sent":
                assert bytes in said, f"{bytes} was done without a yes to it"
        with self.open() as sf:
            (effect,) = sf.rows(EFFECT, {"scope": self.name})
            if self.answer == "denied":
                assert self.sent == []
                assert effect["state"] == "planned"
                return
            assert len(self.sent) == 1, f"{schedule}: done {len(self.sent)} times"
            assert effect["state"] == "acknowledged"
            assert serial.hash_text(self.sent[0]) == effect["intent_hash"]
            used = sf.approvals.get(effect["approval_id"])
            assert (used.state, used.intent_hash, used.effect_id) == ("consumed", effect["intent_hash"], effect["id"])
            types = [event.type for event in sf.journal.about(used.id)]
            assert types == ["approval.requested", "approval.granted", "approval.consumed"]
            assert sf.approvals.list(state="requested") == []


class Probed(Approvals):
    """The effect has a probe, which settles a doubt."""

    probed = True


class Reworded(Approvals):
    """Each process after a crash uses other arguments, so each needs its own approval."""

    def recover(self) -> None:
        self.night("repairs the parser, and more")


class Denied(Approvals):
    """A denied request stays denied."""

    words = "drops the database"
    answer = "denied"


class Asked(Approvals):
    """The steps that a shell uses: plan, request approval, grant, send, record."""

    def agent(self, sf: standfast.Standfast, words: str) -> None:
        planned = sf.effects.plan("open_pr", {"branch": "fix-42", "body": words}, key=self.name)
        if planned.state == "acknowledged":
            return
        if planned.state == "planned" and sf.approvals.request(self.name).state == "requested":
            raise ApprovalRequired("not approved yet")
        sent = sf.effects.dispatch(self.name)
        self.note("sent", serial.canonical(sent.intent))
        sf.effects.done(self.name, "done")
