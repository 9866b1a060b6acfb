"""An auditor who may not read payloads answers what happened.

Three people and their agents make a random history: sessions, messages, steps, decisions, answers, tasks, values, mail,
locks, and effects that succeed, fail, are in doubt or wait for approval. Books outside the store note who did what to
which row, between which two times, and how it ended. Then SQLite's authorizer or a PostgreSQL role denies the payload
columns. The journal and the tables must still give every fact in its order, with its actor, time and outcome, and with
the approver and the reason. No secret may appear.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, NamedTuple

import standfast
from standfast import config, handle
from standfast.clock import SYSTEM
from standfast.core import journal
from standfast.core.receipts import Receipt
from standfast.errors import ApprovalRequired, StandfastError
from standfast.serial import PAYLOAD_COLUMNS
from standfast_prove.mutants.patching import Patching
from standfast_prove.outcome import Outcome

DENIED = frozenset(tuple(name.split(".")) for name in PAYLOAD_COLUMNS)
SECRET = "hunter2-in-a-payload"
PEOPLE = ("ann", "bert", "cleo")
SCOPE = "audited"
PAGE = 500

NAMES = """
SELECT id, 'session ' || key AS name FROM session
UNION ALL SELECT id, 'effect ' || key FROM effect
UNION ALL SELECT a.id, 'approval of ' || e.key FROM approval a JOIN effect e ON e.id = a.effect_id
UNION ALL SELECT id, 'decision ' || what FROM decision
UNION ALL SELECT id, 'task ' || fingerprint FROM task
UNION ALL SELECT id, 'mail ' || key FROM mail
UNION ALL SELECT d.id, 'letter of ' || m.key FROM dead_letter d JOIN mail m ON m.id = d.subject
UNION ALL SELECT m.id, 'message ' || m.key FROM message m
UNION ALL SELECT id, 'step ' || name FROM step
"""
EVENTS = """
SELECT seq, occurred_us, actor, type, subject, session_id, state, summary FROM event
WHERE seq > :seq ORDER BY seq LIMIT 1000
"""
EFFECTS = """
SELECT e.key, e.tool, e.state, e.attempt, e.external_ref, e.evidence, s.key AS session, e.first_dispatched_us
FROM effect e LEFT JOIN session s ON s.id = e.session_id ORDER BY e.key
"""
APPROVALS = """
SELECT e.key, a.state, a.requester, a.approver, a.rationale, a.attempt
FROM approval a JOIN effect e ON e.id = a.effect_id ORDER BY e.key
"""


class Fact(NamedTuple):
    """One change: its actor, its subject, and the state after it."""

    actor: str
    type: str
    name: str
    state: str | None = None


class Told(NamedTuple):
    """A fact, and the two times between which it happened, or the time at which it was recorded."""

    fact: Fact
    from_us: int
    to_us: int


def run(
    place: Path, *, seed: int, url: str | None = None, histories: int = 3, things: int = 40, forgetful: bool = False
) -> Outcome:
    """`things` is the number of actions in each history. `forgetful` is the control: changes without a journal row."""
    outcome = Outcome("audit without payloads")
    for number in range(histories if url is None else 1):
        home = place / f"history-{number}"
        home.mkdir()
        where = url or str(home / "standfast.db")
        books = _live(where, home, random.Random(f"{seed} {number}"), things, forgetful)
        with _blind(where, home) as sf:
            outcome.refuse(not _denied(sf), "payloads could be read")
            _compare(outcome, sf, books)
        outcome.count("histories")
        outcome.count("facts", len(books.acked))
        if outcome.bad:
            break
    return outcome


# -- the history -------------------------------------------------------------------------------------------------


class Books:
    """The events as the processes report them, and the answers to an auditor's questions."""

    def __init__(self) -> None:
        self.acked: list[Told] = []
        self.effects: dict[str, dict[str, Any]] = {}
        self.approvals: dict[str, dict[str, Any]] = {}


