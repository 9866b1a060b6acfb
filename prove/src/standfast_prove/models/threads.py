"""Threads against a model: after any put, fork, prune, copy and delete, each checkpoint reads as it was put."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

import standfast
from standfast_prove.models.machine import Machine

STEPS = 20

ONE = st.binary(max_size=60) | st.builds(lambda n: b"\xdc" + n.to_bytes(2, "big") + b"ab" * n, st.integers(0, 40))


class Program(Machine):
    """The model: {thread: {id: value}}, and which threads were deleted."""

    def __init__(self) -> None:
        super().__init__()
        self.handles: list[standfast.Standfast] = []
        self.model: dict[str, dict[str, bytes]] = {}
        self.deleted: set[str] = set()
        self.n = 0

    @initialize()
    def begin(self) -> None:
        # Each handle caches the stored rows: neither may rely on its own cache alone.
        self.handles = [
            self.opened(),
            self.opened(),
        ]

    @rule(thread=st.sampled_from("ab"), who=st.integers(0, 1), back=st.integers(0, 3), value=ONE | st.just(b"x" * 2000))
    def put(self, thread: str, who: int, back: int, value: bytes) -> None:
        ids = sorted(self.model.get(thread, {}))
        parent = ids[-1 - min(back, len(ids) - 1)] if ids else None
        self.n += 1
        value = (self.model[thread][parent] if parent else b"") + value + b"%d" % self.n
        kept: dict[str, Any] = {"header": b"h", "values": {"v": True}, "value_of": lambda _: ("text", value)}
        self.handles[who].threads.put(thread, f"{self.n:04}", parent_id=parent, run_id=f"r{self.n:04}", **kept)
        self.model.setdefault(thread, {})[f"{self.n:04}"] = value
        self.deleted.discard(thread)

    @rule(thread=st.sampled_from("ab"), who=st.integers(0, 1))
    def prune(self, thread: str, who: int) -> None:
        ids = sorted(self.model.get(thread, {}))
        assert self.handles[who].threads.prune(thread) == max(0, len(ids) - 1)
        self.model[thread] = {id: self.model[thread][id] for id in ids[-1:]}

    @rule(who=st.integers(0, 1), back=st.integers(0, 3))
    def delete_run(self, who: int, back: int) -> None:
        """Delete the checkpoints of a run, in every thread to which they were copied."""
        id = f"{max(1, self.n - back):04}"
        count = sum(id in kept for kept in self.model.values())
        assert self.handles[who].threads.delete_runs([f"r{id}"]) == count
        for kept in self.model.values():
            kept.pop(id, None)

    @rule(thread=st.sampled_from("ab"), who=st.integers(0, 1))
    def delete(self, thread: str, who: int) -> None:
        self.handles[who].threads.delete(thread)
        self.model.pop(thread, None)
        self.deleted.add(thread)

    @rule(who=st.integers(0, 1))
    def copy(self, who: int) -> None:
        if self.model.get("a"):
            self.handles[who].threads.copy("a", "b")
            self.model["b"] = self.model["a"] | self.model.get("b", {})
            self.deleted.discard("b")

    @invariant()
    def everything_reads_as_it_was_put(self) -> None:
        for sf in self.handles:
            for thread in "ab":
                found = {one.id: one.values["v"][1] for one in sf.threads.list(thread)}
                assert found == self.model.get(thread, {})

    def teardown(self) -> None:
        for sf in self.handles:
            sf.close()
