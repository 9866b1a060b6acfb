"""Insert one batch in one transaction: its records, and the new position in their source.

After a crash either both are stored, or the next import reads the batch again. If two importers read one source, the
slower one finds a newer position and continues there. A record that is stored already, from this file or another one,
adds neither a message nor a tool call.

The journal gets one row per batch. Imported rows are `said`: the agent reported them and standfast did not see them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import Any, NamedTuple

from standfast import serial
from standfast.config.scope import Keyspace, Label
from standfast.core import journal, keys, repositories
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.ids import new_id
from standfast.interchange import agent_sessions
from standfast.interchange.transcripts.files import Importer, Piece, Place, Reader
from standfast.interchange.transcripts.model import Batch, Folded, Said, Thread, Used
from standfast.ledger import prices
from standfast.ledger.budgets.amounts import Amounts
from standfast.ledger.budgets.resource import Subjects, count
from standfast.record import nodes

SQL = load(__name__)

CHECKPOINTS_KEPT = 20
SETTLED_MAX = 100_000
"""Messages of a fork that are compared with its parent's, if the parent is imported later."""
_STRENGTH = {"unknown": 0, "pending": 0, "ok": 1, "cancelled": 2, "error": 3}
_MERGED = ("tool", "input", "summary", "called_us")
_NEWER = ("output", "exit_code", "duration_us")
_UNKNOWN = dict.fromkeys((*_MERGED, *_NEWER, "answered_us", "position", "import_offset"))


class Advance(NamedTuple):
    """A step through a source: the piece that was read, and the state of the source after it."""

    row: Row
    """The row of the source before the step."""
    importer: Importer
    piece: Piece
    place: Place
    reader: Reader
    raw: bytes

    @property
    def seq(self) -> int:
        return int(self.row["seq"])


class Written(NamedTuple):
    """The rows that a batch added, and the state of its reader."""

    carry: dict[str, Any]
    counts: dict[str, Any]
    session_id: str | None
    sessions: int
    messages: int
    calls: int


class _Home(NamedTuple):
    """The session and node of a conversation."""

    session_id: str
    node_id: str
    new: bool


def write(tx: Tx, batch: Batch, source: Advance, labels: dict[Thread, Label]) -> Written | None:
    """Write a batch and the new position of its source. None if another importer has moved the position."""
    tx.maybe(SQL.turn)
    in_place = source.importer.in_place
    homes = {thread: _home(tx, batch, thread, labels) for thread in batch.facts}
    carry = dict(source.reader.carry)
    known = _known(tx, batch)
    copied = _copied(tx, batch, carry, homes)
    fresh, revised = _sorted(batch, known, copied, in_place=in_place)
    counts = dict(source.reader.counts)
    counts["messages"] = counts.get("messages", 0) + len(fresh)
    counts["duplicates"] = counts.get("duplicates", 0) + len(batch.said) - len(fresh) - len(revised)
    session_id = _session_of(batch, homes)
    moved = tx.maybe(
        SQL.advance,
        seq=source.seq,
        generation=source.row["generation"],
        start=source.piece.start,
        upto=source.piece.upto,
        carry=_json(carry),
        counts=_json(counts),
        native_id=source.reader.native_id,
        session_id=session_id,
        note=source.row["note"] if source.row["state"] == "current" else None,
        **source.place._asdict(),
        first_us=batch.first_us,
        last_us=batch.last_us,
        now_us=tx.now_us(),
    )
    if moved is None:
        return None
    positions = {native: row["position"] for native, row in known.items()}
    positions |= _say(tx, batch.agent, fresh, homes, source.seq)
    for said in revised:
        tx.run(SQL.revise, now_us=tx.now_us(), **said._asdict())
    _retract(tx, batch, homes, positions)
    calls = _call(tx, batch, fresh, revised, homes, positions, source)
    _use(tx, batch, homes, source.seq)
    _fold(tx, batch.folded, fresh, homes, positions)
    _title(tx, batch, homes)
    _decide(tx, batch, homes)
    _touch(tx, fresh, homes)
    if source.importer.copies:
        _settle_forks(tx, batch, homes)
    _keep_raw(tx, source, changed=bool(fresh or revised or not in_place))
    _journal_change(tx, batch, source, session_id, len(fresh), calls)
    made = sum(home.new for thread, home in homes.items() if thread.node is None)
    return Written(carry, counts, session_id, made, len(fresh), calls)


