"""Sessions: work that outlives the processes that do it.

    (nothing) ──open──▶ active ──leave the block──▶ completed ─┐
                         │ ├──an exception──▶ failed ──────────┤
                         │ └──pause, in doubt, approval──▶ waiting
                         │                                     │
                         ◀───────────── open again ────────────┘

A session is known by its key in its scope; opening the key again resumes it. It is held by a
lease: one owner at a time, and a fence that grows with each opening. `crashed` is no state of
the table: it is an active session whose holder is gone or whose lease ran out, and whoever
opens it next takes it over and journals that.

This room holds the verbs on sessions by key or id; `live` is what `with sf.session(key)` gives.
"""

from __future__ import annotations

import signal
from typing import NamedTuple

from standfast import crash, serial
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.db.store import Room, query, verb
from standfast.errors import Conflict, InProgress, InvalidInput, KeyConflict, NotFound, StandfastError
from standfast.footings import journal, keys, leases
from standfast.footings.journal import Receipt
from standfast.ids import is_id, like_suffix, new_id
from standfast.record import messages, nodes
from standfast.record.messages import Message
from standfast.record.nodes import Node

SQL = load(__name__)

leases.renewed("session")

STATES = ("active", "waiting", "completed", "failed")
ENDS = {"waiting": "session.paused", "completed": "session.completed", "failed": "session.failed"}
REASON_MAX = 500
PAGE_MAX = 1000
IN_DOUBT_MAX = 100
_FAR_FUTURE = 2**62
_TERM = ("holder", "lease_until_us", "lease_boot", "lease_mono_us", "lease_for_us")


class SessionRecord(NamedTuple):
    """A session as it stands. `standing` is how its lease stands: live, free, over or gone."""

    id: str
    scope: str
    key: str
    state: str
    reason: str | None
    agent: str | None
    preview: str | None
    command: tuple[str, ...] | None
    cwd: str | None
    cursor: serial.Json
    parent_id: str | None
    cut_node_id: str | None
    cut_position: int | None
    openings: int
    holder: str | None
    actor: str | None
    lease_until_us: int | None
    fence: int
    created_us: int
    updated_us: int
    ended_us: int | None
    standing: str
    receipt: Receipt | None = None

    @property
    def crashed(self) -> bool:
        """Active, and its holder is gone or silent: derived, never stored."""
        return self.state == "active" and self.standing in ("gone", "over")

    @property
    def place(self) -> str:
        """Where a list goes on: `after=`."""
        return f"{self.updated_us}:{self.id}"


class InDoubt(NamedTuple):
    """An effect of the session that was sent, and nobody knows whether it arrived."""

    id: str
    tool: str
    key: str
    dispatched_us: int | None


class OpenDecision(NamedTuple):
    """A decision that was taken and whose outcome is not recorded."""

    id: str
    what: str


class Resumed(NamedTuple):
    """What was found when a session was opened again."""

    state: str
    """As it was left: active, waiting, completed or failed."""
    crashed: bool
    """It was active and its holder was gone, or had let its lease run out."""
    reason: str | None
    since_us: int
    """Since when it stood so; for a crash, the last sign of life."""
    by: str
    """Who had it last, as people say it."""
    openings: int
    """How often it had been opened before."""
    steps: int
    effects: int
    messages: int
    in_doubt: tuple[InDoubt, ...]
    decisions: tuple[OpenDecision, ...]


class Opened(NamedTuple):
    """An opening as the store wrote it: what the session is now, and what it was."""

    record: SessionRecord
    before: SessionRecord | None
    """None if it is new."""
    root: Node
    lineage: nodes.Lineage


