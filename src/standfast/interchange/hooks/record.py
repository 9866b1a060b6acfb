"""Store the record of a hook, as `seen` by standfast.

The session has the key `AGENT:NATIVE-ID`. An import of the transcript fills the same session, from any directory. The
session is active while the agent works, and the agent holds it as an actor. While the agent waits for a prompt, the
session is completed, or waiting if a person has to act first.

A tool call is one row with the agent's own id of the call. Gemini CLI sends no such id: its calls are in the journal
only, and the import of the transcript adds the rows. A made-up id would add a second row for the same call.

A record that is stored already changes nothing. Its subject, type and microsecond identify it. So a hook may store a
record that also comes from a spool, and a spool may be drained again after a kill.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from standfast import crash, serial
from standfast.clock import DAY_US, MINUTE_US
from standfast.config.scope import OUTSIDE, Keyspace, Label
from standfast.core import journal, leases, repositories
from standfast.db.contract import Caller, Row, Tx
from standfast.db.sql import load
from standfast.db.store import Resource, Store, query, transactional
from standfast.errors import Conflict, NotFound
from standfast.ids import new_id
from standfast.interchange import agent_sessions
from standfast.interchange.hooks import mail_lines
from standfast.interchange.hooks.payloads import Heard

if TYPE_CHECKING:
    from standfast.ledger.gate_patterns import Gate

SQL = load(__name__)

LEASE_US = 60 * MINUTE_US
"""The lease of an agent's session. It is long, because an agent sends no record during a tool call."""
NO_PROMPT = "it waits for a prompt"
GATES_MAX = 1000
LATELY_US = 30 * DAY_US
WORKSPACES_MAX = 500
OPENING = frozenset({"prompt", "call"})
LEAVING = frozenset({"stop", "end"})
IDLE = LEAVING | {"start"}
"""After these records the agent waits for a prompt, or has ended."""
TYPES = {
    "start": "agent.started",
    "prompt": "prompt.submitted",
    "call": "tool.called",
    "answer": "tool.answered",
    "denied": "tool.denied",
    "stop": "turn.ended",
    "end": "agent.ended",
    "subagent_start": "subagent.started",
    "subagent_stop": "subagent.stopped",
    "compact": "compaction.started",
    "compacted": "compaction.ended",
    "check": "hook.checked",
    "other": "hook.heard",
}


class Kept(NamedTuple):
    """The session of a stored record, and the things that wait for its agent."""

    session_id: str
    new: bool
    """False if the record was stored before."""
    gates: list[Row]
    """The gates that apply to the agent. Empty after a stop or an end, as are the next two."""
    keyspaces: tuple[Keyspace, ...] = ()
    """The keyspaces of these gates: of the agent's directory and of its session."""
    mail: bool = False
    """Whether mail waits that the session has not seen."""
    line: str = ""
    """The line for the agent about its mail."""
    limited: bool = False
    """Whether any budget is set."""


