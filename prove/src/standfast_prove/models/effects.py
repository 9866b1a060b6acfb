"""Effects against a model of a few lines: any sequence of calls, crashes and settlements.

Each call uses its own session, or the shared session. In the shared session a doubt stops every other effect.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

import standfast
from standfast_prove.models.machine import Machine
from standfast_prove.scenes import orphan, prune

STEPS = 25

KEYS = st.sampled_from(["a", "b"])
SHARED = "the session of many effects"
TOOL = "model.pay"
REFUSALS = (
    standfast.InProgress,
    standfast.EffectInDoubt,
    standfast.IllegalTransition,
    standfast.Conflict,
    standfast.NotFound,
)


class Model:
    """One effect: its state, the number of sends, whether a call is in progress, and its result.

    `shared`: the shared session sent it last. `asked`: this process knows a probe for it. `passed`: the attempt that
    the program passed over with `proceed`. `resolved`: the attempt whose result a person gave.
    """

    def __init__(self) -> None:
        self.state, self.attempt, self.live = "nothing", 0, False
        self.result: str | None = None
        self.pruned = self.shared = self.asked = False
        self.passed = self.resolved = 0

    @property
    def in_doubt(self) -> bool:
        return self.state == "dispatched" and not self.live

    @property
    def stops(self) -> bool:
        """Whether this effect keeps the shared session from sending other effects."""
        return self.in_doubt and self.shared and self.passed != self.attempt

    def settle(self, there: bool) -> None:
        """Its probe is asked before another effect is sent."""
        self.state, self.result = ("acknowledged", "found") if there else ("failed", None)

    def call(self, kind: str, there: bool) -> str:
        """The outcome of a call: sent, replayed, found in the outside system, or refused."""
        if self.pruned or self.state in ("superseded", "compensated"):
            return "conflict"
        if self.state == "acknowledged":
            return "recorded"
        if self.state == "dispatched" and self.live:
            return "in_progress"
        if self.in_doubt and kind == "probed" and there:
            return "found"
        if self.in_doubt and kind == "plain":
            return "in_doubt"
        return "sent"


class Program(Machine):
    @initialize()
    def fresh(self) -> None:
        self.sf = self.opened()
        self.models = {"a": Model(), "b": Model()}
        self.world: dict[str, list[int]] = {"a": [], "b": []}
        self.openings = 0

    def teardown(self) -> None:
        if hasattr(self, "sf"):
            self.sf.close()

    # -- the function form ------------------------------------------------------------------------

    @rule(
        key=KEYS,
        kind=st.sampled_from(["plain", "probed", "idempotent"]),
        ending=st.sampled_from(["ok", "no", "lost"]),
        shared=st.booleans(),
    )
    def call(self, key: str, kind: str, ending: str, shared: bool) -> None:
        model = self.models[key]
        expected = model.call(kind, bool(self.world[key]))
        if model.in_doubt and kind == "probed":
            model.asked = True
        other = self.models["b" if key == "a" else "a"]
        if shared and expected == "sent" and not model.in_doubt and other.stops:
            if other.asked:
                other.settle(bool(self.world["b" if key == "a" else "a"]))
            else:
                expected = "in_doubt"
        assert self.perform(key, kind, ending, shared) == (ending if expected == "sent" else expected)
        if expected == "found":
            model.state, model.result = "acknowledged", "found"
        elif expected == "sent":
            model.shared, model.asked = shared, model.asked or (kind == "probed" and ending == "lost")
            # A resend that was not sent proves nothing about the attempt before it.
            unsent = "dispatched" if model.in_doubt and kind == "idempotent" else "failed"
            model.attempt += 1
            model.state = {"ok": "acknowledged", "no": unsent, "lost": "dispatched"}[ending]
            model.live, model.result = False, f"attempt {model.attempt}" if ending == "ok" else None
        if shared and expected not in ("in_doubt", "in_progress"):
            waits = any(one.stops for one in self.models.values())
            assert self.sf.sessions.get(SHARED).state == ("waiting" if waits else "completed")

    @rule()
    def proceed(self) -> None:
        """The program continues although the outcome is unknown. Each doubt needs its own call, which is journalled."""
        with self.sf.session(SHARED) as s:
            passed = {effect.key for effect in s.proceed()}
        assert passed == {key for key, model in self.models.items() if model.stops}
        for key in passed:
            self.models[key].passed = self.models[key].attempt

    def perform(self, key: str, kind: str, ending: str, shared: bool) -> str:
        """The outcome in one word. Each request that arrives is recorded by its attempt."""

        def do(call: standfast.Call) -> str:
            if ending != "no":
                self.world[key].append(call.attempt)
            if ending == "no":
                raise standfast.NotApplied
            if ending == "lost":
                raise TimeoutError
            return f"attempt {call.attempt}"

        def probe(call: standfast.Call) -> Any:
            return standfast.Applied("found") if self.world[key] else standfast.NotApplied()

        before = len(self.world[key])
        self.openings += 1
        kinds: dict[str, dict[str, Any]] = {
            "probed": {"probe": probe, "settle": 0},
            "idempotent": {"idempotent": True},
        }
        with self.sf.session(SHARED if shared else f"session {self.openings}") as s:
            try:
                result = s.effect(TOOL, {"key": key}, key=key, do=do, **kinds.get(kind, {}))
            except standfast.NotApplied:
                return "no"
            except TimeoutError:
                return "lost"
            except standfast.InProgress:
                return "in_progress"
            except standfast.EffectInDoubt:
                return "in_doubt"
            except standfast.Conflict:
                return "conflict"
        if len(self.world[key]) > before:
            return "ok"
        return "found" if result == "found" and self.models[key].state != "acknowledged" else "recorded"

    # -- the split form, crashes and people -------------------------------------------------------

    @rule(key=KEYS)
    def plan(self, key: str) -> None:
        model = self.models[key]
        planned = self.refused(lambda: self.sf.effects.plan(TOOL, {"key": key}, key=key))
        assert planned == (model.call("plain", False) in ("conflict", "in_progress", "in_doubt"))
        if model.state == "nothing":
            model.state = "planned"

    @rule(key=KEYS)
    def begin(self, key: str) -> None:
        model = self.models[key]
        expected = model.call("plain", False)
        refused = self.refused(lambda: self.sf.effects.begin(TOOL, {"key": key}, key=key))
        assert refused == (expected not in ("sent", "recorded"))
        if expected == "sent":
            model.attempt, model.state, model.live, model.result = model.attempt + 1, "dispatched", True, None
            self.world[key].append(model.attempt)

    @rule(key=KEYS, ending=st.sampled_from(["acknowledged", "failed"]))
    def end(self, key: str, ending: str) -> None:
        model = self.models[key]
        result = f"by hand {model.attempt}"
        say = {
            "acknowledged": lambda: self.sf.effects.done(key, result, attempt=model.attempt),
            "failed": lambda: self.sf.effects.fail(key, "no", attempt=model.attempt),
        }[ending]
        same = model.state == ending and (ending == "failed" or model.result == result) and not model.pruned
        allowed = model.state == "dispatched" or same or (model.pruned and model.state == ending == "failed")
        assert self.refused(say) == (not allowed)
        if model.state == "dispatched":
            model.state, model.live = ending, False
            model.result = result if ending == "acknowledged" else None

    @rule(key=KEYS)
    @precondition(lambda self: any(model.live for model in self.models.values()))
    def crash(self, key: str) -> None:
        if self.models[key].live:
            orphan(self.sf, key)
            self.models[key].live = False

    @rule(key=KEYS, answer=st.sampled_from(["applied", "not_applied"]))
    def resolve(self, key: str, answer: str) -> None:
        model = self.models[key]
        state = "acknowledged" if answer == "applied" else "failed"
        result = "resolved" if answer == "applied" else None
        given = model.state == "acknowledged" and model.resolved == model.attempt and not model.pruned
        corrects = given and answer == "applied"
        allowed = model.in_doubt or corrects or (model.state == state and model.result == result)
        say = lambda: self.sf.effects.resolve(key, answer, evidence="looked", result=result)  # noqa: E731
        assert self.refused(say) == (not allowed)
        if model.in_doubt:
            model.state, model.result = state, result
            model.resolved = model.attempt if answer == "applied" else 0
        elif corrects:
            model.result = result

    @rule(key=KEYS)
    def supersede(self, key: str) -> None:
        model = self.models[key]
        assert self.refused(lambda: self.sf.effects.supersede(key)) == (model.state != "planned")
        if model.state == "planned":
            model.state = "superseded"

    @rule(key=KEYS)
    def compensate(self, key: str) -> None:
        model = self.models[key]
        allowed = model.state == "compensated" or (model.state == "acknowledged" and not model.pruned)
        assert self.refused(lambda: self.sf.effects.compensate(key, lambda result: None)) == (not allowed)
        if allowed:
            model.state = "compensated"

    @rule(key=KEYS)
    @precondition(lambda self: any(model.state == "acknowledged" for model in self.models.values()))
    def prune(self, key: str) -> None:
        if self.models[key].state == "acknowledged":
            prune(self.sf, key)
            self.models[key].pruned, self.models[key].result = True, None

    def refused(self, say: Callable[[], object]) -> bool:
        try:
            say()
        except REFUSALS:
            return True
        return False

    # -- invariants -------------------------------------------------------------------------------

    @invariant()
    def the_store_says_what_the_model_says(self) -> None:
        if not hasattr(self, "sf"):
            return
        for key, model in self.models.items():
            if model.state == "nothing":
                assert self.refused(lambda key=key: self.sf.effects.get(key))  # type: ignore[misc]
                continue
            effect = self.sf.effects.get(key)
            found = (effect.state, effect.attempt, effect.in_doubt, effect.result)
            assert found == (model.state, model.attempt, model.in_doubt, model.result)
            assert [attempt for attempt in self.world[key] if self.world[key].count(attempt) > 1] == []
        doubtful = {effect.key for effect in self.sf.effects.in_doubt()}
        assert doubtful == {key for key, model in self.models.items() if model.in_doubt}
