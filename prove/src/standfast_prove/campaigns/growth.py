"""A history grows: bytes per event, the latency of frequent calls and the time of a recovery are measured.

Statements make the history in the proportions of a working agent: of ten events, three belong to effects, two are
messages, two belong to tasks, two to a stream, and one is a step. At each size, frequent calls are timed. A process is
killed in the middle of an effect, and the time until the next process has finished it is measured. Then processes fold
the conversation and the stream, delete folds, and are killed at any crash point. Times are figures, not pass or fail.
These must hold: every receipt verifies, no acknowledged message is missing, and a state computed from stored folds
equals one computed from all events.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import standfast
from standfast import config, crash, handle
from standfast.db.sql import Statement, statement
from standfast.errors import StandfastError
from standfast_prove.campaigns.warm import warmed
from standfast_prove.faults.children import Nursery
from standfast_prove.faults.rows import Oracle, integrity, noted
from standfast_prove.outcome import Outcome

HERE = "standfast_prove.campaigns.growth:"
SCOPE = "growing"
LONG = "long"
STREAM = "orders"
UNIT = 10
"""Events of one unit of work."""
CHUNK = 5_000
PATIENCE_S = 300.0
HOT = ("append", "say", "effect", "claim", "resume")

_UNITS = "WITH RECURSIVE i (u) AS (SELECT CAST(:first AS BIGINT) UNION ALL SELECT u + 1 FROM i WHERE u < :last)"
_PAD = "substr('00000000000000000000000000', 1, 26 - length(CAST(u AS TEXT))) || CAST(u AS TEXT)"
_HASH = "'h1:' || substr('0000000000000000000000000000000000000000000000000000000000000000', 1, 64)"
_HOLDER = "'p:host:12345678:4026531836:4711:471147'"
_TOLD_US = "CAST(:now_us AS BIGINT) + u - :first"
"""In order, because writing a chunk takes longer than the time span of its events."""
EFFECTS = statement(
    "INSERT INTO effect (id, scope, session_id, tool, key, n, by_hash, intent_hash, intent, state, attempt, result,"
    " planned_us, first_dispatched_us, dispatched_us, ended_us, updated_us)"
    f" {_UNITS} SELECT 'eff_' || {_PAD}, :scope, :session_id, 'deploy', 'old-' || {_PAD}, 1, {_HASH}, {_HASH},"
    ' \'{"body":"a short text of what to do","n":1}\', \'acknowledged\', 1, \'{"number":7}\', u, u, u, u, u'
    " FROM i",
    name="grow_effects",
)
MESSAGES = statement(
    "INSERT INTO message (id, session_id, node_id, position, role, format, content, hash, actor, created_us,"
    f" occurred_us) {_UNITS} SELECT 'msg_' || {_PAD} || CAST(m AS TEXT), :session_id, :node_id,"
    " CAST(:base AS BIGINT) + 2 * (u - :first) + m,"
    f" 'assistant', 'text', 'some words of an agent, as long as they usually are: ' || {_PAD} || {_PAD}, {_HASH},"
    " 'worker', u, u FROM i CROSS JOIN (SELECT 0 AS m UNION ALL SELECT 1) AS two",
    name="grow_messages",
)
STEPS = statement(
    "INSERT INTO step (id, session_id, name, arguments_hash, n, result, duration_us, created_us)"
    f" {_UNITS} SELECT 'stp_' || {_PAD}, :session_id, 'plan', {_HASH}, u, '\"the plan\"', 1000, u FROM i",
    name="grow_steps",
)
TASKS = statement(
    "INSERT INTO task (id, scope, repository, fingerprint, episode, state, reason, title, kind, source, priority,"
    " labels, occurrences, first_seen_us, last_seen_us, fence, created_us, updated_us, closed_us)"
    f" {_UNITS} SELECT 'tsk_' || {_PAD}, :scope, '', 'old-' || {_PAD}, 1, 'closed', 'done', 'an old task', 'task',"
    " '', 2, '', 1, u, u, 1, u, u, u FROM i",
    name="grow_tasks",
)
EVENTS = statement(
    "INSERT INTO event (time_us, occurred_us, scope, actor, holder, source, type, subject, session_id, state, stream,"
    f" version, summary, data) {_UNITS}, k (k, type, prefix, state) AS (VALUES"
    " (0, 'effect.planned', 'eff_', 'planned'), (1, 'effect.dispatched', 'eff_', 'dispatched'),"
    " (2, 'effect.acknowledged', 'eff_', 'acknowledged'), (3, 'message.said', 'msg_', ''),"
    " (4, 'message.said', 'msg_', ''), (5, 'task.opened', 'tsk_', 'open'), (6, 'task.closed', 'tsk_', 'closed'),"
    " (7, 'step.recorded', 'stp_', ''), (8, 'order.placed', '', ''), (9, 'order.placed', '', ''))"
    f" SELECT {_TOLD_US}, {_TOLD_US}, :scope, 'worker', {_HOLDER}, 'seen', type,"
    f" CASE WHEN k > 7 THEN 'stream:{STREAM}' ELSE prefix || {_PAD} END,"
    " CASE WHEN k IN (5, 6, 8, 9) THEN NULL ELSE :session_id END, CASE WHEN state = '' THEN NULL ELSE state END,"
    f" CASE WHEN k > 7 THEN '{STREAM}' END,"
    " CASE WHEN k > 7 THEN CAST(:base AS BIGINT) + 2 * (u - :first) + k - 8 END, 'deploy n=1',"
    " CASE WHEN k > 7 THEN '{\"n\":1}' ELSE '{\"attempt\":1}' END FROM i CROSS JOIN k ORDER BY u, k",
    name="grow_events",
)
MOVE_NODE = statement("UPDATE node SET next_position = :position WHERE id = :node_id", name="grow_node")
MOVE_STREAM = statement(
    "UPDATE stream SET version = :version WHERE scope = :scope AND name = :name", name="grow_stream"
)
_NEXT = statement("SELECT next_position FROM node WHERE id = :id", name="grow_next")
_VERSION = statement("SELECT version FROM stream WHERE scope = :scope AND name = :name", name="grow_version")
SAID = "SELECT m.id FROM message m JOIN session s ON s.id = m.session_id WHERE s.key = :key"
SPAN = (
    "SELECT count(*) AS count, min(m.position) AS first, max(m.position) AS last"
    " FROM message m JOIN session s ON s.id = m.session_id WHERE s.key = :key"
)
BYTES = Statement(
    "bytes",
    "SELECT page_count * page_size AS bytes FROM pragma_page_count(), pragma_page_size()",
    "SELECT pg_database_size(current_database()) AS bytes",
)


def run(
    place: Path,
    *,
    seed: int,
    url: str | None = None,
    sizes: tuple[int, ...] = (1_000, 10_000, 100_000),
    samples: int = 40,
    kills: int = 8,
    forged: bool = False,
) -> Outcome:
    """With `forged`, the control, a row of the journal is changed directly in the file."""
    outcome, where = Outcome("growth"), url or str(place / "standfast.db")
    with Nursery(words=place / "words") as nursery:
        warmed(nursery, postgres=url is not None)
        growing = Growing(nursery, place, where)
        for size in sizes:
            figures = growing.measure(size, samples)
            outcome.count(f"stores of {size:,} events")
            for what, number in figures.items():
                outcome.count(f"{what} at {size:,} (sum over stores)", number)
        outcome.count("events", growing.events)
        _compact(outcome, nursery, place, where, random.Random(seed), kills)
    if forged:
        _forge(place, where)
    _judge(outcome, place, where)
    return outcome


# -- growing and measuring -----------------------------------------------------------------------------------------


class Growing:
    """A store that grows to one size after another, with measurements at each size."""

    def __init__(self, nursery: Nursery, place: Path, where: str) -> None:
        self._nursery, self._place, self._where = nursery, place, where
        self._unit = 0
        with _opened(place, where) as sf:
            with sf.session(LONG) as s:
                self._ids = {"session_id": s.id, "node_id": s.node_id}
                s.say("user", "begin")
                s.pause("it grows")
            sf.events.append(STREAM, "order.placed", {"n": 1})
            self._empty = _bytes(sf)

    @property
    def events(self) -> int:
        return self._unit * UNIT

    def measure(self, size: int, samples: int) -> dict[str, int]:
        """Grow to `size` events. Measures bytes per event, p50 and p99 of frequent calls in µs, and recovery after a
        kill in µs.
        """
        with _opened(self._place, self._where) as sf:
            self.grow(sf, size)
            figures = {"bytes per event": (_bytes(sf) - self._empty) // self.events}
            acked = Oracle(self._place / "acked")
            for what, times in _timed(sf, samples, acked).items():
                figures[f"{what} p50 µs"] = times[len(times) // 2]
                figures[f"{what} p99 µs"] = times[min(len(times) - 1, len(times) * 99 // 100)]
        figures["recovery µs"] = self._recovered()
        return figures

    def grow(self, sf: standfast.Standfast, size: int) -> None:
        """Insert rows with SQL statements, in chunks, so that other writers can write in between."""
        until = size // UNIT
        while self._unit < until:
            first, last = self._unit + 1, min(self._unit + CHUNK, until)
            sf._store.write(partial(self._chunk, first=first, last=last), durable=False)
            self._unit = last

    def _chunk(self, tx: Any, first: int, last: int) -> None:
        # Positions and versions continue after those that real calls have added meanwhile.
        span, added = {"first": first, "last": last}, 2 * (last - first + 1)
        session = {"session_id": self._ids["session_id"]}
        position = tx.one(_NEXT, id=self._ids["node_id"])["next_position"]
        version = tx.one(_VERSION, scope=SCOPE, name=STREAM)["version"]
        tx.run(EFFECTS, scope=SCOPE, **session, **span)
        tx.run(MESSAGES, base=position, **self._ids, **span)
        tx.run(STEPS, **session, **span)
        tx.run(TASKS, scope=SCOPE, **span)
        tx.run(EVENTS, base=version + 1, scope=SCOPE, now_us=tx.now_us(), **session, **span)
        tx.run(MOVE_NODE, position=position + added, node_id=self._ids["node_id"])
        tx.run(MOVE_STREAM, version=version + added, scope=SCOPE, name=STREAM)

    def _recovered(self) -> int:
        where = {"place": str(self._place), "where": self._where, "mark": f"at {self.events}"}
        code = self._nursery.wait(self._nursery.start(HERE + "dies", **where), PATIENCE_S)
        assert code == -9, f"it should have died, and ended with {code}"
        code = self._nursery.wait(self._nursery.start(HERE + "recovers", **where), PATIENCE_S)
        assert code == 0, f"no process recovered: {code} {(self._place / 'words').read_text()[-1500:]}"
        return int((self._place / "recovered").read_text())


def _bytes(sf: standfast.Standfast) -> int:
    return int(sf.read(lambda tx: tx.one(BYTES)["bytes"]))


def _timed(sf: standfast.Standfast, samples: int, acked: Oracle) -> dict[str, list[int]]:
    """Time each hot call repeatedly, in turns. Returns sorted times in µs. Receipts are kept for a later check."""
    times: dict[str, list[int]] = {what: [] for what in HOT}
    mark = f"{time.monotonic_ns()}"
    for n in range(samples):
        sf.tasks.add(f"task {mark} {n}")
    calls = _calls(sf, mark, acked)
    for n in range(samples):
        for what, call in calls.items():
            before = time.perf_counter_ns()
            call(n)
            times[what].append((time.perf_counter_ns() - before) // 1000)
    return {what: sorted(found) for what, found in times.items()}


def _calls(sf: standfast.Standfast, mark: str, acked: Oracle) -> dict[str, Callable[[int], object]]:
    def append(n: int) -> None:
        appended = sf.events.append(STREAM, "order.placed", {"n": 1})
        acked.note(json.dumps({"receipt": str(appended.receipt)}))

    def say(n: int) -> None:
        said = sf.sessions.say(LONG, "user", f"words {mark} {n}")
        acked.note(json.dumps({"said": said.id}))

    def effect(n: int) -> None:
        with sf.session(f"short {mark} {n}") as s:
            s.effect("deploy", {"n": n}, key=f"hot {mark} {n}", do=lambda call: "done")

    def claim(n: int) -> None:
        task = sf.tasks.claim()
        assert task is not None
        done = sf.tasks.done(task)
        acked.note(json.dumps({"receipt": str(done.receipt)}))

    def resume(n: int) -> None:
        with sf.session(LONG) as s:
            s.context(last=50)
            s.pause("it grows")

    return {"append": append, "say": say, "effect": effect, "claim": claim, "resume": resume}


# -- folding, and being killed -----------------------------------------------------------------------------------------


def _compact(outcome: Outcome, nursery: Nursery, place: Path, where: str, draw: random.Random, kills: int) -> None:
    """Fold, delete folds and be killed, repeatedly. The last process may finish."""
    for n in range(kills + 1):
        fuse = draw.randint(1, 120) if n < kills else 0
        asked = {"place": str(place), "where": where, "number": draw.randrange(2**32), "fuse": fuse}
        code = nursery.wait(nursery.start(HERE + "folds", **asked), PATIENCE_S)
        outcome.count("kills", int(code == -9))
        words = (place / "words").read_text(errors="replace")[-1500:]
        outcome.refuse(code not in (0, -9) and code, f"folding ended with an error: {words}")


def _counted(state: int, event: Any) -> int:
    return state + int(event.data["n"])


def _folded(said: list[Any]) -> dict[str, int]:
    """The number of messages and the sum of their positions, from the newest fold and the messages after it."""
    start = said[0].content if said and said[0].role == "summary" else {"count": 0, "sum": 0}
    rest = [one for one in said if one.role != "summary"]
    return {"count": start["count"] + len(rest), "sum": start["sum"] + sum(one.position for one in rest)}


def _forge(place: Path, where: str) -> None:
    forge = statement("UPDATE event SET actor = 'another' WHERE seq = :seq", name="forge")
    lines = [json.loads(line) for line in noted(place / "acked")]
    seq = int(next(line["receipt"] for line in lines if "receipt" in line).partition(":")[0])
    unguard = statement("ALTER TABLE event DISABLE TRIGGER event_guard", name="unguard")
    with _opened(place, where) as sf:
        if sf.engine.name == "postgres":
            sf._store.write(lambda tx: tx.run(unguard))
        sf._store.write(lambda tx: tx.run(forge, seq=seq))


def _judge(outcome: Outcome, place: Path, where: str) -> None:
    acked = [json.loads(line) for line in noted(place / "acked")]
    with _opened(place, where) as sf:
        for line in acked:
            if "receipt" in line:
                outcome.count("receipts verified")
                _verify(outcome, sf, line["receipt"])
        ids = {row["id"] for row in sf.rows(SAID, {"key": LONG})}
        missing = [line["said"] for line in acked if "said" in line and line["said"] not in ids]
        outcome.refuse(missing, "messages are missing")
        _judge_folds(outcome, sf)
    if "://" not in where:
        state = integrity(where)
        outcome.refuse(state != "ok" and state, "integrity")


def _verify(outcome: Outcome, sf: standfast.Standfast, receipt: str) -> None:
    try:
        sf.journal.verify(receipt)
    except StandfastError as error:
        outcome.refuse(error, "a receipt does not verify")


def _judge_folds(outcome: Outcome, sf: standfast.Standfast) -> None:
    """Folding step by step gives the same result as folding everything at once."""
    (row,) = sf.rows(SPAN, {"key": LONG})
    outcome.refuse(row["last"] - row["first"] + 1 != row["count"] and dict(row), "positions of messages")
    latest = sf.checkpoints.latest(LONG)
    if latest is not None:
        upto = latest.to_position
        outcome.refuse(latest.data != {"count": upto, "sum": upto * (upto + 1) // 2} and latest, "a fold")
    kept = sf.events.fold(STREAM, _counted, 0, name="sum")
    plain = sf.events.fold(STREAM, _counted, 0)
    outcome.refuse(kept.state != plain.state and (kept, plain), "a fold with snapshots differs")
    outcome.refuse(plain.state != plain.version and plain, "events of the stream")


# -- in the children ------------------------------------------------------------------------------------------


@contextmanager
def _opened(place: str | Path, where: str) -> Iterator[standfast.Standfast]:
    with handle.connect(config.load(where, data_dir=Path(place) / "data", actor="grower", scope=SCOPE)) as sf:
        yield sf


def dies(place: str, where: str, mark: str) -> None:
    """Die in the middle of an effect."""
    with _opened(place, where) as sf:
        crash.arm_at("effect.before_done")
        sf.session(LONG).__enter__().effect("deploy", {"n": mark}, by="n", do=lambda call: "done")


def recovers(place: str, where: str, mark: str) -> None:
    """Start, and finish the effect of the killed process."""
    before = time.perf_counter_ns()
    with _opened(place, where) as sf:
        assert any(item.kind == "effect_in_doubt" for item in sf.recovery.report().items)
        with sf.session(LONG) as s:
            s.effect("deploy", {"n": mark}, by="n", do=lambda call: "no", probe=lambda call: standfast.Applied("done"))
            Path(place, "recovered").write_text(str((time.perf_counter_ns() - before) // 1000))
            s.pause("it grows")


def folds(place: str, where: str, number: int, fuse: int) -> None:
    draw, acked = random.Random(number), Oracle(Path(place) / "acked")
    passed = iter(range(1, fuse + 1))

    def hook(name: str) -> None:
        if next(passed, 0) == fuse:
            crash.die()

    with _opened(place, where) as sf:
        if fuse:
            crash.arm(hook)
        with sf.session(LONG) as s:
            for _ in range(6):
                said = s.say("user", f"words {draw.random()}")
                acked.note(json.dumps({"said": said.id}))
                made = s.fold(_folded, keep_last=draw.randrange(1, 5))
                if made is not None:
                    acked.note(json.dumps({"receipt": str(made.receipt)}))
                appended = sf.events.append(STREAM, "order.placed", {"n": 1})
                acked.note(json.dumps({"receipt": str(appended.receipt)}))
                sf.events.fold(STREAM, _counted, 0, name="sum", snapshot_every=draw.choice([1, 10, 100]))
                if draw.random() < 0.3:
                    sf.checkpoints.delete_all(LONG)
                if draw.random() < 0.3:
                    sf.events.delete_snapshots()
            s.pause("it grows")
