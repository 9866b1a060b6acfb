"""State against a model of a few lines: after any calls in any order, both agree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from standfast.clock import ManualClock
from standfast.errors import InvalidInput, NotFound, StandfastError, VersionConflict
from standfast_prove.models.machine import Machine
from standfast_prove.raising import raising

STEPS = 30

KEYS = st.sampled_from(["a", "b"])
TERMS = st.sampled_from([None, 1, 5])
VALUES = st.one_of(st.integers(-3, 3), st.sampled_from(["x", None]))


@dataclass
class Key:
    """The model of one key: its version only grows; the value is there until it expires."""

    version: int = 0
    value: Any = None
    end: int | None = 0
    whole_numbers: bool = False
    verdict: str | None = None


class Program(Machine):
    @initialize()
    def fresh(self) -> None:
        self.clock, self.minute = ManualClock(), 0
        self.sf = self.opened(clock=self.clock)
        self.keys: dict[str, Key] = {"a": Key(), "b": Key()}

    def teardown(self) -> None:
        if hasattr(self, "sf"):
            self.sf.close()

    def there(self, key: str) -> bool:
        end = self.keys[key].end
        return end is None or end > self.minute

    def write(self, key: str, value: Any, minutes: int | None) -> None:
        known = self.keys[key]
        known.version, known.value, known.verdict = known.version + 1, value, None
        known.end = None if minutes is None else self.minute + minutes

    def unfit(self, key: str, value: Any) -> bool:
        return self.keys[key].whole_numbers and not isinstance(value, int)

    @rule(key=KEYS, value=VALUES, minutes=TERMS)
    def sets(self, key: str, value: Any, minutes: int | None) -> None:
        term = None if minutes is None else f"{minutes}m"
        if self.unfit(key, value):
            with raising(InvalidInput):
                self.sf.state.set(key, value, for_=term)
            return
        self.write(key, value, minutes)
        assert self.sf.state.set(key, value, for_=term).version == self.keys[key].version

    @rule(key=KEYS, value=VALUES, version=st.integers(0, 3))
    def swaps(self, key: str, value: Any, version: int) -> None:
        """Swap over a version (the current one, or one that is 1 or 2 older), or over no value."""
        known = self.keys[key]
        asked = 0 if version == 3 else max(0, known.version - version)
        wins = asked == (known.version if self.there(key) else 0)
        if wins and not self.unfit(key, value):
            self.write(key, value, None)
            assert self.sf.state.swap(key, value, version=asked).version == known.version
            return
        refusal = InvalidInput if wins else VersionConflict if self.there(key) else NotFound
        with raising(refusal):
            self.sf.state.swap(key, value, version=asked)

    @rule(key=KEYS)
    def updates(self, key: str) -> None:
        known = self.keys[key]
        before = known.value if self.there(key) and isinstance(known.value, int) else 0
        end = known.end if self.there(key) else None
        made = self.sf.state.update(key, lambda n: (n if isinstance(n, int) else 0) + 1, default=0)
        self.write(key, before + 1, None)
        known.end = end
        assert (made.value, made.version) == (before + 1, known.version)

    @rule(key=KEYS)
    def deletes(self, key: str) -> None:
        if not self.there(key):
            with raising(NotFound):
                self.sf.state.delete(key)
            return
        assert self.sf.state.delete(key).version == self.keys[key].version + 1
        self.write(key, None, 0)
        self.keys[key].whole_numbers = False

    @rule(key=KEYS, wanted=st.booleans())
    def says_what_fits(self, key: str, wanted: bool) -> None:
        self.write(key, 7, None)
        self.keys[key].whole_numbers = wanted
        self.sf.state.set(key, 7, json_schema={"type": "integer"} if wanted else None, verify="true")

    @rule(key=KEYS, verdict=st.sampled_from(["fresh", "stale"]), late=st.booleans())
    def verifies(self, key: str, verdict: str, late: bool) -> None:
        known = self.keys[key]
        given = self.there(key) and self.sf.state.get(key).verify is not None
        try:
            self.sf.state.verified(key, version=known.version - int(late), verdict=verdict)
            assert given
            assert not late
            known.verdict = verdict
        except StandfastError:
            assert late or not given

    @rule(minutes=st.sampled_from([1, 3]))
    def waits(self, minutes: int) -> None:
        self.clock.advance(minutes * 60)
        self.minute += minutes

    @rule()
    def sweeps(self) -> None:
        self.sf.state.expire()
        assert self.sf.state.expire() == 0

    @invariant()
    def both_agree(self) -> None:
        if not hasattr(self, "sf"):
            return
        found = {one.key: (one.value, one.version, one.verdict) for one in self.sf.state.list()}
        wanted = {key: (known.value, known.version, known.verdict) for key, known in self.keys.items()}
        assert found == {key: shown for key, shown in wanted.items() if self.there(key)}