class Sessions(Room):
    """Sessions by key or id: open, look, say, fork, end."""

    __slots__ = ()

    @verb
    def open(
        self,
        tx: Tx,
        key: str,
        *,
        agent: str | None = None,
        command: tuple[str, ...] | None = None,
        cwd: str | None = None,
        for_us: int | None = None,
        alone: bool = False,
        join: str | None = None,
    ) -> Opened | StandfastError:
        """Own the session of this key; make it if there is none. An actor that owns it keeps its fence.

        `alone` says that no other part of this process has it open; `join` names a session that
        was opened for this very process (`session run`): then this is that opening, not another.
        Raises InProgress naming the holder while somebody alive has it.
        """
        crash.point("session.before_open")
        wanted: Row = {
            "agent": agent,
            "command": None if command is None else serial.dumps(list(command), what="command"),
            "cwd": cwd,
            "actor": tx.caller.actor,
            **leases.term_of(tx, for_us),
        }
        found = _find_to_open(tx, key)
        if isinstance(found, StandfastError):
            return found
        if found is None:
            made = tx.maybe(SQL.create, id=new_id("ses"), scope=tx.caller.scope, key=key, now_us=tx.now_us(), **wanted)
            if made is not None:
                return _new(tx, made)
            found = tx.one(SQL.by_key, scope=tx.caller.scope, key=key)  # made by another since we looked
        row = tx.one(SQL.by_id_for_update, id=found["id"])
        return _open_again(tx, row, wanted, alone=alone, joins=join in (row["id"], row["key"]))

    @verb
    def end(
        self,
        tx: Tx,
        session: str,
        state: str = "completed",
        *,
        reason: str | None = None,
        fence: int | None = None,
        holder: str | None = None,
    ) -> SessionRecord | StandfastError:
        """Give it back: completed, failed or waiting. For its owner, or for anybody once its owner is gone.

        With `fence`, LeaseLost if another opening came since. Raises InProgress while another has it.
        """
        if state not in ENDS:
            return InvalidInput(f"a session ends as {', '.join(ENDS)}, not as {state!r}")
        row = _find(tx, session)
        if isinstance(row, StandfastError):
            return row
        row = tx.one(SQL.by_id_for_update, id=row["id"])
        mine = row["holder"] == (holder or tx.caller.holder)
        if fence is not None and not (mine and row["fence"] == fence):
            return leases.lost(f"session {row['key']!r}", row, fence)
        if not mine and leases.stand(tx, row).live:
            return _held(tx, row)
        if row["state"] == state and row["holder"] is None:
            return _record(tx, row)
        crash.point("session.before_end")
        return _let_go(tx, row, state, reason, ENDS[state])

    @verb
    def exited(self, tx: Tx, session: str, *, holder: str, code: int) -> SessionRecord | StandfastError:
        """The process `holder` has ended with this exit code, a negative one for a signal: end what it held.

        A session it ended itself, or that somebody else has by now, stays as it is.
        """
        row = _find(tx, session)
        if isinstance(row, StandfastError):
            return row
        row = tx.one(SQL.by_id_for_update, id=row["id"])
        if row["holder"] != holder:
            return _record(tx, row)
        crash.point("session.before_end")
        state, reason = _exit_outcome(code)
        expected = _expected(tx, row["id"]) if state == "failed" else None
        if expected is not None:
            state, reason = "waiting", f"{reason}; {expected}"
        return _let_go(tx, row, state, reason, ENDS[state])

    def keep(self) -> None:
        """Renew what the caller holds from now on, until the store is closed."""
        leases.renewer(self.store).start()

    @verb
    def take(self, tx: Tx, session: str) -> SessionRecord | StandfastError:
        """End somebody's hold on it, alive or not: the next to open it gets it, the old holder is refused."""
        row = _find(tx, session)
        if isinstance(row, StandfastError):
            return row
        row = tx.one(SQL.by_id_for_update, id=row["id"])
        if row["holder"] is None:
            return Conflict(f"session {row['key']!r} is held by nobody", f"standfast session show {row['key']}")
        reason = f"taken from {leases.who(row['holder'])} by {tx.caller.actor}"
        return _let_go(tx, row, "waiting", reason, "session.taken", grow=1, data={"holder": row["holder"]})

    @verb
    def fork(self, tx: Tx, session: str, new_key: str, *, at: int | None = None) -> SessionRecord | StandfastError:
        """Another session that shares the first `at` messages, and the steps and effects from before them.

        Nothing is copied. Without `at`, all there is now. The same fork again is the one there is;
        raises KeyConflict if the new key names something else.
        """
        keys.checked(new_key, "the new key")
        parent = _find(tx, session)
        if isinstance(parent, StandfastError):
            return parent
        return _fork(tx, parent, new_key, at)

    @verb
    def say(
        self,
        tx: Tx,
        session: str,
        role: str,
        content: serial.Json,
        *,
        key: str | None = None,
        node: str | None = None,
        occurred_us: int | None = None,
    ) -> Message | StandfastError:
        """Put one message at the end of a session, or of its sub-agent `node`. Anyone may.

        With a key it is said once. Raises KeyConflict if the key said something else.
        """
        said = messages.utterance(role, content, key=key, occurred_us=occurred_us, redact=self.store.redact)
        path = nodes.path_of(node)
        row = _find(tx, session)
        if isinstance(row, StandfastError):
            return row
        lineage = nodes.lineage(tx, row["id"])
        spoken_in = nodes.open_at(tx, row["id"], path, lineage)
        return messages.say(tx, row["id"], nodes.segments(tx, spoken_in, path, lineage), said)

    @query
    def messages(
        self, tx: Tx, session: str, *, last: int = 50, after: int | None = None, node: str | None = None
    ) -> list[Message] | StandfastError:
        """The newest `last` in order, without reading the rest; or the next ones behind position `after`."""
        row = _find(tx, session)
        if isinstance(row, StandfastError):
            return row
        path = nodes.path_of(node)
        found = nodes.find(tx, row["id"], path)
        if found is None:
            return nodes.unknown(path, row["key"])
        segments = nodes.segments(tx, found, path, nodes.lineage(tx, row["id"]))
        return messages.page(tx, segments, last=last, after=after)

    @query
    def nodes(self, tx: Tx, session: str) -> list[Node] | StandfastError:
        """The root and the sub-agents, in the order they were made."""
        row = _find(tx, session)
        return row if isinstance(row, StandfastError) else nodes.all_of(tx, row["id"])

    @query
    def get(self, tx: Tx, session: str) -> SessionRecord | StandfastError:
        """By key, id, or the end of an id. Raises NotFound."""
        row = _find(tx, session)
        return row if isinstance(row, StandfastError) else _record(tx, row)

    @query
    def list(
        self, tx: Tx, *, state: str | None = None, everywhere: bool = False, after: str | None = None, limit: int = 50
    ) -> list[SessionRecord] | StandfastError:
        """The newest first; `after` is the `place` of the last one you have. `state` may be `crashed`."""
        if state is not None and state not in (*STATES, "crashed"):
            return InvalidInput(f"there is no state {state!r}", f"one of: {', '.join(STATES)}, crashed")
        asked: Row = {"limit": max(1, min(limit, PAGE_MAX)), "scope": tx.caller.scope}
        if state == "crashed":
            return _crashed(tx, everywhere, asked)
        before_us, before_id = _place(after)
        asked |= {"state": state or "", "before_us": before_us, "before_id": before_id}
        rows = tx.all(SQL.page_everywhere if everywhere else SQL.page, **asked)
        return [_record(tx, row) for row in rows]

    @query
    def found(self, tx: Tx, before: SessionRecord) -> Resumed:
        """What a resumed session holds, told by counting; messages are not read."""
        counts = tx.one(SQL.counts, id=before.id)
        return Resumed(
            state=before.state,
            crashed=before.crashed,
            reason=before.reason,
            since_us=_alive_us(before) if before.crashed else before.updated_us,
            by=leases.who(before.holder) if before.holder else before.actor or "nobody",
            openings=before.openings,
            steps=counts["steps"],
            effects=counts["effects"],
            messages=int(counts["messages"]),
            in_doubt=_in_doubt(tx, before.id),
            decisions=tuple(
                OpenDecision(row["id"], row["what"])
                for row in tx.all(SQL.open_decisions, id=before.id, limit=IN_DOUBT_MAX)
            ),
        )


