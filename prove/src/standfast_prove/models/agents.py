"""Agents compared with a model of a few lines: their reports, their leases, and when they were last seen."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

import standfast
from standfast.clock import ManualClock
from standfast_prove.models.machine import Machine

STEPS = 25

NAMES = ("ann", "bob")
LEASE_M, STALE_M, NOTICE_M = 15, 60, 5


@dataclass
class Known:
    """The model of one agent: its report, when it was last seen, and the end of its lease."""

    said: str = "idle"
    seen: int = 0
    task: bool = False
    until: int = 0


class Program(Machine):
    @initialize()
    def fresh(self) -> None:
        self.clock, self.minute = ManualClock(), 0
        self.known: dict[str, Known] = {}
        self.noticed: dict[str, int] = {}
        self.sf: dict[str, standfast.Standfast] = {}
        for name in NAMES:
            self.sf[name] = self.opened(clock=self.clock, actor=name, as_actor=True)
            self.sf[name].tasks.add(f"for {name}", assignee=name)

    def teardown(self) -> None:
        for sf in getattr(self, "sf", {}).values():
            sf.close()

    @rule(name=st.sampled_from(NAMES))
    def works(self, name: str) -> None:
        self.sf[name].tasks.claim(f"{self.task(name)}")
        known = self.known.setdefault(name, Known())
        known.task, known.until = True, self.minute + LEASE_M
        if self.minute - self.noticed.get(name, -NOTICE_M) >= NOTICE_M:
            known.seen = self.noticed[name] = self.minute

    def task(self, name: str) -> str:
        (found,) = self.sf[name].tasks.list(assignee=name)
        return found.id

    @rule(name=st.sampled_from(NAMES))
    def gives_back(self, name: str) -> None:
        self.sf[name].tasks.release(self.task(name), force=True)
        if name in self.known:
            self.known[name].task = False

    @rule(name=st.sampled_from(NAMES), status=st.sampled_from(["idle", "active", "blocked", "error"]))
    def says(self, name: str, status: str) -> None:
        self.sf[name].agents.set(status=status, why="because")
        known = self.known.setdefault(name, Known())
        known.said, known.seen = status, self.minute

    @rule(minutes=st.sampled_from([1, 6, 16, 61]))
    def waits(self, minutes: int) -> None:
        self.clock.advance(minutes * 60)
        self.minute += minutes

    @invariant()
    def both_agree(self) -> None:
        if not hasattr(self, "known"):
            return
        shown = {}
        for name, known in self.known.items():
            working = known.task and self.minute < known.until
            status = known.said if known.said in ("blocked", "error") or not working else "active"
            silent = self.minute - known.seen > STALE_M
            stale = not working and silent and (known.said != "idle" or known.task)
            shown[name] = (status, known.task, stale, False)
        found = self.sf["ann"].agents.list()
        assert {one.name: (one.status, one.task_id is not None, one.stale, one.crashed) for one in found} == shown