class History:
    """Makes one random history. A random person takes each step."""

    def __init__(self, people: dict[str, standfast.Standfast], draw: random.Random) -> None:
        self._people, self._draw, self._number = people, draw, 0
        self.books = Books()
        self._sessions: dict[str, str] = {}
        self._waiting: list[str] = []
        self._doubts: list[str] = []
        self._asked: list[tuple[str, str]] = []

    def happen(self) -> None:
        """One random action by one actor."""
        kinds = [self._session, self._session, self._answer, self._resolve, self._task, self._value, self._mail]
        self._draw.choice([*kinds, self._lock])(self._draw.choice(PEOPLE))

    def _next(self, what: str) -> str:
        self._number += 1
        return f"{what}-{self._number}"

    @contextmanager
    def _does(self, actor: str, *facts: tuple[Any, ...]) -> Iterator[standfast.Standfast]:
        """The body of this block causes these facts, in this order."""
        from_us = SYSTEM.now_us()
        yield self._people[actor]
        self.books.acked += [Told(Fact(actor, *fact), from_us, SYSTEM.now_us()) for fact in facts]

    # -- in a session

    def _session(self, actor: str) -> None:
        key = self._draw.choice([f"work-{n}" for n in range(4)])
        opened = "session.resumed" if key in self._sessions else "session.opened"
        self._sessions[key] = "active"
        with self._does(actor, (opened, f"session {key}", "active")) as sf:
            s = sf.session(key).__enter__()
        doings = [self._say, self._step, self._decide, self._effect, self._effect, self._effect, self._ask]
        for _ in range(self._draw.randrange(1, 5)):
            self._draw.choice(doings)(actor, s, key)
        self._leave(actor, s, key)

    def _leave(self, actor: str, s: Any, key: str) -> None:
        how = self._draw.choice(["completed", "failed", "waiting"])
        with self._does(actor, ({"waiting": "session.paused"}.get(how, f"session.{how}"), f"session {key}", how)):
            s.end(how, reason=None if how == "completed" else f"it is {how}")

    def _say(self, actor: str, s: Any, key: str) -> None:
        name = self._next("said")
        with self._does(actor, ("message.said", f"message {name}")):
            s.say("assistant", {"body": SECRET}, key=name)

    def _step(self, actor: str, s: Any, key: str) -> None:
        name = self._next("step")
        with self._does(actor, ("step.recorded", f"step {name}")):
            s.step(name, lambda: SECRET)

    def _decide(self, actor: str, s: Any, key: str) -> None:
        what = self._next("decide")
        with self._does(actor, ("decision.made", f"decision {what}", "open")):
            decision = s.decide(what, why="it was asked for", then="do it").__enter__()
        self._effect(actor, s, key)
        end = self._draw.choice(["done", "failed"])
        with self._does(actor, (f"decision.{end}", f"decision {what}", end)):
            decision.done() if end == "done" else decision.fail("it did not work")

    def _effect(self, actor: str, s: Any, key: str) -> None:
        name, how = self._next("effect"), self._draw.choice(["works", "works", "fails once", "breaks"])
        subject, kept = f"effect {name}", self._kept(name, key)
        begun = (("effect.planned", subject, "planned"), ("effect.dispatched", subject, "dispatched"))

        def call(do: Callable[[Any], Any]) -> None:
            s.effect("deploy", {"n": name, "body": SECRET}, by="n", key=name, do=do)

        if how == "works":
            with self._does(actor, *begun, ("effect.acknowledged", subject, "acknowledged")):
                call(lambda call: SECRET)
        elif how == "fails once":
            with self._does(actor, *begun, ("effect.failed", subject, "failed")), suppress(standfast.NotApplied):
                call(_not_applied)
            again = ("effect.dispatched", subject, "dispatched"), ("effect.acknowledged", subject, "acknowledged")
            with self._does(actor, *again):
                call(lambda call: SECRET)
            kept |= {"attempt": 2}
        else:
            with self._does(actor, *begun, ("effect.gave_up", subject, "dispatched")), suppress(TimeoutError):
                call(_breaks)
            kept |= {"state": "dispatched"}
            self._doubts.append(name)
            with self._does(actor, ("effect.proceeded", subject, "dispatched")):
                s.proceed("the next effect does not depend on it")

    def _kept(self, name: str, key: str | None, **more: Any) -> dict[str, Any]:
        kept = {"tool": "deploy", "state": "acknowledged", "attempt": 1, "evidence": None, "session": key}
        self.books.effects[name] = kept | more
        return self.books.effects[name]

    def _ask(self, actor: str, s: Any, key: str) -> None:
        name = self._next("asked")
        self._kept(name, key, state="planned", attempt=0)
        facts = (
            ("effect.planned", f"effect {name}", "planned"),
            ("approval.requested", f"approval of {name}", "requested"),
        )
        with self._does(actor, *facts), suppress(ApprovalRequired):
            self._perform(s, name)
        blank = dict.fromkeys(("approver", "rationale", "attempt"))
        self.books.approvals[name] = {"state": "requested", "requester": actor, **blank}
        self._asked.append((name, key))

    def _perform(self, s: Any, name: str) -> None:
        s.effect("deploy", {"n": name, "body": SECRET}, by="n", key=name, do=lambda call: SECRET, approve=True)

    # -- outside of sessions

    def _answer(self, actor: str) -> None:
        if not self._asked:
            return
        name, key = self._asked.pop(self._draw.randrange(len(self._asked)))
        answer, why = self._draw.choice(["granted", "granted", "denied"]), self._next("because")
        with self._does(actor, (f"approval.{answer}", f"approval of {name}", answer)) as sf:
            (found,) = [one for one in sf.approvals.list(state="requested", limit=1000) if self._is(sf, one, name)]
            say = sf.approvals.grant if answer == "granted" else sf.approvals.deny
            say(found.id, approver=f"person {actor}", rationale=why)
        kept = self.books.approvals[name]
        kept |= {"state": answer, "approver": f"person {actor}", "rationale": why}
        if answer == "granted":
            self._go_on(actor, name, key)

    def _is(self, sf: standfast.Standfast, approval: Any, name: str) -> bool:
        return sf.effects.get(approval.effect_id).key == name

    def _go_on(self, actor: str, name: str, key: str) -> None:
        with self._does(actor, ("session.resumed", f"session {key}", "active")) as sf:
            s = sf.session(key).__enter__()
        subject = f"effect {name}"
        facts = (
            ("approval.consumed", f"approval of {name}", "consumed"),
            ("effect.dispatched", subject, "dispatched"),
            ("effect.acknowledged", subject, "acknowledged"),
        )
        with self._does(actor, *facts):
            self._perform(s, name)
        self.books.effects[name] |= {"state": "acknowledged", "attempt": 1}
        self.books.approvals[name] |= {"state": "consumed", "attempt": 1}
        self._leave(actor, s, key)

    def _resolve(self, actor: str) -> None:
        if not self._doubts:
            return
        name = self._doubts.pop()
        answer, evidence = self._draw.choice(["applied", "not_applied"]), self._next("looked")
        state = "acknowledged" if answer == "applied" else "failed"
        with self._does(actor, ("effect.resolved", f"effect {name}", state)) as sf:
            sf.effects.resolve(name, answer, evidence=evidence, result=SECRET if answer == "applied" else None)
        self.books.effects[name] |= {"state": state, "evidence": evidence}

    def _task(self, actor: str) -> None:
        name = self._next("task")
        with self._does(actor, ("task.opened", f"task {name}", "open")) as sf:
            sf.tasks.add(name, fingerprint=name, body=SECRET)
        other = self._draw.choice(PEOPLE)
        with self._does(other, ("task.claimed", f"task {name}", "open")) as sf:
            task = sf.tasks.claim(self._people[other].tasks.list(state="open", limit=1000)[0].id)
        how = self._draw.choice(["task.closed", "task.released"])
        with self._does(other, (how, f"task {name}", "closed" if how == "task.closed" else "open")) as sf:
            sf.tasks.done(task, result=SECRET) if how == "task.closed" else sf.tasks.release(task)
        if how == "task.released":
            with self._does(actor, ("task.closed", f"task {name}", "closed")) as sf:
                sf.tasks.done(task.id)

    def _value(self, actor: str) -> None:
        key = self._next("value")
        with self._does(actor, ("state.set", f"state::{key}")) as sf:
            sf.state.set(key, "v")
        with self._does(actor, ("state.deleted", f"state::{key}")) as sf:
            sf.state.delete(key)

    def _mail(self, actor: str) -> None:
        key, reader = self._next("mail"), self._draw.choice(PEOPLE)
        with self._does(actor, ("mail.sent", f"mail {key}", "sent")) as sf:
            sf.mail.send("box", {"body": SECRET}, key=key)
        with self._does(reader, ("mail.leased", f"mail {key}", "leased")) as sf:
            mail = sf.mail.claim("box")
        assert mail is not None
        if self._draw.random() < 0.7:
            with self._does(reader, ("mail.done", f"mail {key}", "done")) as sf:
                sf.mail.done(mail)
        else:
            with self._does(reader, ("mail.dead", f"mail {key}", "dead"), ("dead_letter.buried", f"letter of {key}")):
                self._people[reader].mail.refuse(mail, "no reader can do this")

    def _lock(self, actor: str) -> None:
        with self._does(actor, ("lease.acquired", "lock:deploy")) as sf:
            lease = sf.leases.acquire("deploy")
        with self._does(actor, ("lease.released", "lock:deploy")) as sf:
            sf.leases.release("deploy", lease.fence)