# -- target session ----------------------------------------------------------------------------------------


def _home(tx: Tx, batch: Batch, thread: Thread, labels: dict[Thread, Label]) -> _Home:
    row = agent_sessions.find(tx, batch.agent, thread.native)
    if row is not None:
        return _Home(row["session_id"], row["node_id"], False)
    facts = batch.facts.get(thread, {})
    if thread.node is None:
        home = _session(tx, batch, thread, facts, labels.get(thread, tx.caller.label))
    else:
        owner = Thread(thread.session)
        root = _home(tx, batch, owner, labels | {owner: labels.get(thread, tx.caller.label)})
        node = nodes.open_at(tx, root.session_id, (thread.node,), (), title=facts.get("title"))
        home = _Home(root.session_id, node.id, True)
    own = _json({name: value for name, value in facts.items() if name != "forked_from"})
    forked_from = facts.get("forked_from")
    agent_sessions.bind(
        tx, batch.agent, thread.native, home.session_id, home.node_id, forked_from=forked_from, facts=own
    )
    return home


def _session(tx: Tx, batch: Batch, thread: Thread, facts: dict[str, Any], label: Label) -> _Home:
    """The session of a conversation. A hook may have added it before, under the same key."""
    key = keys.checked(f"{batch.agent}:{thread.session}", "a session's key")
    id = agent_sessions.by_key(tx, key)
    if id is not None:
        return _Home(id, nodes.root(tx, id).id, False)
    repositories.registered(tx, label)
    forked = facts.get("forked_from")
    id = agent_sessions.add(
        tx,
        key,
        batch.agent,
        cwd=facts.get("cwd"),
        reason=f"forked from {batch.agent}:{forked}" if forked else None,
        created_us=facts.get("started_us") or batch.first_us or tx.now_us(),
        label=label,
    )
    return _Home(id, nodes.add_root(tx, id).id, True)


def _session_of(batch: Batch, homes: dict[Thread, _Home]) -> str | None:
    threads: Iterable[Thread] = (said.thread for said in batch.said)
    for thread in (*threads, *homes):
        return homes[thread].session_id
    return None


# -- new records ------------------------------------------------------------------------------------------


def _known(tx: Tx, batch: Batch) -> dict[str, Row]:
    natives = {said.native for said in batch.said} | {native for _, native, _ in batch.retracted if native}
    if not natives:
        return {}
    return {row["native"]: row for row in tx.all(SQL.known, natives=json.dumps(sorted(natives)))}


def _copied(tx: Tx, batch: Batch, carry: dict[str, Any], homes: dict[Thread, _Home]) -> int:
    """How many messages at the start of a fork repeat its parent's messages, in order.

    `carry["copy_of"]` names the parent until the first message that differs. While the parent is not imported, all
    messages count as new. The import of the parent then deletes the repeated ones (`_settle_forks`).
    """
    parent = carry.get("copy_of")
    if parent is None or not batch.said:
        return 0
    row = agent_sessions.find(tx, batch.agent, parent)
    if row is None:
        carry["late"] = True
        return 0
    if carry.get("late"):
        _take_back(tx, homes[batch.said[0].thread].node_id, row, carry)
        if carry.get("late") or carry.get("copy_of") is None:
            return 0  # the fork's own messages are stored already
    position = carry.get("copied", 0)
    theirs = tx.all(SQL.said_behind, node_id=row["node_id"], position=position, limit=len(batch.said))
    count = 0
    for said, their in zip(batch.said, theirs, strict=False):
        if said.hash != their["hash"]:
            break
        position, count = their["position"], count + 1
    carry["copied"] = position
    if count < len(batch.said):
        carry["copy_of"] = None
    return count


def _settle_forks(tx: Tx, batch: Batch, homes: dict[Thread, _Home]) -> None:
    """Delete repeated messages of forks that were imported before their parent."""
    for thread, home in homes.items():
        for fork in tx.all(SQL.forks, agent=batch.agent, parent=thread.native):
            carry, counts = json.loads(fork["carry"]), json.loads(fork["counts"])
            if carry.get("late") and carry.get("copy_of") == thread.native:
                taken = _take_back(tx, fork["node_id"], home._asdict(), carry)
                counts["messages"] = counts.get("messages", 0) - taken
                counts["duplicates"] = counts.get("duplicates", 0) + taken
                tx.run(SQL.settle_fork, seq=fork["seq"], carry=_json(carry), counts=_json(counts))


