"""Send and receive on one connection. Statements are queued, and one flush sends them all.

This is libpq's pipeline mode, through `psycopg.pq`. psycopg's own pipeline
sends each statement at once. This class sends nothing before `collect`, so queued statements cost no extra round trip,
and we always know whether COMMIT was sent. (Measured on loopback: half the CPU of psycopg's pipeline.)

A foreign exception (a signal handler, Ctrl-C, `PyThreadState_SetAsyncExc`) may hit the thread after libpq has sent a
command and before we have recorded it. So each step clears `_exact` first and sets it at its end. A connection is
`reusable` only if our record is exact and the server has answered that no transaction is open. Otherwise the pool
closes it. Every wait has a timeout.
"""

from __future__ import annotations

import select
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from standfast import modules
from standfast.db.postgres.driver import pq, psycopg
from standfast.db.postgres.faults import Fault
from standfast.db.postgres.values import Bound

if TYPE_CHECKING:
    from standfast.db.postgres.driver import PGresult

Sink: TypeAlias = "Callable[[PGresult], None]"
Plan: TypeAlias = tuple[bytes, tuple[int, ...]]
"""The identity of a prepared statement: its text and the types of its parameters."""

PREPARED_MAX = 500
"""Most prepared plans on one connection. Later statements are sent in full each time."""
OWED_S = 10.0
_OK = frozenset({pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK, pq.ExecStatus.EMPTY_QUERY})
_NOTHING = Bound([], [], [])
_GONE = frozenset({b"FATAL", b"PANIC"})


class _Sent:
    """One sent command: its sink, and the plan that it prepares."""

    __slots__ = ("plan", "sink", "sync")

    def __init__(self, sink: Sink | None = None, plan: Plan | None = None, *, sync: bool = False) -> None:
        self.sink = sink
        self.plan = plan
        self.sync = sync