# -- opening ---------------------------------------------------------------------------------------


def _find_to_open(tx: Tx, key: str) -> Row | StandfastError | None:
    """The row of a key, or of an id: an id that is unknown is no key for a new session."""
    if is_id(key):
        return tx.maybe(SQL.by_id, id=key) or _unknown(key)
    return tx.maybe(SQL.by_key, scope=tx.caller.scope, key=keys.checked(key, "a session's key"))


def _new(tx: Tx, row: Row) -> Opened:
    root = nodes.add_root(tx, row["id"])
    return Opened(_record(tx, row, _told(tx, row, "session.opened")), None, root, ())


def _open_again(tx: Tx, row: Row, wanted: Row, *, alone: bool, joins: bool) -> Opened | StandfastError:
    standing = leases.stand(tx, row)
    ours = row["holder"] == tx.caller.holder
    before = _record(tx, row)
    if standing.live and ours and (joins and alone if row["holder"].startswith("p:") else True):
        term = {name: wanted[name] for name in _TERM}
        kept = tx.one(SQL.extend, id=row["id"], fence=row["fence"], **term)
        return _opened(tx, kept, _found_by_this_opening(tx, before) if joins else before, None)
    if standing.live and not (ours and alone):
        return _held(tx, row)
    taken = tx.one(SQL.take_over, id=row["id"], fence=row["fence"], now_us=tx.now_us(), **wanted)
    return _opened(tx, taken, before, _told_of(tx, taken, before))


def _told_of(tx: Tx, taken: Row, before: SessionRecord) -> Receipt:
    """What was found is journalled with the opening: a crash is seen here, and nowhere stored."""
    if before.crashed:
        data = {"holder": before.holder, "was": before.standing, "since_us": _alive_us(before)}
        return _told(tx, taken, "session.taken_over", data=data)
    data = {"state": before.state, "reason": before.reason, "by": before.actor, "since_us": before.updated_us}
    return _told(tx, taken, "session.resumed", data=data)


