"""The transaction that a body gets. It is pipelined: a queued statement needs no round trip, a query needs one.

The first trip carries BEGIN, the settings of this transaction, the server's clock and the fence
against older writers. All settings are local to the transaction. Statements queued with `run` and `defer` are sent
with the next query or with COMMIT.

    write     READ COMMITTED, on disk before COMMIT answers
    relaxed   the same, on disk with the next durable write: heartbeats
    held      a caller's `with` block, bounded by the server too
    read      one snapshot (REPEATABLE READ), read only
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from standfast import crash, modules
from standfast.clock import SYSTEM
from standfast.db.contract import DEADLINE_S, READ_MAX_S, TRANSACTION_MAX_S, Caller, Numbered, Row, Tx, missing
from standfast.db.migrations import LATEST
from standfast.db.postgres.faults import STANDBY_REFUSES_BEGIN, Fault, too_long
from standfast.db.postgres.values import bind, query_of, rows_of
from standfast.db.sql import SERVER_NOW_US
from standfast.errors import SchemaTooNew, StorageError

if TYPE_CHECKING:
    from standfast.db.postgres.driver import PGresult
    from standfast.db.postgres.wire import Sink, Wire
    from standfast.db.sql import Statement

LOCK_WAIT_S = 10.0
"""How long one statement waits for a row; then the body is run again, until the deadline."""
STANDSTILL_S = 10.0
"""How long a transaction may be idle. A stopped process (SIGSTOP) must not hold its row locks longer."""
GRACE_S = 5.0
"""Added to the server's own limits. After that time a server that does not answer counts as lost."""
QUEUED_MAX = 256
SETTLING_MAX_S = 5.0
_VERSION_17 = 170000


class Mode(NamedTuple):
    """A kind of transaction: its first statements and its limits."""

    begin: bytes
    header: bytes
    answer_s: float
    age_s: float | None
    writes: bool


class Modes(NamedTuple):
    write: Mode
    relaxed: Mode
    held: Mode
    read: Mode


def modes(server_version: int, store_id: str = "", epoch: int = 1, moved: str = "") -> Modes:
    """The four kinds of transactions, for this version of the server. Writes check the store's id and epoch, and that
    the store has not moved."""
    quoted = store_id.replace("'", "''")
    mine = f"(SELECT value FROM standfast.meta WHERE key = 'store_id') = '{quoted}'" if store_id else "true"
    mine += f" AND COALESCE((SELECT value FROM standfast.meta WHERE key = 'epoch'), '1') = '{epoch}'"
    if not moved:
        mine += " AND NOT EXISTS (SELECT 1 FROM standfast.meta WHERE key = 'moved')"
    begin = b"BEGIN ISOLATION LEVEL READ COMMITTED, READ WRITE"
    snapshot = b"BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY"
    # Never weaker than the server's own setting: remote_apply is stronger than on.
    durable = "CASE current_setting('synchronous_commit') WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END"

    def header(statement_s: float, idle_s: float, *, commit: str | None, whole_s: float | None = None) -> bytes:
        settings = {
            "search_path": "'standfast, pg_temp'",
            "statement_timeout": _ms(statement_s),
            "lock_timeout": _ms(min(LOCK_WAIT_S, statement_s)),
            "idle_in_transaction_session_timeout": _ms(idle_s),
        }
        if commit:
            settings["synchronous_commit"] = commit
        if whole_s and server_version >= _VERSION_17:
            settings["transaction_timeout"] = _ms(whole_s)
        calls = ", ".join(f"set_config('{name}', {value}, true)" for name, value in settings.items())
        fence = "(SELECT value FROM standfast.meta WHERE key = 'min_writer')" if commit else "'0'"
        same = f"COALESCE({mine}, false)" if commit else "true"
        known = f"{SERVER_NOW_US} AS now_us, CAST({fence} AS bigint) AS min_writer, {same} AS same_store"
        return f"SELECT {known}, {calls}".encode()

    write = header(DEADLINE_S, STANDSTILL_S, commit=durable)
    relaxed = header(DEADLINE_S, STANDSTILL_S, commit="'off'")
    held = header(TRANSACTION_MAX_S, TRANSACTION_MAX_S, commit=durable, whole_s=TRANSACTION_MAX_S)
    read = header(READ_MAX_S, READ_MAX_S, commit=None, whole_s=2 * READ_MAX_S)
    return Modes(
        write=Mode(begin, write, DEADLINE_S + GRACE_S, None, True),
        relaxed=Mode(begin, relaxed, DEADLINE_S + GRACE_S, None, True),
        held=Mode(begin, held, TRANSACTION_MAX_S + GRACE_S, TRANSACTION_MAX_S, True),
        read=Mode(snapshot, read, READ_MAX_S + GRACE_S, 2 * READ_MAX_S, False),
    )