def _take_back(tx: Tx, node_id: str, parent: Row, carry: dict[str, Any]) -> int:
    """Delete the stored messages of a fork that repeat its parent's, in order; how many were deleted.

    `carry["late"]` stays set until a message differs or the fork has no more messages.
    """
    position = carry.get("copied", 0)
    theirs = tx.all(SQL.said_behind, node_id=parent["node_id"], position=position, limit=SETTLED_MAX)
    if not theirs:
        return 0
    ours = tx.all(SQL.said_behind, node_id=node_id, position=0, limit=SETTLED_MAX)
    taken = upto = 0
    differs = False
    for our, their in zip(ours, theirs, strict=False):
        if our["hash"] != their["hash"]:
            differs = True
            break
        upto, position, taken = our["position"], their["position"], taken + 1
    if taken:
        tx.run(SQL.take_back_calls, node_id=node_id, position=upto, session_id=parent["session_id"])
        tx.run(SQL.take_back, node_id=node_id, position=upto)
    carry["copied"] = position
    if differs:
        carry["copy_of"] = None
    if differs or taken == len(ours):
        carry["late"] = False
    return taken


def _sorted(batch: Batch, known: dict[str, Row], copied: int, *, in_place: bool) -> tuple[list[Said], list[Said]]:
    """The messages that are new, and those that changed."""
    last: dict[str, Said] = {}
    for said in batch.said[copied:]:
        if said.native not in last or in_place:
            last[said.native] = said  # in place: its last record counts, at the position of its first record
    fresh = [said for native, said in last.items() if native not in known]
    if not in_place:
        return fresh, []
    return fresh, [said for native, said in last.items() if native in known and _changed(known[native], said)]


def _changed(row: Row, said: Said) -> bool:
    """Whether the text differs from the stored text, or the transcript has the message again after a retraction."""
    return row["hash"] != said.hash or row["retracted_us"] is not None


# -- writes ------------------------------------------------------------------------------------------------


def _say(tx: Tx, agent: str, fresh: list[Said], homes: dict[Thread, _Home], seq: int) -> dict[str, int]:
    """Insert the messages; their positions by their native ids."""
    each: dict[str, int] = {}
    for said in fresh:
        node_id = homes[said.thread].node_id
        each[node_id] = each.get(node_id, 0) + 1
    following = {
        node_id: tx.one(SQL.take_positions, node_id=node_id, count=count)["position"] for node_id, count in each.items()
    }
    placed: dict[str, int] = {}
    common: Row = {"actor": agent, "now_us": tx.now_us(), "import_seq": seq}

    def row(id: str, said: Said) -> Row:
        session_id, node_id, _ = homes[said.thread]
        placed[said.native] = position = following[node_id]
        following[node_id] = position + 1
        where: Row = {"id": id, "session_id": session_id, "node_id": node_id, "position": position}
        return {**common, **where, **said._asdict(), "import_offset": said.offset}

    tx.many(SQL.message, (row(new_id("msg"), one) for one in fresh))
    return placed


def _retract(tx: Tx, batch: Batch, homes: dict[Thread, _Home], positions: dict[str, int]) -> None:
    """Mark the messages that an agent retracted. A retracted message that comes again counts again."""
    for thread, native, upto in batch.retracted:
        position = 1 if native is None else positions.get(native, 1)
        tx.run(SQL.retract, node_id=homes[thread].node_id, position=position, now_us=tx.now_us())
        for said in batch.said[upto:]:
            tx.run(SQL.restore, native=said.native)