class Wire:
    """One connection in pipeline mode. Used by one thread at a time."""

    def __init__(self, connection: psycopg.Connection[Any], *, prepare: bool) -> None:
        self.prepare = prepare
        self.broken = False
        self.born = time.monotonic()
        self.epoch = 0
        self.round_trips = 0
        self.notices = Notices()
        self.ended = True
        """The server has answered that no transaction is open, and nothing was sent since."""
        self._exact = True
        """`_under_way` lists what libpq has sent. False while a step changes both."""
        self._owed = False
        """COMMIT of a read was sent, and its answer was not received yet. The next use of the wire receives it."""
        self._connection = connection
        self._pg = connection.pgconn
        self._under_way: deque[_Sent] = deque()
        self._plans: dict[Plan, bytes] = {}
        self._poll = select.poll()
        self._poll.register(self._pg.socket, select.POLLIN)
        self._pg.notice_handler = self.notices.take  # not a method of the wire: that would be a reference cycle
        self._pg.enter_pipeline_mode()

    @property
    def reusable(self) -> bool:
        """Whether another transaction may use this connection."""
        return not self.broken and self._exact and (self.ended or self._owed)

    # -- queue of statements ----------------------------------------------------------------------

    def send(self, text: bytes, bound: Bound = _NOTHING, sink: Sink | None = None) -> None:
        """Queue a statement. Its answer goes to `sink` when it is collected."""
        if self._owed:
            self._catch_up()
        self.ended = self._exact = False
        try:
            if self.prepare:
                self._send_prepared(text, bound)
            else:
                self._pg.send_query_params(text, bound.values, bound.types, bound.formats)
        except psycopg.Error as error:
            raise self._gone(error) from None
        self._under_way.append(_Sent(sink))
        self._exact = True

    def _send_prepared(self, text: bytes, bound: Bound) -> None:
        key = (text, tuple(bound.types))
        name = self._plans.get(key)
        if name is None:
            if len(self._plans) >= PREPARED_MAX:
                self._pg.send_query_params(text, bound.values, bound.types, bound.formats)
                return
            name = self._plans[key] = _plan_name(key)
            self._pg.send_prepare(name, text, bound.types)
            self._under_way.append(_Sent(plan=key))
        self._pg.send_query_prepared(name, bound.values, bound.formats)

    def end_later(self, text: bytes) -> None:
        """Send a last statement without waiting for its answer. The next use of the wire receives it."""
        self._forget_sinks()
        try:
            self.send(text)
            self._sync()
            self.broken = self.broken or self._pg.flush() != 0
        except (Fault, psycopg.Error):
            self.broken = True
        self._owed = True  # this must be last: after an exception before this line the wire is not reusable

    def _catch_up(self) -> None:
        """Receive the pending answer before anything is sent. A pooler that gets two transactions at once may send the
        answers of the second to another client (pgbouncer 1.18 does)."""
        self._exact = self._owed = False
        try:
            self._receive(OWED_S)
        except Fault as fault:
            self.broken = True  # the caller that uses the wire now did not cause it
            raise Fault(fault.message, lost=True) from None

    def _sync(self) -> None:
        self._exact = False
        self._pg.pipeline_sync()
        self._under_way.append(_Sent(sync=True))
        self._exact = True

    # -- answers ----------------------------------------------------------------------------------

    def collect(self, within_s: float) -> None:
        """One round trip: receive the answers to everything queued. Raises the first Fault, after the sinks got the
        answers before it.

        The trip ends with Sync, not with Flush. Only after a Sync does the server count this session as idle and apply
        its timeout for idle transactions.
        """
        if not self._under_way:
            return
        self.round_trips += 1
        try:
            self._sync()
        except psycopg.Error as error:
            raise self._gone(error) from None
        self._receive(within_s)

    def _receive(self, within_s: float) -> None:
        self._exact = False
        try:
            answers, fault = self._answers(time.monotonic() + within_s)
        except psycopg.Error as error:
            raise self._gone(error) from None
        self.ended = self._pg.transaction_status == pq.TransactionStatus.IDLE
        self._exact = True
        for sink, answer in answers:
            sink(answer)
        if fault is not None:
            raise fault

    def _answers(self, end: float) -> tuple[list[tuple[Sink, PGresult]], Fault | None]:
        self._flush(end)
        answers: list[tuple[Sink, PGresult]] = []
        fault: Fault | None = None
        while self._under_way:
            answer = self._answer(end)
            if answer is None:  # NULL separates the results of two commands
                continue
            sent = self._under_way.popleft()
            if answer.status in _OK:
                if sent.sink is not None:
                    answers.append((sent.sink, answer))
                continue
            if sent.plan is not None:
                self._plans.pop(sent.plan, None)
            if answer.status == pq.ExecStatus.FATAL_ERROR:
                fault = fault or _fault(answer)
                if fault.lost or self._pg.status == pq.ConnStatus.BAD:
                    self.broken = fault.lost = True
                    raise fault
        return answers, fault

    def _answer(self, end: float) -> PGresult | None:
        while self._pg.is_busy():
            self._wait(end)
            self._pg.consume_input()
        return self._pg.get_result()

    def _flush(self, end: float) -> None:
        while self._pg.flush():
            # The server may be blocked on answers we have not read: read while writing.
            self._poll.modify(self._pg.socket, select.POLLIN | select.POLLOUT)
            try:
                if self._wait(end) & select.POLLIN:
                    self._pg.consume_input()
            finally:
                self._poll.modify(self._pg.socket, select.POLLIN)

    def _wait(self, end: float) -> int:
        left_s = end - time.monotonic()
        ready = self._poll.poll(left_s * 1000) if left_s > 0 else []
        if not ready:
            self.broken = True
            raise Fault("the server does not answer", lost=True)
        return ready[0][1]

    def recover(self, within_s: float) -> None:
        """Roll back after a fault or an exception in the body.

        If our record is not exact, the wire counts as broken.
        """
        if self.broken or self.reusable:
            return
        if not self._exact:
            self.broken = True
            return
        try:
            self._drain(within_s)
            self.send(b"ROLLBACK")
            self.collect(within_s)
        except Fault:
            self.broken = True

    def _drain(self, within_s: float) -> None:
        self._forget_sinks()
        try:
            self.collect(within_s)
        except Fault as fault:
            if fault.lost:
                raise

    def _forget_sinks(self) -> None:
        for sent in self._under_way:
            sent.sink = None

    # -- the server -------------------------------------------------------------------------------

    @property
    def backend_pid(self) -> int:
        """The server process that accepted the connection."""
        return self._pg.backend_pid

    def place(self) -> dict[str, object]:
        pg = self._pg
        return {"host": pg.host.decode(), "port": int(pg.port or b"5432"), "encrypted": bool(pg.ssl_in_use)}

    # -- close ------------------------------------------------------------------------------------

    def close(self) -> None:
        self.broken = True
        self._connection.close()

    def _gone(self, error: psycopg.Error) -> Fault:
        self.broken = True
        return Fault(str(error) or type(error).__name__, sqlstate=error.sqlstate or "", lost=True)


class Notices:
    """A notice of the server."""

    def __init__(self) -> None:
        self.warned: str | None = None
        """The server's message, if COMMIT did not wait for the standby."""

    def take(self, notice: PGresult) -> None:
        # The server cut its wait for a standby short, and COMMIT will still succeed. Compare the name of the C
        # function, because the server may translate its messages.
        if notice.error_field(pq.DiagnosticField.SOURCE_FUNCTION) == b"SyncRepWaitForLSN":
            words = notice.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or b"the standby did not answer"
            self.warned = words.decode("utf-8", "replace")


def _plan_name(plan: Plan) -> bytes:
    """The name of a plan, derived from its text. A pooler may give us a session in which another client prepared plans.
    A plan with this name is then the same statement, never another one."""
    modules.load("hashlib")
    import hashlib

    return b"standfast_" + hashlib.sha256(repr(plan).encode()).hexdigest()[:24].encode()


def _fault(answer: PGresult) -> Fault:
    sqlstate = (answer.error_field(pq.DiagnosticField.SQLSTATE) or b"").decode()
    words = answer.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or answer.error_message
    detail = answer.error_field(pq.DiagnosticField.MESSAGE_DETAIL)
    severity = answer.error_field(pq.DiagnosticField.SEVERITY_NONLOCALIZED)
    text = words.decode("utf-8", "replace").strip()
    if detail:
        text += f" ({detail.decode('utf-8', 'replace').strip()})"
    # An error without a SQLSTATE is libpq's own, and means a lost connection.
    return Fault(text, sqlstate=sqlstate, lost=severity in _GONE or not sqlstate)
