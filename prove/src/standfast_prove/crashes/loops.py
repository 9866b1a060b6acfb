"""Killed at every crash point while loops are changed, fired, run, retried and ended; and again in the recovery.

The oracle is a file outside the store: every acknowledgement, and every real run of a command. After every kill each
slot up to now has one row, and each attempt runs one command, never two at the same time. Every acknowledged change is
there, and the rows and the journal agree.
"""

from __future__ import annotations

import os
from collections import Counter
from contextlib import suppress

import standfast
from standfast import config, handle
from standfast.clock import ManualClock
from standfast.core import leases
from standfast.crash import Schedule
from standfast.errors import IllegalTransition, LeaseLost
from standfast_prove.crashes.world import World

SLOTS = (1, 2)


class Loops(World):
    """A person changes loops, and a daemon fires and runs them. Both start again after a kill."""

    def open(self, hour: int = 0) -> standfast.Standfast:
        settings = config.load(self.url, data_dir=self.data, scope=self.name)
        clock = ManualClock()
        clock.jump(hour * 3600)
        return handle.connect(settings, clock=clock)

    def live(self) -> None:
        """The program. Every process runs it from the top."""
        with self.open() as sf:
            clock = sf._store.caller.clock
            assert isinstance(clock, ManualClock)
            self.acked("add", lambda: sf.loops.add("hourly", ["true"], every="1h", retries_max=9, backoff=0))
            self.acked("add", lambda: sf.loops.add("other", ["true"], every="1h", failures_max=1))
            for _ in SLOTS:
                clock.jump(3600)
                self.work(sf)
            self.acked("pause", lambda: sf.loops.pause("other", "enough"))
            self.acked("resume", lambda: sf.loops.resume("other"))
            self.acked("ask", lambda: self.cancel(sf, sf.runs.ask("other").id))
            self.acked("remove", lambda: sf.loops.remove("other"))

    def cancel(self, sf: standfast.Standfast, run_id: str) -> None:
        with suppress(IllegalTransition):
            sf.runs.cancel(run_id, "not wanted")

    def work(self, sf: standfast.Standfast) -> None:
        clock = sf._store.caller.clock
        for lost in sf.runs.abandon_dead():
            self.tell(f"lost {lost.id} {lost.attempt}")
        for _ in range(2):
            self.acked("fire", sf.loops.fire_due)
        while (run := sf.runs.claim(host="here")) is not None:
            sf.runs.started(run.id, run.attempt, pid=os.getpid(), process=leases.this_process(clock))
            self.tell(f"ran {run.id} {run.attempt}")
            code = 1 if run.loop == "other" or run.attempt == 1 else 0
            with suppress(LeaseLost):
                done = sf.runs.finish(run.id, run.attempt, exit_code=code, duration="1us")
                self.tell(f"acked {done.state} {done.id} {done.attempt}")

    def check(self, schedule: Schedule) -> None:
        lines = self.noted()
        assert max(lines[line] for line in lines if line.startswith("ran ")) == 1, "an attempt ran twice"
        with self.open(SLOTS[-1]) as sf:
            rows = sf.runs.list(limit=1000, everywhere=False)
            hourly = [run for run in rows if run.loop == "hourly"]
            assert len({run.slot_us for run in hourly}) == len(hourly) == len(SLOTS), "one row per slot"
            assert sum(run.slots for run in hourly) == len(SLOTS)
            assert not [run for run in rows if run.state in ("queued", "running")], "nothing is left open"
            for run in rows:
                events = [event for event in sf.journal.about(run.id, limit=1000) if event.type.startswith("run.")]
                types = Counter(event.type for event in events)
                if run.state not in ("missed", "skipped"):
                    assert types["run.queued"] == 1
                    assert types["run.claimed"] == run.attempt
                    assert events[-1].state == run.state
                ran = {int(line.split()[2]) for line in lines if line.startswith(f"ran {run.id} ")}
                assert ran <= set(range(1, run.attempt + 1))
                if run.state == "done":
                    assert run.attempt in ran
            for line in lines:
                word, _, rest = line.partition(" ")
                if word == "acked" and rest.startswith("done "):
                    assert sf.runs.get(rest.split()[1]).state == "done", "an acknowledged run is lost"
            assert [loop.name for loop in sf.loops.list()] == ["hourly"]
            others = sf.loops.list(state="removed")
            assert {loop.state for loop in others} == {"removed"}
            assert sf.loops.absent() == []
        self.sound()
