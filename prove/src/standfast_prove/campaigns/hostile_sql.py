"""An agent that speaks SQL with the role `writer` works beside a worker that sends only what was approved.

Statements are generated: the agent writes approvals, effects, journal rows, loops, gates, `meta` and stored commands,
changes roles and triggers. Files outside the store count what an approver read and granted, and what the worker sent.
Every send has a grant, no grant serves more sends than its question names, and no protected row changes. In the control
the agent has the role `owner` and runs only statements that grant and reset: then sends have no grant.
"""

from __future__ import annotations

import random
import re
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import standfast
from standfast.db.postgres import roles
from standfast.errors import StandfastError
from standfast_prove.outcome import Outcome

if TYPE_CHECKING:
    import psycopg

KEYS = 6
BACKENDS_S = 30.0
STATES = ("planned", "dispatched", "acknowledged", "failed", "compensated", "superseded")
ANSWERS = ("requested", "granted", "denied", "expired", "consumed")
COLUMNS = {
    "approval": {
        "state": [f"'{state}'" for state in ANSWERS], "approver": ["'ada'", "NULL"], "attempts": ["10", "1"],
        "attempts_used": ["0", "-9"], "expires_us": ["9000000000000000"], "question_hash": ["intent_hash"],
        "question": ["'{}'"], "effect_id": ["(SELECT id FROM standfast.effect ORDER BY random() LIMIT 1)"],
        "tool": ["'preview.form'"], "answered_us": ["1"], "consumed_us": ["NULL"], "method": ["'terminal'"],
    },
    "effect": {
        "state": [f"'{state}'" for state in STATES], "attempt": ["0", "attempt + 1", "attempt"], "holder": ["NULL"],
        "lease_until_us": ["1", "NULL"], "approval_id": ["(SELECT id FROM standfast.approval LIMIT 1)", "NULL"],
        "gave_up_us": ["NULL", "1"], "dispatched_us": ["1"], "id": ["id || 'x'"], "key": ["key || 'x'"],
        "idempotent_us": ["9000000000000000"],
    },
    "meta": {"value": ["'999'"], "key": ["'x' || key"]},
    "migration": {"checksum": ["'x'"]},
    "gate": {"removed_us": ["1"], "pattern": ["'never'"], "scope": ["'elsewhere'"]},
    "loop": {"command": ["'[\"id\"]'"], "account": ["'root@here'"], "state": ["'active'"]},
    "run": {"state": ["'queued'"], "ready_us": ["0"]},
    "event": {"actor": ["'ada'"], "db_user": ["'ada'"], "summary": ["'nothing happened'"]},
    "state": {"verify": ["'id'"]},
    "session": {"command": ["'[\"id\"]'"]},
}  # fmt: skip
GRANTING = (
    "UPDATE standfast.approval SET state = 'granted', approver = 'ada', answered_us = 1 WHERE state = 'requested'",
    "UPDATE standfast.effect SET state = 'failed', holder = NULL WHERE state = 'dispatched'",
)
WHOLE = (
    *GRANTING,
    "ALTER TABLE standfast.effect DISABLE TRIGGER ALL", "ALTER TABLE standfast.approval DISABLE ROW LEVEL SECURITY",
    "DROP TRIGGER effect_grant ON standfast.effect", "TRUNCATE standfast.event", "TRUNCATE standfast.approval",
    "SET session_replication_role = replica", "SET ROLE {p}_approver", "SET ROLE {p}_owner", "SET ROLE {p}_daemon",
    "SET SESSION AUTHORIZATION {p}_approver", "GRANT {p}_approver TO CURRENT_USER",
    "CREATE FUNCTION standfast.approval() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "CREATE TEMPORARY TABLE approval AS SELECT * FROM standfast.approval; SET search_path = pg_temp, standfast",
    "CREATE OR REPLACE FUNCTION standfast.use_grant() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
    "CREATE POLICY mine ON standfast.approval USING (true)",
    "CREATE TRIGGER mine BEFORE INSERT ON standfast.task EXECUTE FUNCTION standfast.refuse_change()",
    "ALTER ROLE CURRENT_USER BYPASSRLS", "DELETE FROM standfast.gate", "DELETE FROM standfast.approval",
    "COPY standfast.meta FROM PROGRAM 'id'", "DELETE FROM standfast.event WHERE seq % 2 = 0", "RESET ROLE",
)  # fmt: skip
PROTECTED = {
    "loop": "*", "run": "*", "gate": "*", "meta": "*", "migration": "*",
    "state": "key, verify", "session": "key, command",
}  # fmt: skip
"""The data that no statement may change. A statement may add a state or a session, but not a stored command."""