class Hooks(Resource):
    """Store records of hooks."""

    __slots__ = ()

    @transactional
    def keep(self, tx: Tx, heard: Heard) -> Kept:
        """Store one record and renew the leases of the caller, which is the agent."""
        crash.point("hook.before_keep")
        repositories.join(tx)
        kept = _keep(tx, heard, late=False)
        leases.renew_held(tx)
        if heard.kind != "check":
            kept = kept._replace(limited=tx.maybe(SQL.limited) is not None)
        if heard.kind in LEAVING or heard.kind == "check":
            return kept
        keyspaces = _keyspaces(tx, kept.session_id)
        kept = kept._replace(gates=_gates(tx, *keyspaces), keyspaces=keyspaces)
        mails = mail_lines.waiting(tx, heard, kept.session_id)
        if not mails or heard.name not in mail_lines.EVENTS or heard.node is not None:
            return kept._replace(mail=bool(mails))
        return kept._replace(line=mail_lines.announce(tx, mails, kept.session_id))

    @transactional
    def hold(self, tx: Tx, heard: Heard, gate: str, why: str) -> None:
        """Record that a gate refused a call, so the agent did not make it."""
        row = agent_sessions.find(tx, heard.agent, heard.native)
        session_id = row["session_id"] if row is not None else None
        if heard.call_id is not None and session_id is not None:
            tx.run(SQL.held, session_id=session_id, call_id=heard.call_id, at_us=heard.at_us, now_us=tx.now_us())
        summary = f"{heard.summary or heard.tool}: {why}"
        data: dict[str, serial.Json] = {"tool": heard.tool, "call_id": heard.call_id}
        journal.append(tx, "gate.held", gate, session_id=session_id, summary=summary, data=data, state="held")

    @transactional
    def prompted(self, tx: Tx, heard: Heard, gate: Gate, what: str) -> None:
        """Record that the agent `asked` its user about a call, or that the call `passed`: the user said yes."""
        row = agent_sessions.find(tx, heard.agent, heard.native)
        session_id = row["session_id"] if row is not None else None
        data: dict[str, serial.Json] = {"tool": heard.tool, "call_id": heard.call_id, "method": "prompt"}
        summary = f"{heard.summary or heard.tool}: {gate.pattern}"
        journal.append(tx, f"gate.{what}", gate.id, session_id=session_id, summary=summary, data=data, state=what)

    @transactional
    def pass_once(
        self, tx: Tx, effect_id: str, attempt: int, gate: str, pattern: str, go_on: Callable[[], bool]
    ) -> bool:
        """Let a call pass a gate because of a dispatched effect: True the first time for this attempt."""
        row = tx.maybe(SQL.dispatched_effect, id=effect_id, attempt=attempt)
        if row is None:
            return False
        found = serial.read(row["context"])
        context = found if isinstance(found, dict) else {}
        if context.get("passed") == attempt or not go_on():
            return False
        text = serial.dumps({**context, "passed": attempt}, what="context")
        tx.run(SQL.passed, id=effect_id, attempt=attempt, context=text, now_us=tx.now_us())
        data: dict[str, serial.Json] = {"effect_id": effect_id, "attempt": attempt}
        summary = f"{row['tool']}: {pattern}"
        journal.append(tx, "gate.passed", gate, session_id=row["session_id"], summary=summary, data=data)
        return True

    @query
    def gates(self, tx: Tx, session_id: str | None = None) -> list[Row]:
        """The gates of the caller's directory, as rows, because most stores have none and then load no model.

        With a session, also the gates of the session's repository, which the agent may have left.
        """
        return _gates(tx, *_keyspaces(tx, session_id))

    @query
    def whose(self, tx: Tx, session_id: str) -> Row | None:
        """The scope and the label of a session."""
        return agent_sessions.place(tx, session_id)

    @query
    def session_of(self, tx: Tx, actor: str) -> str | None:
        """The id of the session of the agent `AGENT:NATIVE-ID`; None if it has none."""
        agent, _, native = actor.partition(":")
        row = agent_sessions.find(tx, agent, native)
        return row["session_id"] if row is not None else None

    @query
    def session_called(self, tx: Tx, session: str) -> str | None:
        """The id of the session with this key or id; None if there is none."""
        row = tx.maybe(SQL.session_called, session=session, scope=tx.caller.scope)
        return row["id"] if row is not None else None

    @query
    def acted(self, tx: Tx, session_id: str) -> bool:
        """Whether a session called a tool or has a dispatched effect. Otherwise no answer can be missing."""
        return tx.maybe(SQL.acted, id=session_id) is not None

    @query
    def checked(self, tx: Tx, agent: str, native: str) -> bool:
        """Whether the hook has stored the record of an installation check."""
        return tx.maybe(SQL.checked, agent=agent, native=native) is not None

    @query
    def workspaces(self, tx: Tx) -> list[str]:
        """The directories of recent sessions."""
        rows = tx.all(SQL.workspaces, since_us=tx.now_us() - LATELY_US, limit=WORKSPACES_MAX)
        return [row["cwd"] for row in rows]