def _call(
    tx: Tx,
    batch: Batch,
    fresh: list[Said],
    revised: list[Said],
    homes: dict[Thread, _Home],
    positions: dict[str, int],
    source: Advance,
) -> int:
    """Insert or complete tool calls: one row for each call id, also if several records report the call."""
    reporting = {said.native for said in (*fresh, *revised)}
    rows: dict[tuple[str, str], Row] = {}
    for call in batch.calls:
        native = call["native"]
        if native is not None and native not in reporting and not source.importer.in_place:
            continue  # the record is a copy of one that is stored already
        session_id, node_id, _ = homes[call["thread"]]
        known: Row = {"session_id": session_id, "call_id": call["call_id"], "node_id": node_id, "status": "unknown"}
        _merge(rows.setdefault((session_id, call["call_id"]), {**_UNKNOWN, **known}), call, positions)
    now_us = tx.now_us()

    def whole(row: Row) -> Row:
        occurred_us = row["called_us"] or row["answered_us"] or batch.last_us or now_us
        return {**row, "id": new_id("tcl"), "occurred_us": occurred_us, "now_us": now_us, "import_seq": source.seq}

    tx.many(SQL.tool_call, map(whole, rows.values()))
    return len(rows)


def _merge(row: Row, call: dict[str, Any], positions: dict[str, int]) -> None:
    for name in (*_MERGED, "answered_us"):
        if row[name] is None:
            row[name] = call.get(name)
    for name in _NEWER:
        if call.get(name) is not None:
            row[name] = call[name]
    status = call.get("status", "unknown")
    if _STRENGTH[status] >= _STRENGTH[row["status"]]:
        row["status"] = status
    if row["position"] is None:
        row["position"] = positions.get(call["native"])
        row["import_offset"] = call["import_offset"]


def _use(tx: Tx, batch: Batch, homes: dict[Thread, _Home], seq: int) -> None:
    now_us = tx.now_us()
    reported = {used.thread for used in batch.used.values() if used.cost_microusd is not None}

    def row(used: Used) -> Row:
        home, counted = homes[used.thread], used._asdict()
        label = None
        if used.thread not in reported:  # otherwise the agent reports one cost for all its responses
            cached, written = used.cached_input_tokens, used.cache_write_tokens
            fresh = prices.fresh_input(used.model, used.input_tokens, cached, written)
            counts = {"fresh": fresh, "cached": cached, "cache_write": written, "output": used.output_tokens}
            counted["cost_microusd"], label = prices.list_price(used.model, **counts) or (None, None)
        where: Row = {"id": new_id("usg"), "session_id": home.session_id, "node_id": home.node_id, "import_seq": seq}
        return {**counted, **where, "price": label, "now_us": now_us}

    limited = tx.maybe(SQL.limited) is not None
    before = _counted(tx, batch) if limited else {}
    for statement, last_wins in ((SQL.usage_largest, False), (SQL.usage_newest, True)):
        chosen = [used for used in batch.used.values() if used.last_wins is last_wins]
        tx.many(statement, map(row, chosen))
    for response in batch.dropped:
        tx.run(SQL.drop_usage, response=response)
    if limited:
        _count(tx, before, _counted(tx, batch))


def _counted(tx: Tx, batch: Batch) -> dict[str, Row]:
    """The stored usage of each response of the batch."""
    rows = (tx.maybe(SQL.counted, response=response) for response in (*batch.used, *batch.dropped))
    return {row["response"]: row for row in rows if row is not None}


def _count(tx: Tx, before: dict[str, Row], after: dict[str, Row]) -> None:
    """Book the usage that this batch added in the budgets of its sessions and agents."""
    added: dict[str, Row] = {}
    for response in before.keys() | after.keys():
        row = after.get(response) or before[response]
        session = added.setdefault(row["session_id"], {**row, **dict.fromkeys(_BOOKED, 0)})
        for sign, rows in ((1, after), (-1, before)):
            for name in _BOOKED:
                session[name] += sign * (rows[response][name] or 0) if response in rows else 0
    for row in added.values():
        if any(row[name] for name in _BOOKED):
            agent = f"agent:{row['agent']}" if row["agent"] else ""
            subjects = Subjects("", f"session:{row['session_key']}", agent, row["session_id"])
            count(tx, row["scope"], subjects, Amounts(row["tokens"], row["cost_microusd"], row["calls"]))


_BOOKED = ("tokens", "cost_microusd", "calls")