def run(place: Path, *, url: str, seed: int = 0, statements: int = 300, owner: bool = False) -> Outcome:
    outcome, chance = Outcome("hostile-sql"), random.Random(seed)
    standfast.open(url, data_dir=place / "data").close()
    with logins(url) as (prefix, login):
        world = World(place, prefix, {role: login(role) for role in ("writer", "approver", "daemon")})
        agent = Agent(login("owner" if owner else "writer"))
        try:
            before = world.protected(url)
            lines = Lines(chance, prefix, granting=owner)
            for number in range(statements):
                outcome.count("statements")
                texts = [lines.line() for _ in range(chance.choice((1, 1, 2, 3)))]
                outcome.count("took effect", agent.attack(texts))
                if number % 4 == 0:
                    chance.choice((world.answer, world.work, world.work))(chance)
                    outcome.refuse(world.unpaid(), "sent without a grant")
                if outcome.bad:
                    break
            outcome.count("grants", sum(world.granted.values()))
            outcome.count("sends", sum(world.sent.values()))
            _judge(outcome, world, url, before)
        finally:
            agent.close()
            world.close()
    return outcome


@contextmanager
def logins(url: str) -> Iterator[tuple[str, Callable[[str], str]]]:
    """The roles of a store under a prefix of their own, and the URL of a login for each; dropped afterwards."""
    import psycopg

    prefix = f"h_{uuid.uuid4().hex[:12]}"
    roles.create(url, prefix)
    names = [f"{prefix}_{role}" for role in roles.ROLES]
    with psycopg.connect(url, autocommit=True) as admin:
        try:
            for name in names:
                admin.execute(f"CREATE ROLE {name}_login LOGIN PASSWORD 'p' IN ROLE {name}".encode())
            yield prefix, lambda role: re.sub(r"//[^@/]*@", f"//{prefix}_{role}_login:p@", url)
        finally:
            _wait_for_the_end_of(admin, prefix)
            for name in [f"{name}_login" for name in names] + names:
                admin.execute(f"REASSIGN OWNED BY {name} TO CURRENT_USER".encode())  # the store itself is not dropped
                admin.execute(f"DROP OWNED BY {name} CASCADE; DROP ROLE {name}".encode())


def _wait_for_the_end_of(admin: psycopg.Connection[Any], prefix: str) -> None:
    """A backend drops its temporary tables after its client has gone: DROP OWNED would deadlock with it."""
    end = time.monotonic() + BACKENDS_S
    open_ones = "SELECT count(*) FROM pg_stat_activity WHERE starts_with(usename, %s)"
    while admin.execute(open_ones, (prefix,)).fetchone() != (0,) and time.monotonic() < end:
        time.sleep(0.05)


class World:
    """A worker, an approver and an operator, and the files that record their actions."""

    def __init__(self, place: Path, prefix: str, urls: dict[str, str]) -> None:
        ours = f"?owner={prefix}_owner"
        self._opened = {
            role: standfast.open(url + ours, data_dir=place / "data", agent=role) for role, url in urls.items()
        }
        self._prefix = prefix
        self.granted: Counter[str] = Counter()
        self.sent: Counter[str] = Counter()
        operator = self._opened["daemon"]
        operator.gates.add("git push*")
        operator.loops.add("nightly", ["true"], every="1h", cwd="/")
        operator.runs.ask("nightly")
        operator.state.set("branch", "main", verify="git branch")
        self._opened["writer"].session("work").__enter__()

    def close(self) -> None:
        for sf in self._opened.values():
            sf.close()

    def work(self, chance: random.Random) -> None:
        """The worker sends approved effects, and sometimes does not record the result."""
        sf, number = self._opened["writer"], chance.randrange(KEYS)
        key = f"refund:{number}"
        try:
            begun = sf.effects.begin("shop.refund", {"n": number}, key=key, approve=True, attempts=1 + number % 3)
            if begun.state != "dispatched":
                return
            self.sent[key] += 1
            sf.effects.fail(begun.id, "no network")
        except StandfastError:
            pass

    def answer(self, chance: random.Random) -> None:
        """The approver grants the question that they read."""
        sf = self._opened["approver"]
        try:
            for waiting in sf.approvals.list(state="requested", everywhere=True):
                posed = sf.approvals.pose(waiting.id)
                sf.approvals.grant(waiting.id, approver="ada")
                self.granted[posed.effect_key] += posed.attempts
        except StandfastError:
            pass

    def unpaid(self) -> dict[str, tuple[int, int]]:
        return {key: (n, self.granted[key]) for key, n in self.sent.items() if n > self.granted[key]}

    def protected(self, url: str) -> dict[str, set[str]]:
        import psycopg

        with psycopg.connect(url) as admin:
            return {
                table: {repr(row) for row in admin.execute(f"SELECT {columns} FROM standfast.{table}".encode())}
                for table, columns in (PROTECTED | {"event": "*"}).items()
            }

    @property
    def login(self) -> str:
        return f"{self._prefix}_writer_login"