def work_in(store: Store, session_id: str, *, adopt: bool) -> None:
    """Make the caller work in this session, and with `adopt` also in its scope and repository."""
    caller = store.caller
    caller.session_id = session_id
    row = Hooks(store).whose(session_id) if adopt else None
    if row is None:
        return
    label = repositories.labelled(row)
    caller.scope = caller.scope or row["scope"]
    if not label.outside and label != caller.label:
        caller.label = label
        caller.repository = repositories.known(store, caller)


def last_heard(tx: Tx, agent: str) -> tuple[int | None, int]:
    """The time of an agent's last record, and the number of its imported files."""
    return tx.one(SQL.last_heard, agent=agent)["us"], tx.one(SQL.imported, agent=agent)["files"]


def _keyspaces(tx: Tx, session_id: str | None) -> tuple[Keyspace, Keyspace]:
    """The keyspaces whose gates apply: of the caller's directory and of the session's repository."""
    row = agent_sessions.place(tx, session_id) if session_id else None
    own = None if row is None else repositories.keyspace(tx, row["scope"], repositories.labelled(row))
    return tx.caller.keyspace, own or tx.caller.keyspace


def _gates(tx: Tx, here: Keyspace, of_session: Keyspace) -> list[Row]:
    asked: Row = {"session_scope": of_session.scope, "session_repository": of_session.repository}
    return tx.all(SQL.gates, limit=GATES_MAX, now_us=tx.now_us(), **here._asdict(), **asked, **tx.caller.labelled())


def keep_late(
    store: Store, actor: str, scope: str, records: list[tuple[Heard, bool]], *, label: Label = OUTSIDE
) -> int:
    """Store the spooled records of one agent; how many were new. Late records open, lease and end no session.

    Each record comes with a flag: whether it has this account's seal. Without the seal it is stored as `said`.
    """
    holder, clock = leases.actor_holder(actor), store.caller.clock
    caller = Caller(actor=actor, holder=holder, scope=scope, clock=clock, label=label)

    def body(tx: Tx) -> int:
        return sum(_keep(tx, heard, late=True, source="seen" if sealed else "said").new for heard, sealed in records)

    return store.engine.write(body, caller)


def _keep(tx: Tx, heard: Heard, *, late: bool, source: str = "seen") -> Kept:
    if heard.kind == "check":  # belongs to no session
        journal.append(tx, TYPES["check"], heard.agent, summary=heard.native, source=source, occurred_us=heard.at_us)
        return Kept("", True, [])
    session_id = _session(tx, heard, late=late)
    row = tx.one(SQL.lock_session, id=session_id)
    subject = _call(tx, heard, session_id) or session_id
    type = TYPES[heard.kind]
    new = tx.maybe(SQL.known, subject=subject, type=type, at_us=heard.at_us) is None
    if new:
        journal.append(
            tx,
            type,
            subject,
            session_id=session_id,
            state=heard.status,
            source=source,
            occurred_us=heard.at_us,
            scope=row["scope"],
            label=repositories.labelled(row),
            summary=heard.summary,
            data=_data(heard),
        )
    if late:
        if heard.kind == "prompt":
            tx.run(SQL.preview, id=session_id, preview=heard.summary)
    elif new:
        _stand(tx, heard, row)
    return Kept(session_id, new, [])


def _session(tx: Tx, heard: Heard, *, late: bool) -> str:
    """The session of this agent, by its native id or by its key. Adds the session if there is none."""
    row = agent_sessions.find(tx, heard.agent, heard.native)
    if row is not None:
        return str(row["session_id"])
    from standfast.record import nodes

    id = agent_sessions.by_key(tx, heard.key)
    if id is None:
        if late:
            id = _idle(tx, heard, "recorded after it ended")
        else:
            id = _idle(tx, heard, NO_PROMPT) if heard.kind == "start" else _open(tx, heard)
    id = id or agent_sessions.by_key(tx, heard.key)
    assert id is not None
    agent_sessions.bind(tx, heard.agent, heard.native, id, nodes.root(tx, id).id)
    return id