def _fold(
    tx: Tx, folded: list[Folded], fresh: list[Said], homes: dict[Thread, _Home], positions: dict[str, int]
) -> None:
    """Write compactions as checkpoints. The summary is also a message, because checkpoints may be deleted."""
    new = {said.native for said in fresh}
    for fold in folded:
        if fold.native not in new:
            continue
        home = homes[fold.thread]
        words: Row = {"summary": fold.summary, "to_position": positions[fold.native], "node_id": home.node_id}
        if fold.summary is not None:
            size = len(fold.summary.encode())
            if tx.maybe(SQL.word_checkpoint, size_bytes=size, **words) is not None:
                continue
        data = None if fold.facts is None else serial.dumps(fold.facts, what="data")
        tx.run(
            SQL.checkpoint,
            id=new_id("chk"),
            session_id=home.session_id,
            data=data,
            size_bytes=len((fold.summary or "").encode()) + len(data or ""),
            created_us=tx.now_us(),
            **words,
        )
        tx.run(SQL.trim_checkpoints, node_id=home.node_id, keep=CHECKPOINTS_KEPT)


def _title(tx: Tx, batch: Batch, homes: dict[Thread, _Home]) -> None:
    for native, thread, title in batch.titles:
        session_id = homes[thread].session_id if thread in homes else None
        if native is not None:
            row = tx.maybe(SQL.title_of_message, native=native)
            session_id = row["session_id"] if row is not None else None
        if session_id is not None:
            tx.run(SQL.title, session_id=session_id, title=serial.clean(title, 200))


def _decide(tx: Tx, batch: Batch, homes: dict[Thread, _Home]) -> None:
    """Write the decisions and values of a session. The decisions are `done`: no agent has to act on them."""
    for thread, what, why, outcome in batch.decisions:
        home = homes[thread]
        tx.run(
            SQL.decision,
            id=new_id("dec"),
            session_id=home.session_id,
            node_id=home.node_id,
            what=what,
            why=why,
            outcome=outcome,
            identity=serial.hash([what, None]),
            agent=batch.agent,
            actor=tx.caller.actor,
            tags=",imported,",
            **_keyspace(tx, home.session_id)._asdict(),
            created_us=batch.last_us or tx.now_us(),
        )
    for thread, key, value in batch.values:
        tx.run(
            SQL.value,
            session_id=homes[thread].session_id,
            key=key,
            value=value,
            actor=tx.caller.actor,
            now_us=tx.now_us(),
        )


def _keyspace(tx: Tx, session_id: str) -> Keyspace:
    """The scope and repository of a session's decisions."""
    row = agent_sessions.place(tx, session_id)
    assert row is not None
    return repositories.keyspace(tx, row["scope"], repositories.labelled(row))


def _touch(tx: Tx, fresh: list[Said], homes: dict[Thread, _Home]) -> None:
    last: dict[str, int] = {}
    previews: dict[str, str] = {}
    for said in fresh:
        session_id = homes[said.thread].session_id
        last[session_id] = max(last.get(session_id, 0), said.occurred_us)
        if said.role == "user" and said.thread.node is None and session_id not in previews:
            previews[session_id] = serial.clean(said.content[:600], 200)
    for session_id, last_us in last.items():
        tx.run(SQL.touch_session, id=session_id, preview=previews.get(session_id), last_us=last_us)


def _keep_raw(tx: Tx, source: Advance, *, changed: bool) -> None:
    if source.raw and changed:
        tx.run(
            SQL.raw,
            import_seq=source.seq,
            generation=source.row["generation"],
            from_offset=source.piece.start,
            upto=source.piece.upto,
            records=len(source.piece.lines),
            raw=source.raw,
            now_us=tx.now_us(),
        )


def _journal_change(tx: Tx, batch: Batch, source: Advance, session_id: str | None, messages: int, calls: int) -> None:
    if not (messages or calls or source.raw):
        return
    whose = agent_sessions.place(tx, session_id) if session_id is not None else None
    piece, name = source.piece, os.path.basename(source.row["path"])
    journal.append(
        tx,
        "import.recorded",
        source.row["id"],
        session_id=session_id,
        source="said",
        scope=whose["scope"] if whose is not None else None,
        label=repositories.labelled(whose) if whose is not None else None,
        summary=f"{batch.agent}: {messages} messages, {calls} tool calls from {name}",
        data={
            "from": piece.start,
            "upto": piece.upto,
            "generation": source.row["generation"],
            "messages": messages,
        },
    )


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"))