def _ms(seconds: float) -> str:
    return f"'{round(seconds * 1000)}'"


class PostgresTx(Tx):
    __slots__ = (
        "_alive",
        "_began",
        "_known",
        "_mode",
        "_queued",
        "_said",
        "_wire",
        "commit_sent",
        "committed",
        "fault",
        "over",
        "speak",
        "wrote",
    )

    dialect = "postgres"

    def __init__(
        self,
        wire: Wire,
        caller: Caller,
        mode: Mode,
        alive: Callable[[], None],
    ) -> None:
        super().__init__(caller)
        self._wire = wire
        self._mode = mode
        self._alive = alive
        """Raises if this transaction belongs to the parent, after a fork."""
        self.speak: Callable[[Exception], Exception] = lambda fault: fault
        """Translates a Fault for a caller that holds the transaction. The engine gets the Fault itself.
        """
        self._began = time.monotonic()
        self._queued = 0
        self._known = False
        self._said: Exception | None = None
        self.fault: Exception | None = None
        """The first failure. Even if the body catches it, this transaction cannot be committed."""
        self.wrote = False
        self.over = False
        """True if the transaction was committed or is being rolled back. Then no statement may follow."""
        self.commit_sent = False
        self.committed = False
        if caller.clock is not SYSTEM:
            self._now_us = caller.clock.now_us()

    def begin(self) -> None:
        """Queued, and sent with the first query."""
        self._send(self._mode.begin)
        self._send(self._mode.header, sink=self._read_header)
        if self._mode.writes:
            crash.point("commit.after_begin")

    # -- methods for a body -----------------------------------------------------------------------

    def maybe(self, statement: Statement, /, **params: object) -> Row | None:
        rows = self._ask(statement, params, limit=1)
        return rows[0] if rows else None

    def all(self, statement: Statement, /, **params: object) -> list[Row]:
        return self._ask(statement, params)

    def run(self, statement: Statement, /, **params: object) -> None:
        self._queue(statement, params, self._note)

    def defer(self, statement: Statement, then: Callable[[Row], None], /, **params: object) -> None:
        def take(answer: PGresult) -> None:
            self._note(answer)
            rows = rows_of(answer, 1)
            if not rows:
                raise missing(statement)
            then(rows[0])

        self._queue(statement, params, take)

    def insert(self, statement: Statement, row: Numbered, values: tuple[object, ...]) -> None:
        def take(answer: Row) -> None:
            row.seq = answer["seq"]

        self.defer(statement, take, **dict(zip(statement.names, values, strict=True)))

    def compares_vectors(self) -> bool:
        from standfast.db.postgres import vectors

        return self.maybe(vectors.READY) is not None

    def now_us(self) -> int:
        if self._now_us is None:
            self.collect()
        assert self._now_us is not None
        return self._now_us

    def now_us_if_known(self) -> int | None:
        return self._now_us

    # -- the conversation -------------------------------------------------------------------------

    def _ask(self, statement: Statement, params: dict[str, object], limit: int | None = None) -> list[Row]:
        taken: list[Row] = []

        def take(answer: PGresult) -> None:
            self._note(answer)
            taken.extend(rows_of(answer, limit))

        self._queue(statement, params, take)
        self.collect()
        return taken

    def _queue(self, statement: Statement, params: dict[str, object], sink: Sink) -> None:
        query = query_of(statement)
        bound = bind(query, params)  # an invalid value raises InvalidInput in the body, before anything is sent
        self._check()
        try:
            self._wire.send(query.text, bound, sink)
        except Fault as fault:
            raise self._failed(fault) from None
        self._queued += 1
        if self._queued >= QUEUED_MAX:
            self.collect()

    def _send(self, text: bytes, sink: Sink | None = None) -> None:
        try:
            self._wire.send(text, sink=sink)
        except Fault as fault:
            raise self._failed(fault) from None

    def collect(self) -> None:
        """One round trip."""
        self._check()
        self._queued = 0
        try:
            self._wire.collect(self._mode.answer_s)
        except Fault as fault:
            if not self._known and fault.sqlstate == STANDBY_REFUSES_BEGIN:
                fault.sqlstate = "25006"  # on a standby, BEGIN READ WRITE fails with its own SQLSTATE
            raise self._failed(fault) from None

    def _failed(self, fault: Exception) -> Exception:
        if self.fault is None or self._said is None:
            self.fault = fault
            self._said = self.speak(fault)
        return self._said

    def _check(self) -> None:
        self._alive()
        if self._said is not None:
            raise self._said
        age_s = self._mode.age_s
        if age_s is not None and time.monotonic() - self._began > age_s and not self.commit_sent:
            raise self._failed(_too_old(age_s))

    def _read_header(self, answer: PGresult) -> None:
        header = rows_of(answer, 1)[0]
        self._known = True
        if self._now_us is None:
            self._now_us = header["now_us"]
        if (header["min_writer"] or 0) > LATEST:
            raise self._failed(_fenced(header["min_writer"]))
        if not header["same_store"]:
            raise self._failed(_replaced())

    def _note(self, answer: PGresult) -> None:
        tag = answer.command_status or b""
        self.wrote = self.wrote or not (tag.startswith(b"SELECT") or tag.endswith(b" 0"))

    # -- commit and abort -------------------------------------------------------------------------

    def commit(self) -> None:
        """Commit. Returns when the transaction is as durable as its kind requires. Raises Fault."""
        self._check()
        self.over = True
        if not self._mode.writes:
            if self._queued:
                self.collect()
            self._wire.end_later(b"COMMIT")
            return
        if not self._known:
            self.collect()  # COMMIT follows only after the check that the store is ours
        crash.point("commit.before_commit")
        self._wire.notices.warned = None
        self.commit_sent = True
        self._send(b"COMMIT", self._read_commit)
        self.collect()
        assert self.committed
        if self._wire.notices.warned is not None:
            # Committed on the primary, but the server stopped waiting for its synchronous standby.
            raise self._failed(Fault(self._wire.notices.warned, sqlstate="01000", lost=True))
        crash.point("commit.after_commit")
        crash.point("commit.after_sync")

    def _read_commit(self, answer: PGresult) -> None:
        self.committed = answer.command_status == b"COMMIT"
        if not self.committed:
            raise self._failed(Fault("the transaction was rolled back instead of committed", sqlstate="25P02"))

    def abandon(self) -> None:
        """Roll back an open transaction. A forked child leaves the parent's transaction alone."""
        self.over = True
        try:
            self._alive()
        except StorageError:
            return
        self._wire.recover(SETTLING_MAX_S)


def _replaced() -> StorageError:
    return StorageError(
        "this database has another store now, or a later epoch of the store that this handle opened",
        "nothing was written; end this process, then look: standfast store list",
        code="store_replaced",
    )


def _fenced(min_writer: int) -> SchemaTooNew:
    return SchemaTooNew(
        f"the store was upgraded while this process ran with schema {LATEST}: it takes writers from "
        f"schema {min_writer} on",
        modules.UPGRADE,
    )


def _too_old(age_s: float) -> StorageError:
    return too_long(f"more than {age_s:.0f} s")