def _idle(tx: Tx, heard: Heard, reason: str) -> str:
    """Add a session whose agent does not work."""
    from standfast.record import nodes

    where: Row = {"cwd": heard.cwd, "created_us": heard.at_us, "label": tx.caller.label}
    id = agent_sessions.add(tx, heard.key, heard.agent, reason=reason, **where)
    nodes.add_root(tx, id)
    return id


def _open(tx: Tx, heard: Heard, key: str | None = None) -> str | None:
    """Open the session for the agent; None if another live process holds it."""
    from standfast.record.sessions import ownership

    wanted: Row = {
        "agent": heard.agent,
        "command": None,
        "cwd": heard.cwd,
        "actor": tx.caller.actor,
        **leases.new_lease(tx, LEASE_US),
    }
    try:
        return ownership.open_or_resume(tx, key or heard.key, wanted, alone=False, join=None).record.id
    except (Conflict, NotFound):
        return None


def _stand(tx: Tx, heard: Heard, row: Row) -> None:
    """Change the state of the session: the agent works, waits or has finished."""
    ours = row["state"] == "active" and row["holder"] == tx.caller.holder
    preview = heard.summary if heard.kind == "prompt" else None
    compacted = heard.kind == "start" and (heard.facts or {}).get("source") == "compact"  # in the middle of a turn
    if heard.kind in IDLE and heard.node is None and not compacted:
        if ours:
            _leave(tx, heard, row)
        return
    if ours:
        term = leases.new_lease(tx, LEASE_US)
        tx.run(SQL.extend, id=row["id"], fence=row["fence"], preview=preview, now_us=tx.now_us(), **term)
        return
    if heard.kind in OPENING:
        _open(tx, heard, row["id"])
    if preview is not None:
        tx.run(SQL.preview, id=row["id"], preview=preview)


def _leave(tx: Tx, heard: Heard, row: Row) -> None:
    """Complete the session until the next prompt, or leave it waiting if a person has to act first.

    So if an active session has no new records, its agent stopped in the middle of its work.
    """
    from standfast.record.sessions import ownership, queries

    whole = tx.one(queries.SQL.by_id, id=row["id"])
    reason = {"start": NO_PROMPT, "stop": "the turn is over"}.get(heard.kind) or (heard.facts or {}).get("reason")
    waits = heard.summary if heard.name == "StopFailure" else ownership.expected(tx, whole)
    state, type = ("waiting", "session.paused") if waits else ("completed", "session.completed")
    ownership.let_go(tx, whole, state, waits or reason, type)


def _call(tx: Tx, heard: Heard, session_id: str) -> str | None:
    """The id of the tool call's row; None for other records and for a call without an id."""
    if heard.kind not in ("call", "answer", "denied") or heard.call_id is None:
        return None
    calling = heard.kind == "call"
    row = tx.one(
        SQL.called,
        id=new_id("tcl"),
        session_id=session_id,
        call_id=heard.call_id,
        tool=heard.tool,
        status=heard.status,
        input=heard.input,
        output=heard.output,
        summary=heard.summary,
        exit_code=heard.exit_code,
        duration_us=heard.duration_us,
        called_us=heard.at_us if calling else None,
        answered_us=None if calling else heard.at_us,
        at_us=heard.at_us,
        now_us=tx.now_us(),
    )
    return str(row["id"])


def _data(heard: Heard) -> dict[str, serial.Json]:
    """Small facts for the journal. Arguments and results of tools are in their rows or in the transcript."""
    data: dict[str, serial.Json] = dict(heard.facts or {})
    for name in ("tool", "call_id", "exit_code", "node"):
        value = getattr(heard, name)
        if value is not None:
            data[name] = value
    return data