def _not_applied(call: standfast.Call) -> None:
    raise standfast.NotApplied("no route")


def _breaks(call: standfast.Call) -> None:
    raise TimeoutError("no answer")


def _live(where: str, home: Path, draw: random.Random, things: int, forgetful: bool) -> Books:
    with ExitStack() as stack:
        people = {}
        for actor in PEOPLE:
            settings = config.load(where, data_dir=home / "data", actor=actor, scope=SCOPE)
            people[actor] = stack.enter_context(handle.connect(settings))
        if forgetful:
            _forget(stack.enter_context(Patching()), random.Random(0))
        history = History(people, draw)
        while len(history.books.acked) < things:
            history.happen()
    return history.books


def _forget(patch: Patching, draw: random.Random) -> None:
    before: Callable[..., Any] = journal.append

    def sometimes(tx: Any, *fact: Any, **more: Any) -> Any:
        return before(tx, *fact, **more) if draw.random() < 0.9 else Receipt((), b"")

    patch.setattr(journal, "append", sometimes)


# -- the auditor ------------------------------------------------------------------------------------------------------


@contextmanager
def _blind(where: str, home: Path) -> Iterator[standfast.Standfast]:
    """Open the store as a reader that may not read payloads."""
    with Patching() as patch, _role(where) if "://" in where else nullcontext(where) as url:
        if "://" not in where:
            _deny(patch)
        with handle.connect(config.load(url, data_dir=home / "data", actor="auditor", scope=SCOPE)) as sf:
            yield sf


