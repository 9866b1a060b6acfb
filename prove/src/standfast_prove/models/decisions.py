"""Decisions against a model of ten lines: after any openings and crashes, both have the same rows."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from standfast.errors import EffectInDoubt, IllegalTransition
from standfast.ledger.decisions import Deciding, decide
from standfast.ledger.openings import Opening
from standfast_prove.models.machine import Machine

STEPS = 30

WORDS = st.sampled_from(["edit", "push", "deploy"])
KEYS = st.sampled_from(["a", "b"])


class Program(Machine):
    """Two sessions, with any number of openings of each. A crash is an opening that is never used again."""

    def __init__(self) -> None:
        super().__init__()
        self.sf = self.opened()
        self.openings = {key: self._open(key) for key in "ab"}
        self.blocks: list[tuple[tuple[str, str, int], Deciding]] = []
        # The model: session, text and count of an opening map to state and outcome.
        self.model: dict[tuple[str, str, int], tuple[str, str | None]] = {}
        self.counts: dict[tuple[str, str], int] = {}

    def teardown(self) -> None:
        self.sf.close()

    def _open(self, key: str) -> Opening:
        return Opening(
            self.sf._store,
            session_id=f"ses_{self.number}{key}",
            session_key=key,
            node_id=f"nod_{self.number}{key}",
            fence=1,
        )

    @rule(key=KEYS)
    def crash_and_open_again(self, key: str) -> None:
        self.openings[key] = self._open(key)
        self.blocks = [(place, block) for place, block in self.blocks if place[0] != key]
        self.counts = {place: count for place, count in self.counts.items() if place[0] != key}

    @rule(key=KEYS, what=WORDS)
    def reach(self, key: str, what: str) -> None:
        block = decide(self.openings[key], what).__enter__()
        n = self.counts[key, what] = self.counts.get((key, what), 0) + 1
        known = self.model.get((key, what, n))
        assert block.resumed == (known is not None)
        if known is None or known[0] == "failed":
            self.model[key, what, n] = ("open", None)
        self.blocks.append(((key, what, n), block))

    @rule(number=st.integers(min_value=0), how=st.sampled_from(["done", "failed", "interrupted"]), word=st.text("xy"))
    def leave(self, number: int, how: str, word: str) -> None:
        if not self.blocks:
            return
        place, block = self.blocks.pop(number % len(self.blocks))
        block.outcome = word
        errors = {"done": None, "failed": ValueError(word), "interrupted": EffectInDoubt("who knows")}
        error = errors[how]
        block.__exit__(type(error) if error else None, error, None)
        if self.model[place][0] == "open" and how != "interrupted":
            self.model[place] = (how, word if how == "done" else f"ValueError: {word}".removesuffix(": "))

    @rule(number=st.integers(min_value=0), state=st.sampled_from(["done", "failed", "withdrawn"]))
    def close_by_id(self, number: int, state: str) -> None:
        rows = self.sf.decisions.list()
        if not rows:
            return
        row = rows[number % len(rows)]
        place = (row.session_id or "")[-1], row.what, row.n
        close = {
            "done": self.sf.decisions.done,
            "failed": self.sf.decisions.fail,
            "withdrawn": self.sf.decisions.withdraw,
        }
        try:
            close[state](row.id, "by hand")
        except IllegalTransition:
            assert self.model[place][0] != "open"
        else:
            assert self.model[place] in [("open", None), (state, "by hand")]
            self.model[place] = (state, "by hand")

    @invariant()
    def the_rows_are_the_models(self) -> None:
        found = {
            ((row.session_id or "")[-1], row.what, row.n): (row.state, row.outcome) for row in self.sf.decisions.list()
        }
        assert found == self.model
        assert {row.id for row in self.sf.decisions.incomplete()} == {
            row.id for row in self.sf.decisions.list() if row.state == "open"
        }