class Agent:
    """The agent's own connection."""

    def __init__(self, url: str) -> None:
        import psycopg

        self._connection = psycopg.connect(url, autocommit=True, prepare_threshold=None)

    def attack(self, texts: list[str]) -> int:
        """Run the statements in one transaction. Returns 1 if it was committed. Then reset the session."""
        import psycopg

        self._connection.execute("DISCARD ALL")
        try:
            with self._connection.transaction():
                self._connection.execute("SET LOCAL lock_timeout = '2s'; SET LOCAL statement_timeout = '5s'")
                for text in texts:
                    self._connection.execute(text.encode())
        except psycopg.Error:
            return 0
        return 1

    def close(self) -> None:
        self._connection.close()


class Lines:
    """Statements that would gain something if they were allowed."""

    def __init__(self, chance: random.Random, prefix: str, *, granting: bool) -> None:
        self._chance, self._prefix, self._granting, self._number = chance, prefix, granting, 0

    def line(self) -> str:
        self._number += 1
        if self._granting:
            return self._chance.choice(GRANTING)
        made = self._chance.choice((self._update, self._update, self._update, self._effect, self._copy, self._event))
        return made() if self._chance.random() < 0.85 else self._chance.choice(WHOLE).replace("{p}", self._prefix)

    def _update(self) -> str:
        table = self._chance.choice(("approval", "approval", *COLUMNS))
        return self._set(table)

    def _effect(self) -> str:
        return self._set("effect")

    def _set(self, table: str) -> str:
        columns = COLUMNS[table]
        names = self._chance.sample(sorted(columns), self._chance.randint(1, min(3, len(columns))))
        sets = ", ".join(f"{name} = {self._chance.choice(columns[name])}" for name in names)
        where = self._chance.choice(("", "", " WHERE random() < 0.5"))
        return f"UPDATE standfast.{table} SET {sets}{where}"

    def _copy(self) -> str:
        """Insert a copy of an approval's row, with other values."""
        changed = {"id": f"'apr_{self._number}_{self._chance.randrange(10**9)}'"}
        for name in self._chance.sample(sorted(COLUMNS["approval"]), 2):
            changed[name] = self._chance.choice(COLUMNS["approval"][name])
        columns = (
            "id", "scope", "effect_id", "tool", "intent_hash", "question", "question_hash", "attempts", "attempts_used",
            "state", "requester", "approver", "requested_us", "expires_us", "answered_us",
        )  # fmt: skip
        values = ", ".join(changed.get(name, name) for name in columns)
        return (
            f"INSERT INTO standfast.approval ({', '.join(columns)}) SELECT {values} FROM standfast.approval"
            " ORDER BY random() LIMIT 1 ON CONFLICT DO NOTHING"
        )

    def _event(self) -> str:
        types = (
            "approval.granted",
            "approval.denied",
            "loop.added",
            "run.done",
            "gate.removed",
            "store.restored",
            "x.y",
        )
        type = self._chance.choice(types)
        more, value = self._chance.choice((("", ""), (", db_user", ", 'ada'"), (", seq", ", 1"), (", xid", ", '1'")))
        return (
            f"INSERT INTO standfast.event (time_us, occurred_us, scope, actor, holder, source, type, subject{more})"
            f" VALUES (1, 1, '', 'ada', 'h', 'seen', '{type}', 'apr_x'{value})"
        )


def _judge(outcome: Outcome, world: World, url: str, before: dict[str, set[str]]) -> None:
    import psycopg

    after = world.protected(url)
    for table, columns in PROTECTED.items():
        same = before[table] == after[table] if columns == "*" else before[table] <= after[table]
        outcome.refuse(not same and sorted(before[table] ^ after[table]), f"{table} was changed")
    outcome.refuse(sorted(before["event"] - after["event"]), "the journal was changed")
    forged = (
        "SELECT type, actor FROM standfast.event WHERE db_user = %s AND (actor <> 'writer' AND type <> 'x.y'"
        " OR type IN ('approval.granted', 'approval.denied', 'gate.removed'))"
    )
    with psycopg.connect(url) as admin:
        outcome.refuse(admin.execute(forged, (world.login,)).fetchall(), "the journal has forged rows")
