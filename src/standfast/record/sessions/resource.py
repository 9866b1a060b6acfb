"""`sf.sessions`: the methods on sessions, by key or id."""

from __future__ import annotations

from standfast import crash, hints, log, serial
from standfast.clock import Duration, Time, duration_us
from standfast.core import keys, leases, repositories
from standfast.core.checks import page_size, past_us, time_and_id
from standfast.db.contract import Row, Tx
from standfast.db.store import Resource, query, transactional
from standfast.errors import Conflict, InvalidInput
from standfast.ledger.openings import Opening, lineage_of
from standfast.record import agents, messages, nodes
from standfast.record.messages import Message
from standfast.record.nodes import Node
from standfast.record.sessions import forks, ownership, queries
from standfast.record.sessions.models import STATES, InDoubt, Opened, Resumed, SessionRecord, Shown
from standfast.record.sessions.queries import find, record

ENDS = {"waiting": "session.paused", "completed": "session.completed", "failed": "session.failed"}


class Sessions(Resource):
    """Sessions by key or id: open, show, say, fork, end."""

    __slots__ = ()

    def open(
        self,
        key: str,
        *,
        agent: str | None = None,
        command: tuple[str, ...] | None = None,
        cwd: str | None = None,
        for_: Duration | None = None,
        alone: bool = False,
        join: str | None = None,
    ) -> Opened:
        """Open or resume the session KEY and hold it until it is ended.

        - `agent`: the name of the agent that works in it.
        - `for_`: hold it for this long after your last command.  [default: 15m]

        The session is created if it does not exist. An agent that owns it already keeps its fence. `alone` means that
        no other part of this process has it open. `join` names a session that `session run` opened for this process:
        then this call continues that opening. Raises InProgress, which names the holder, while a live holder has it.
        """
        agent = None if agent is None else agents.checked_name(agent)
        for_us = duration_us(for_, "for_")
        run = None if command is None else serial.dumps(list(command), what="command")

        def open(tx: Tx) -> Opened:
            crash.point("session.before_open")
            wanted: Row = {"agent": agent, "command": run, "cwd": cwd, "actor": tx.caller.actor}
            wanted |= leases.new_lease(tx, for_us)
            return ownership.open_or_resume(tx, key, wanted, alone=alone, join=join)

        opened = self._write(open)
        if opened.before is not None and opened.before.crashed and self.tx is None:
            log.info("session %s taken over from %s", key, opened.before.holder)
        agents.notice(self.store, self.tx, agent)
        return opened

    @transactional
    def end(
        self,
        tx: Tx,
        session: str,
        state: str = "completed",
        *,
        reason: str | None = None,
        fence: int | None = None,
        holder: str | None = None,
    ) -> SessionRecord:
        """End a session: completed, failed or waiting. Its owner may do it, or any process after its owner exited.

        With `fence`, raises LeaseLost if it was opened again since. Raises InProgress while another holder has it.
        """
        if state not in ENDS:
            raise InvalidInput(f"a session ends as {', '.join(ENDS)}, not as {state!r}")
        row = find(tx, session)
        return self._ended(tx, tx.one(queries.SQL.by_id_for_update, id=row["id"]), state, reason, fence, holder)

    @transactional
    def leave(self, tx: Tx, session: str, *, fence: int, stops: ownership.Stops | None = None) -> SessionRecord:
        """Leave the block of an opening: completed, or waiting if a person has to settle something.

        `stops` has the errors that calls of this opening raised, also if the program caught them.
        """
        row = tx.one(queries.SQL.by_id_for_update, id=session)
        reason = ownership.expected(tx, row, stops)
        return self._ended(tx, row, "waiting" if reason else "completed", reason, fence, None)

    def _ended(
        self, tx: Tx, row: Row, state: str, reason: str | None, fence: int | None, holder: str | None
    ) -> SessionRecord:
        mine = row["holder"] == (holder or tx.caller.holder)
        if fence is not None and not (mine and row["fence"] == fence):
            raise leases.lost(f"session {row['key']!r}", row, fence)
        if not mine and leases.judge(tx, row).live:
            raise ownership.held(tx, row)
        if row["state"] == state and row["holder"] is None:
            return record(tx, row)
        crash.point("session.before_end")
        return ownership.let_go(tx, row, state, reason, ENDS[state])

    @transactional
    def exited(self, tx: Tx, session: str, *, holder: str, code: int) -> SessionRecord:
        """End the session that the process `holder` held when it exited with this code (negative for a signal).

        If the process ended the session itself, or another process holds it now, nothing changes.
        """
        row = tx.one(queries.SQL.by_id_for_update, id=find(tx, session)["id"])
        if row["holder"] != holder:
            return record(tx, row)
        crash.point("session.before_end")
        state, reason = ownership.exit_outcome(code)
        expected = ownership.expected(tx, row) if state != "waiting" else None
        if expected is not None:
            state, reason = "waiting", f"{reason}; {expected}" if reason else expected
        return ownership.let_go(tx, row, state, reason, ENDS[state])

    @transactional
    def proceed(self, tx: Tx, session: str, *, opening: Opening, reason: str | None = None) -> tuple[InDoubt, ...]:
        """Continue although effects of a session are in doubt: new effects are sent. Each doubt is journalled."""
        opening.check(tx)
        return ownership.proceed(tx, session, reason)

    def keep(self) -> None:
        """Renew the caller's leases from now on, until the store is closed."""
        leases.renewer(self.store).start()

    @transactional
    def take(self, tx: Tx, session: str) -> SessionRecord:
        """End the hold of any holder, alive or not. Later calls of the old holder are refused."""
        row = tx.one(queries.SQL.by_id_for_update, id=find(tx, session)["id"])
        if row["holder"] is None:
            raise Conflict(f"session {row['key']!r} has no holder", hints.command("session", "show", row["key"]))
        reason = f"taken from {leases.holder_text(row['holder'])} by {tx.caller.actor}"
        return ownership.let_go(tx, row, "waiting", reason, "session.taken", grow=1, data={"holder": row["holder"]})

    @transactional
    def fork(self, tx: Tx, session: str, new_key: str | None = None, *, at: int | None = None) -> SessionRecord:
        """Make NEW_KEY, a session that shares the first messages of KEY, and its steps and effects until then.

        - `new_key`: the key of the fork.  [default: fix-42@12]
        - `at`: the last message that both share.  [default: all there are]

        Nothing is copied. The same fork again changes nothing. Raises KeyConflict if the new key names another one.
        """
        if new_key is not None:
            keys.checked(new_key, "the new key")
        return forks.fork(tx, find(tx, session), new_key, at)

    @transactional
    def say(
        self,
        tx: Tx,
        session: str,
        role: str,
        content: serial.Json,
        *,
        key: str | None = None,
        node: str | None = None,
        occurred: Time | None = None,
    ) -> Message:
        """Add one message at the end of a session, or of its sub-agent `node`. Any process may do this.

        With a key the message is stored once. Raises KeyConflict if the key was used for another message.
        """
        occurred_us = past_us(occurred, tx.now_us(), "occurred")
        said = messages.utterance(role, content, key=key, occurred_us=occurred_us, redact=self.store.redact)
        path = nodes.path_of(node)
        row = find(tx, session)
        lineage = lineage_of(tx, row["id"])
        spoken_in = nodes.open_at(tx, row["id"], path, lineage)
        return messages.say(tx, row["id"], nodes.segments(tx, spoken_in, path, lineage), said)

    @query
    def messages(
        self, tx: Tx, session: str, *, last: int = 50, after: int | None = None, node: str | None = None
    ) -> list[Message]:
        """The newest `last` messages in order, without reading the others; or the next ones after position `after`."""
        return _messages(tx, find(tx, session), last=last, after=after, node=node)

    @query
    def show(self, tx: Tx, session: str, *, last: int = 10, after: int | None = None, node: str | None = None) -> Shown:
        """Show one session, KEY or id: its state, its sub-agents, its last messages.

        - `last`: show the newest N messages.
        - `after`: show the messages after this position.
        - `node`: the conversation of a sub-agent: reviewer/tests.

        Raises NotFound.
        """
        row = find(tx, session)
        found = _messages(tx, row, last=last, after=after, node=node)
        return Shown(record(tx, row), tuple(nodes.all_of(tx, row["id"])), tuple(found))

    @query
    def nodes(self, tx: Tx, session: str) -> list[Node]:
        """The root and the sub-agents, in the order of their creation."""
        return nodes.all_of(tx, find(tx, session)["id"])

    @query
    def get(self, tx: Tx, session: str) -> SessionRecord:
        """Get a session by its key, its id or the end of its id. Raises NotFound."""
        return record(tx, find(tx, session))

    @query
    def list(
        self, tx: Tx, *, state: str | None = None, everywhere: bool = False, after: str | None = None, limit: int = 50
    ) -> list[SessionRecord]:
        """List sessions, the newest first, with the first message of their user.

        - `state`: only of this state. Crashed ones come oldest first.

        `after` is the `place` of the last one you have.
        """
        if state is not None and state not in (*STATES, "crashed"):
            raise InvalidInput(f"there is no state {state!r}", f"one of: {', '.join(STATES)}, crashed")
        asked: Row = {"limit": page_size(limit), "scope": tx.caller.scope}
        if state == "crashed":
            return queries.crashed(tx, everywhere, asked, after)
        before_us, before_id = time_and_id(after)
        asked |= {"state": state or "", "before_us": before_us, "before_id": before_id}
        if everywhere:
            rows = tx.all(queries.SQL.page_everywhere, **asked)
        else:
            rows = tx.all(queries.SQL.page, **repositories.filtered(tx), **asked)
        return [record(tx, row) for row in rows]

    @query
    def found(self, tx: Tx, before: SessionRecord) -> Resumed:
        """The earlier state and the counts of a resumed session. Messages are not read."""
        return ownership.found(tx, before)


def _messages(tx: Tx, row: Row, *, last: int, after: int | None, node: str | None) -> list[Message]:
    path = nodes.path_of(node)
    found = nodes.find(tx, row["id"], path)
    if found is None:
        raise nodes.unknown(path, row["key"])
    segments = nodes.segments(tx, found, path, lineage_of(tx, row["id"]))
    return messages.page(tx, segments, last=last, after=after)
