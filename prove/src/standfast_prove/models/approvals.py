"""Approvals against a model of ten lines: after any calls in any order, no effect was sent without approval."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

import standfast
from standfast.clock import HOUR_US, ManualClock
from standfast.errors import ApprovalRequired, IllegalTransition
from standfast_prove.models.machine import Machine
from standfast_prove.planned import dispatch, plan, reword
from standfast_prove.raising import raising

STEPS = 25


class Asked(NamedTuple):
    """The model: one request with its arguments, its expiry and its answer."""

    words: str
    until: int
    state: str = "requested"

    def at(self, hour: int) -> Asked:
        over = self.state in ("requested", "granted") and hour >= self.until
        return self._replace(state="expired") if over else self


class Model:
    def __init__(self) -> None:
        self.hour = 0
        self.asked: dict[str, Asked] = {}

    def counts(self, words: str) -> dict[str, str]:
        """The state and id of the request that counts for these arguments now."""
        live = {id: one.at(self.hour) for id, one in self.asked.items() if one.words == words}
        over = ("expired", "consumed")
        return {one.state: id for id, one in live.items() if self.hour < one.until and one.state not in over}

    def supersede(self, words: str) -> None:
        for id, one in self.asked.items():
            if one.words != words and one.state in ("requested", "granted"):
                self.asked[id] = one._replace(state="expired")


def _call(sf: standfast.Standfast, effect: str, hours: int) -> ApprovalRequired | None:
    try:
        dispatch(sf, effect, for_us=hours * HOUR_US)
    except ApprovalRequired as error:
        return error
    return None


class Program(Machine):
    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.clock = ManualClock()
        self.sf = self.opened(clock=self.clock)
        self.words = "a"
        self.effect = plan(self.sf, "a")
        self.attempts = 0

    def teardown(self) -> None:
        self.sf.close()

    @rule(words=st.sampled_from("ab"))
    def says_it_in_other_words(self, words: str) -> None:
        self.words = words
        reword(self.sf, self.effect, words)

    @rule(hours=st.integers(1, 5))
    def calls(self, hours: int) -> None:
        self.model.supersede(self.words)
        counts = self.model.counts(self.words)
        refused = _call(self.sf, self.effect, hours)
        assert (refused is None) == ("granted" in counts)
        if refused is None:
            self.attempts += 1
            id = counts["granted"]
            self.model.asked[id] = self.model.asked[id]._replace(state="consumed")
            return
        assert refused.fresh == (not counts)
        if refused.fresh:
            self.model.asked[refused.approval_id] = Asked(self.words, self.model.hour + hours)
        else:
            assert refused.approval_id == (counts.get("requested") or counts["denied"])

    @precondition(lambda self: self.model.asked)
    @rule(data=st.data(), answer=st.sampled_from(["granted", "denied"]))
    def somebody_answers(self, data: st.DataObject, answer: str) -> None:
        id = data.draw(st.sampled_from(sorted(self.model.asked)))
        one = self.model.asked[id].at(self.model.hour)
        verb = self.sf.approvals.grant if answer == "granted" else self.sf.approvals.deny
        if one.state == "requested":
            assert verb(id, approver="ada").state == answer
            one = one._replace(state=answer)
        else:
            with raising(IllegalTransition):
                verb(id, approver="bob")
        self.model.asked[id] = one

    @rule(hours=st.integers(1, 3))
    def time_passes(self, hours: int) -> None:
        self.clock.advance(hours * 3600)
        self.model.hour += hours

    @invariant()
    def the_store_says_what_the_model_says(self) -> None:
        stored = {id: self.sf.approvals.get(id).state for id in self.model.asked}
        assert stored == {id: one.at(self.model.hour).state for id, one in self.model.asked.items()}
        assert self.sf.effects.get(self.effect).attempt == self.attempts