def _deny(patch: Patching) -> None:
    import apsw

    from standfast.db.sqlite import readers
    from standfast.db.sqlite.open_store import OpenStore

    def authorize(action: int, table: str | None, column: str | None, *_: str | None) -> int:
        denied = action == apsw.SQLITE_READ and (table, column) in DENIED
        return apsw.SQLITE_DENY if denied else apsw.SQLITE_OK

    def connect(store: OpenStore) -> apsw.Connection:
        connection = before(store)
        connection.authorizer = authorize
        return connection

    before: Callable[[OpenStore], apsw.Connection] = OpenStore.connect
    patch.setattr(OpenStore, "connect", connect)
    patch.setattr(readers, "reads_only", authorize)


@contextmanager
def _role(url: str) -> Iterator[str]:
    """The store's URL for a login of the role `auditor`, which may read every column but payloads."""
    from standfast_prove.campaigns.hostile_sql import logins

    with logins(url) as (prefix, login):
        yield f"{login('auditor')}?owner={prefix}_owner"


def _denied(sf: standfast.Standfast) -> bool:
    for name in PAYLOAD_COLUMNS:
        table, _, column = name.partition(".")
        try:
            list(sf.rows(f"SELECT {column} FROM {table}"))
        except StandfastError:
            continue
        return False
    return True


def _compare(outcome: Outcome, sf: standfast.Standfast, books: Books) -> None:
    rows = _events(sf)
    names = {row["id"]: row["name"] for row in sf.rows(NAMES)}
    found = [Told(_fact(row, names), row["occurred_us"], row["occurred_us"]) for row in rows]
    for wanted, acked in zip(books.acked, found, strict=False):
        if wanted.fact != acked.fact:
            outcome.refuse(f"{acked.fact}, not {wanted.fact}", "the journal tells another story")
            return
        late = not wanted.from_us <= acked.from_us <= wanted.to_us
        outcome.refuse(late and (wanted, acked), "it happened at another time")
    outcome.refuse(len(found) != len(books.acked) and f"{len(found)} for {len(books.acked)}", "facts")
    _same_timeline(outcome, sf, rows)
    effects = [dict(row) for row in sf.rows(EFFECTS)]
    approvals = [dict(row) for row in sf.rows(APPROVALS)]
    for what, told_rows, wanted_rows in (
        ("effects", effects, books.effects),
        ("approvals", approvals, books.approvals),
    ):
        seen = {row["key"]: {name: row[name] for name in wanted_rows[row["key"]]} for row in told_rows}
        wrong = {key: (seen.get(key), wanted) for key, wanted in wanted_rows.items() if seen.get(key) != wanted}
        outcome.refuse(wrong or len(seen) - len(wanted_rows), f"the {what} differ from the books")
    said = str([rows, names, effects, approvals, sf.recovery.report().items])
    # The timeline of a conversation shows the first words of each message as its summary.
    leaks = SECRET in said.replace(f'assistant: {{"body": "{SECRET}"}}', "")
    outcome.refuse(leaks and re.findall(f".{{60}}{SECRET}", said)[:2], "a payload stood elsewhere")


def _events(sf: standfast.Standfast) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while page := [dict(row) for row in sf.rows(EVENTS, {"seq": found[-1]["seq"] if found else 0})]:
        found += page
    return found


def _fact(row: dict[str, Any], names: dict[str, str]) -> Fact:
    return Fact(row["actor"], row["type"], names.get(row["subject"], row["subject"]), row["state"])


def _same_timeline(outcome: Outcome, sf: standfast.Standfast, rows: list[dict[str, Any]]) -> None:
    """`standfast timeline` must show the same facts in the same order."""
    shown = sf.timeline(window="1h", limit=PAGE).entries
    story = [(row["seq"], row["type"], row["subject"]) for row in rows]
    acked = [(entry.seq, entry.type, entry.subject) for entry in shown]
    whole = acked == story if len(rows) <= PAGE else len(acked) == PAGE
    outcome.refuse(
        not whole and next((pair for pair in zip(acked, story, strict=False) if pair[0] != pair[1]), 1),
        "the timeline differs from the journal",
    )