def _found_by_this_opening(tx: Tx, now: SessionRecord) -> SessionRecord | None:
    """What the session was before the opening that is joined, as the journal tells; None if it was new."""
    told = tx.maybe(SQL.opened, id=now.id)
    if told is None or told["type"] == "session.opened":
        return None
    data = serial.read(told["data"])
    was: Row = {"openings": now.openings - 1, "updated_us": data["since_us"], "lease_until_us": None}
    if told["type"] == "session.taken_over":
        return now._replace(state="active", holder=data["holder"], standing=data["was"], **was)
    return now._replace(
        state=data["state"], reason=data["reason"], actor=data["by"], holder=None, standing="free", **was
    )


def _alive_us(crashed: SessionRecord) -> int:
    """The last sign of life: when it was opened, or its lease renewed."""
    if crashed.lease_until_us is None:
        return crashed.updated_us
    return max(crashed.updated_us, crashed.lease_until_us - leases.default_us(crashed.holder or ""))


def _opened(tx: Tx, row: Row, before: SessionRecord | None, receipt: Receipt | None) -> Opened:
    lineage = nodes.lineage(tx, row["id"]) if row["parent_id"] is not None else ()
    return Opened(_record(tx, row, receipt), before, nodes.root(tx, row["id"]), lineage)


def _held(tx: Tx, row: Row) -> InProgress:
    refusal = leases.in_progress(tx, f"session {row['key']!r}", row)
    own = row["holder"] == tx.caller.holder
    return InProgress(
        refusal.message + (" (this very process: another thread, or a block that was not left)" if own else ""),
        f"wait for it to end; to end its hold: standfast session take {row['key']}",
    )


def _let_go(
    tx: Tx, row: Row, state: str, reason: str | None, type: str, *, grow: int = 0, data: serial.Json = None
) -> SessionRecord:
    reason = None if reason is None else serial.clean(reason, REASON_MAX)
    ended = tx.one(
        SQL.let_go,
        id=row["id"],
        fence=row["fence"],
        grow=grow,
        state=state,
        reason=reason,
        now_us=tx.now_us(),
        ended_us=None if state == "waiting" else tx.now_us(),
    )
    return _record(tx, ended, _told(tx, ended, type, data=data))


def _exit_outcome(code: int) -> tuple[str, str | None]:
    """How a command's end leaves its session; Ctrl-C is no failure, somebody will come back."""
    if code == 0:
        return "completed", None
    if code in (-signal.SIGINT, 128 + signal.SIGINT):
        return "waiting", "interrupted"
    if code > 0:
        return "failed", f"exit code {code}"
    return "failed", f"ended by {_signal_name(-code)}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _expected(tx: Tx, session_id: str) -> str | None:
    """What somebody has to settle before the session can go on."""
    asked = tx.maybe(SQL.asked, id=session_id)
    if asked is not None:
        return f"{asked['tool']} waits for a yes"
    unknown = _in_doubt(tx, session_id)
    return f"{unknown[0].tool} is in doubt" if unknown else None


def _in_doubt(tx: Tx, session_id: str) -> tuple[InDoubt, ...]:
    sent = tx.all(SQL.dispatched, id=session_id, limit=IN_DOUBT_MAX)
    unknown = [row for row in sent if row["gave_up_us"] is not None or not leases.stand(tx, row).live]
    return tuple(InDoubt(*(row[name] for name in InDoubt._fields)) for row in unknown)


def _told(tx: Tx, row: Row, type: str, *, data: serial.Json = None) -> Receipt:
    summary = f"{row['key']}: {row['reason']}" if row["reason"] else row["key"]
    return journal.append(tx, type, row["id"], session_id=row["id"], state=row["state"], summary=summary, data=data)


# -- forking ---------------------------------------------------------------------------------------


def _fork(tx: Tx, parent: Row, new_key: str, at: int | None) -> SessionRecord | StandfastError:
    root = nodes.root(tx, parent["id"])
    position = root.next_position - 1 if at is None else at
    if not 0 <= position < root.next_position:
        return InvalidInput(
            f"session {parent['key']!r} has no position {position}: it has {root.next_position - 1} messages",
            "at is the last message the fork shares; 0 shares none",
        )
    cut_seq = _cut_seq(tx, root, position, parent)
    made = tx.maybe(
        SQL.fork,
        id=new_id("ses"),
        scope=parent["scope"],
        key=new_key,
        reason=f"forked from {parent['key']} at {position}",
        agent=parent["agent"],
        preview=parent["preview"],
        cursor=parent["cursor"] if at is None else _cursor_at(tx, parent["id"], cut_seq),
        parent_id=parent["id"],
        cut_node_id=root.id,
        cut_position=position,
        cut_seq=cut_seq,
        actor=tx.caller.actor,
        now_us=tx.now_us(),
    )
    if made is None:
        return _forked_before(tx, parent, new_key, position if at is not None else None)
    nodes.add_root(tx, made["id"], first_position=position + 1)
    return _record(tx, made, _told(tx, made, "session.forked", data={"parent": parent["id"], "position": position}))


