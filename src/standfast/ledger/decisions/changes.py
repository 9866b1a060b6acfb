"""One decision inside a transaction: written, found, closed."""

from __future__ import annotations

from standfast import hints, serial
from standfast.config.scope import Keyspace, Label
from standfast.core import journal, naming, removed, repositories
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.errors import Conflict, IllegalTransition, NotFound
from standfast.ids import is_id, new_id, short
from standfast.ledger.decisions.models import Decision, Said, decision_of

SQL = load(__name__)

_TRIES = 5
_ENDED = ("id", "state", "outcome", "closed_us")


def recorded(tx: Tx, said: Said, place: Row) -> Decision:
    for _ in range(_TRIES):
        n = 1
        if place["session_id"] is not None:
            last = tx.maybe(SQL.last_in_session, session_id=place["session_id"], identity=said.identity)
            if last is not None and last["state"] == "open":
                return decision_of(last)
            n = last["n"] + 1 if last is not None else 1
        else:
            by = said.agent or tx.caller.actor
            row = tx.maybe(SQL.open_outside, identity=said.identity, by=by, **tx.caller.keyspace._asdict())
            if row is not None:
                return decision_of(row)
        made = added(
            tx,
            said._replace(agent=said.agent or place["agent"]),
            session_id=place["session_id"],
            node_id=place["node_id"],
            position=place["position"],
            identity=said.identity,
            n=n,
            state="open",
            keyspace=place["keyspace"],
            label=place["label"],
        )
        if made is not None:
            return made
    raise AssertionError("a decision was neither there nor could be written")


def standing_order(tx: Tx, said: Said, place: Row) -> Decision:
    """It holds for the scope: the session it was made in is in the journal only."""
    made = added(
        tx,
        said._replace(agent=said.agent or place["agent"]),
        session_id=None,
        node_id=None,
        position=None,
        identity=said.identity,
        n=1,
        state="standing",
        journal_session=place["session_id"],
        keyspace=place["keyspace"],
        label=place["label"],
    )
    if made is not None:
        return made
    return decision_of(tx.one(SQL.standing, identity=said.identity, **place["keyspace"]._asdict()))


def added(
    tx: Tx,
    said: Said,
    *,
    session_id: str | None,
    node_id: str | None,
    position: int | None,
    identity: str,
    n: int,
    state: str,
    keyspace: Keyspace,
    label: Label,
    journal_session: str | None = None,
    id: str | None = None,
) -> Decision | None:
    """The new decision; None if one of the unique rules says that it is there already."""
    row = tx.maybe(
        SQL.add,
        id=id or new_id("dec"),
        **keyspace._asdict(),
        **label.as_dict(),
        session_id=session_id,
        node_id=node_id,
        position=position,
        what=said.what,
        why=said.why,
        plan=said.then,
        identity=identity,
        n=n,
        state=state,
        agent=said.agent,
        actor=tx.caller.actor,
        tags=said.tags,
        now_us=tx.now_us(),
    )
    if row is None:
        return None
    return journalled(tx, "decision.made", decision_of(row), session_id=journal_session, label=label)


def ended(tx: Tx, which: str, state: str, outcome: str | None, *, also: str = "open") -> Decision:
    found = find(tx, which)
    closed = close(tx, found.id, state, outcome, also=also)
    if closed is not None:
        if state == "withdrawn":
            removed.keep(tx, "decision", *({name: getattr(one, name) for name in _ENDED} for one in (found, closed)))
        return closed
    if (found.state, found.outcome) == (state, outcome):
        return found  # closed twice: the first outcome stays
    hint = hints.command("decision", "show", short(found.id))
    if found.state == "standing":
        hint = f"a standing order is taken back: {hints.command('decision', 'withdraw', short(found.id))}"
    fact = "already, with another outcome" if found.state == state else f"and cannot become {state}"
    raise IllegalTransition(f"decision {short(found.id)} is {found.state} {fact}", hint)


def reopened(tx: Tx, which: str) -> Decision:
    """The decision in the state in which it was made: open, or standing."""
    found = find(tx, which)
    if found.state in ("open", "standing"):
        return found
    standing = tx.maybe(SQL.made_standing, id=found.id) is not None
    if standing and (other := tx.maybe(SQL.standing_like, id=found.id)) is not None:
        raise Conflict(
            f"decision {short(found.id)} cannot be reopened: {short(other['id'])} is the same standing order",
            hints.command("decision", "show", short(other["id"])),
        )
    row = tx.maybe(SQL.reopen, id=found.id, state="standing" if standing else "open", was=found.state)
    if row is None:
        raise Conflict(f"decision {short(found.id)} was changed meanwhile", "try again")
    made = journalled(tx, "decision.reopened", decision_of(row))
    removed.keep(tx, "decision", *({name: getattr(one, name) for name in _ENDED} for one in (found, made)))
    return made


def close(tx: Tx, id: str, state: str, outcome: str | None, *, also: str = "open") -> Decision | None:
    row = tx.maybe(SQL.end, id=id, state=state, outcome=outcome, now_us=tx.now_us(), also=also)
    return journalled(tx, f"decision.{state}", decision_of(row)) if row is not None else None


def _with_why(decision: Decision) -> str:
    return f"{serial.clean(decision.what, 120)}, because {decision.why}" if decision.why else decision.what


def journalled(
    tx: Tx, type: str, decision: Decision, *, session_id: str | None = None, label: Label | None = None
) -> Decision:
    closed = decision.outcome is not None and type != "decision.made"
    receipt = journal.append(
        tx,
        type,
        decision.id,
        summary=f"{serial.clean(decision.what, 120)}: {decision.outcome}" if closed else _with_why(decision),
        session_id=session_id or decision.session_id,
        state=decision.state,
        scope=decision.scope,
        label=label,
    )
    return decision.replace(receipt=receipt)


# -- finding --------------------------------------------------------------------------------------


def session_of(tx: Tx, scope: str, session: object) -> Row:
    """Where a decision belongs: the session given as an object, an id or a key, with its own node."""
    if session is None:
        whose: Row = {"keyspace": tx.caller.keyspace, "label": tx.caller.label}
        return {"session_id": None, "node_id": None, "position": None, "agent": None, **whose}
    named = str(getattr(session, "id", session))
    row = tx.maybe(SQL.session, scope=scope, session=named)
    if row is None:
        raise naming.unknown(tx, "session", named)
    if row["id"] != named:
        repositories.refuse(tx, row, f"session {row['key']!r}")
    label = repositories.labelled(row)
    found: Row = {"session_id": row["id"], "node_id": row["node_id"], "position": row["position"]}
    found |= {"agent": row["agent"], "keyspace": repositories.keyspace(tx, row["scope"], label), "label": label}
    return found


def find(tx: Tx, which: str) -> Decision:
    id = which if is_id(which) else naming.by_end(tx, SQL.by_suffix, which, prefix="dec", noun="decision")
    row = tx.maybe(SQL.by_id, id=id) if id is not None else None
    if row is None:
        raise NotFound(f"there is no decision {serial.clean(which, 60)!r}", "see them: standfast decision list")
    return decision_of(row)
