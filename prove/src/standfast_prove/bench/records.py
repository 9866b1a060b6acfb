"""The cost of a message and of a task sighting, the most common records, compared with a raw row each."""

from __future__ import annotations

import os
from contextlib import ExitStack
from functools import partial

import standfast
from standfast_prove.bench.crew import Crew
from standfast_prove.bench.measure import Plan, Table, interleaved, ratios
from standfast_prove.bench.ways import BODY, BUSY_TIMEOUT_MS, Way, Write

CALLERS = (1, 16)


def messages(plan: Plan) -> list[Table]:
    """Messages, one session per caller, against raw rows with synchronous=FULL."""
    return [
        _compared(plan, "a message said", "standfast_prove.bench.records:Say", "connection each", "raw row", c)
        for c in CALLERS
    ]


def upsert(plan: Plan) -> list[Table]:
    """The same few problems are reported repeatedly, compared with a plain upsert."""
    return [
        _compared(
            plan,
            "a task seen again",
            "standfast_prove.bench.records:Seen",
            "standfast_prove.bench.records:Upsert",
            "upsert by hand",
            c,
        )
        for c in CALLERS
    ]


def _compared(plan: Plan, what: str, ours: str, theirs: str, label: str, callers: int) -> Table:
    with ExitStack() as stack:
        crews = {
            way: stack.enter_context(Crew(way, str(plan.fresh("records")), callers=callers)) for way in (ours, theirs)
        }
        rounds = {way: partial(crew.round, plan.window_s) for way, crew in crews.items()}
        interleaved(1, rounds)
        samples = interleaved(plan.rounds, rounds, patience_s=plan.patience_s)
    table = Table(f"SQLite, {what}, {callers} thread{'s' * (callers > 1)}", "With its journal row, durable.")
    rates = {way: [sample.rate for sample in found] for way, found in samples.items()}
    table.add(what, rates[ours], "/s")
    table.add(label, rates[theirs], "/s")
    table.add(f"{what} / {label}", ratios(rates[ours], rates[theirs]), "x")
    return table


class _Store(Way):
    def writers(self, count: int) -> list[Write]:
        self._sf = standfast.open(os.path.join(self.place, "standfast.db"), data_dir=self.place)
        return [self._writer(number) for number in range(count)]

    def _writer(self, number: int) -> Write:
        raise NotImplementedError

    def close(self) -> None:
        self._sf.close()


class Say(_Store):
    """`sf.sessions.say(…)`, a session for each caller."""

    def _writer(self, number: int) -> Write:
        key = f"talk {number}"
        with self._sf.session(key):
            pass
        return lambda: self._sf.sessions.say(key, "user", BODY)


class Seen(_Store):
    """`sf.tasks.add(…)` of an open task: one more sighting."""

    def _writer(self, number: int) -> Write:
        return lambda: self._sf.tasks.add("the parser is broken", fingerprint=f"problem-{number}")


class Upsert(Way):
    """INSERT … ON CONFLICT DO UPDATE of one row, at FULL, a connection each; no journal."""

    def writers(self, count: int) -> list[Write]:
        return [self._writer(number) for number in range(count)]

    def _writer(self, number: int) -> Write:
        import apsw

        connection = apsw.Connection(self._file())
        connection.set_busy_timeout(BUSY_TIMEOUT_MS)
        connection.execute("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL").fetchall()
        connection.execute("CREATE TABLE IF NOT EXISTS seen (name TEXT PRIMARY KEY, n INTEGER NOT NULL, title TEXT)")
        statement = "INSERT INTO seen VALUES (?, 1, ?) ON CONFLICT (name) DO UPDATE SET n = n + 1"
        return lambda: connection.execute(statement, (f"problem-{number}", BODY)).fetchall()