def _cut_seq(tx: Tx, root: Node, position: int, parent: Row) -> int:
    """The journal's last row before the cut: before the first message that is not shared."""
    after = tx.one(SQL.seq_of_message, node_id=root.id, position=position + 1)["seq"]
    if after is not None:
        return int(after) - 1
    if position + 1 < root.first_position:  # the cut lies before the parent's own cut
        return min(int(parent["cut_seq"]), _cut_in_ancestors(tx, parent, position))
    return int(tx.one(SQL.last_seq)["seq"])


def _cut_in_ancestors(tx: Tx, parent: Row, position: int) -> int:
    for session_id, cut_seq in nodes.lineage(tx, parent["id"]):
        root = nodes.root(tx, session_id)
        after = tx.one(SQL.seq_of_message, node_id=root.id, position=position + 1)["seq"]
        if after is not None:
            return min(int(after) - 1, cut_seq)
    return int(parent["cut_seq"])


def _cursor_at(tx: Tx, session_id: str, cut_seq: int) -> str | None:
    row = tx.maybe(SQL.cursor_at, id=session_id, cut_seq=cut_seq)
    return None if row is None else serial.canonical(serial.read(row["data"])["cursor"])


def _forked_before(tx: Tx, parent: Row, new_key: str, position: int | None) -> SessionRecord | StandfastError:
    there = tx.one(SQL.by_key, scope=parent["scope"], key=new_key)
    if there["parent_id"] == parent["id"] and position in (None, there["cut_position"]):
        return _record(tx, there)
    return KeyConflict(f"there is already a session {new_key!r}, and it is another", "fork to a new key")


# -- finding ---------------------------------------------------------------------------------------


def _find(tx: Tx, session: str) -> Row | StandfastError:
    """By key in this scope, by id, or by the end of an id."""
    row = tx.maybe(SQL.by_key, scope=tx.caller.scope, key=keys.checked(session, "a session's key"))
    if row is None and is_id(session):
        row = tx.maybe(SQL.by_id, id=session)
    suffix = like_suffix(session, prefix="ses") if row is None else None
    if suffix is not None:
        rows = tx.all(SQL.by_suffix, pattern=f"%{suffix}")
        if len(rows) > 1:
            return InvalidInput(f"{session!r} is the end of more than one session's id", "give more of it")
        row = rows[0] if rows else None
    return row if row is not None else _unknown(session)


def _unknown(session: str) -> NotFound:
    return NotFound(
        f"there is no session {serial.clean(session, 80)!r} in this scope",
        "standfast session list    (--all: every scope)",
    )


def _crashed(tx: Tx, everywhere: bool, asked: Row) -> list[SessionRecord]:
    """Pages of held sessions, judged one by one until `limit` are found."""
    found: list[SessionRecord] = []
    after_us = -1
    while len(found) < asked["limit"]:
        rows = tx.all(SQL.held, scope=asked["scope"], everywhere=int(everywhere), after_us=after_us, limit=PAGE_MAX)
        found += [record for row in rows if (record := _record(tx, row)).crashed]
        if len(rows) < PAGE_MAX:
            break
        after_us = rows[-1]["updated_us"]
    return found[: asked["limit"]]


def _place(after: str | None) -> tuple[int, str]:
    if after is None:
        return _FAR_FUTURE, ""
    time_us, _, id = after.partition(":")
    if not time_us.isdigit() or not is_id(id):
        raise InvalidInput(
            f"{serial.clean(after, 60)!r} is not a place in this list", "use the `next` of the last page"
        )
    return int(time_us), id


def _record(tx: Tx, row: Row, receipt: Receipt | None = None) -> SessionRecord:
    command = serial.read(row["command"])
    derived = {
        "command": None if command is None else tuple(command),
        "cursor": serial.read(row["cursor"]),
        "standing": leases.stand(tx, row).state,
    }
    fields = {name: derived[name] if name in derived else row[name] for name in SessionRecord._fields[:-1]}
    return SessionRecord(**fields, receipt=receipt)
