"""Write, find and close one decision inside a transaction."""

from __future__ import annotations

from typing import NamedTuple

from standfast import hints, serial
from standfast.config.scope import Keyspace, Label
from standfast.core import journal, lookup, removed, repositories
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.errors import Conflict, IllegalTransition, NotFound
from standfast.ids import new_id, short
from standfast.ledger.decisions.models import Decision, Said, decision_of

SQL = load(__name__)

_TRIES = 5
_ENDED = ("id", "state", "outcome", "closed_us")


class Place(NamedTuple):
    """Where a decision belongs: a repository and, inside a session, one of its nodes."""

    keyspace: Keyspace
    label: Label
    session_id: str | None = None
    node_id: str | None = None
    position: int | None = None
    """The position of the next message."""
    agent: str | None = None


def outside(tx: Tx) -> Place:
    """The place of a decision that belongs to no session."""
    return Place(tx.caller.keyspace, tx.caller.label)


def recorded(tx: Tx, said: Said, place: Place) -> Decision:
    """The open decision with these words, or a new one."""
    said = said._replace(agent=said.agent or place.agent)
    for _ in range(_TRIES):
        last = _last(tx, said, place)
        if last is not None and last["state"] == "open":
            return decision_of(last)
        made = added(tx, said, place, n=1 if last is None else last["n"] + 1)
        if made is not None:
            return made
    raise AssertionError("a decision was neither there nor could be written")


def _last(tx: Tx, said: Said, place: Place) -> Row | None:
    """The last decision with these words in a session. Outside a session, the open decision of the agent."""
    if place.session_id is not None:
        return tx.maybe(SQL.last_in_session, session_id=place.session_id, identity=said.identity)
    by = said.agent or tx.caller.actor
    return tx.maybe(SQL.open_outside, identity=said.identity, by=by, **place.keyspace._asdict())


def standing_order(tx: Tx, said: Said, place: Place) -> Decision:
    """The standing order with these words, or a new one. The journal row names the session that gave it."""
    said = said._replace(agent=said.agent or place.agent)
    no_session = Place(place.keyspace, place.label)
    made = added(tx, said, no_session, state="standing", journal_session=place.session_id)
    if made is not None:
        return made
    return decision_of(tx.one(SQL.standing, identity=said.identity, **place.keyspace._asdict()))


def added(
    tx: Tx,
    said: Said,
    place: Place,
    *,
    state: str = "open",
    n: int = 1,
    identity: str | None = None,
    journal_session: str | None = None,
    id: str | None = None,
) -> Decision | None:
    """The new decision; None if a unique index of the table already has it."""
    row = tx.maybe(
        SQL.add,
        id=id or new_id("dec"),
        **place.keyspace._asdict(),
        **place.label.as_dict(),
        session_id=place.session_id,
        node_id=place.node_id,
        position=place.position,
        what=said.what,
        why=said.why,
        plan=said.then,
        identity=identity or said.identity,
        n=n,
        state=state,
        agent=said.agent,
        actor=tx.caller.actor,
        tags=said.tags,
        now_us=tx.now_us(),
    )
    if row is None:
        return None
    return journal_change(tx, "decision.made", decision_of(row), session_id=journal_session, label=place.label)


def ended(tx: Tx, which: str, state: str, outcome: str | None, *, also: str = "open") -> Decision:
    found = find(tx, which)
    closed = close(tx, found.id, state, outcome, also=also)
    if closed is not None:
        if state == "withdrawn":
            removed.keep(tx, "decision", *({name: getattr(one, name) for name in _ENDED} for one in (found, closed)))
        return closed
    if (found.state, found.outcome) == (state, outcome):
        return found  # an earlier call closed it with this outcome
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
    made = journal_change(tx, "decision.reopened", decision_of(row))
    removed.keep(tx, "decision", *({name: getattr(one, name) for name in _ENDED} for one in (found, made)))
    return made


def close(tx: Tx, id: str, state: str, outcome: str | None, *, also: str = "open") -> Decision | None:
    row = tx.maybe(SQL.end, id=id, state=state, outcome=outcome, now_us=tx.now_us(), also=also)
    return journal_change(tx, f"decision.{state}", decision_of(row)) if row is not None else None


def _with_why(decision: Decision) -> str:
    return f"{serial.clean(decision.what, 120)}, because {decision.why}" if decision.why else decision.what


def journal_change(
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


# -- lookup ---------------------------------------------------------------------------------------


def place_of(tx: Tx, scope: str, session: object) -> Place:
    """The place of a decision of a session, given as an object, an id or a key. Raises NotFound, Conflict."""
    if session is None:
        return outside(tx)
    named = str(getattr(session, "id", session))
    row = tx.maybe(SQL.session, scope=scope, session=named)
    if row is None:
        raise lookup.unknown(tx, "session", named)
    if row["id"] != named:
        repositories.refuse(tx, row, f"session {row['key']!r}")
    label = repositories.labelled(row)
    keyspace = repositories.keyspace(tx, row["scope"], label)
    return Place(keyspace, label, row["id"], row["node_id"], row["position"], row["agent"])


def find(tx: Tx, which: str) -> Decision:
    row = lookup.row_of(tx, which, "dec", by_id=SQL.by_id)
    if row is None:
        raise NotFound(f"there is no decision {serial.clean(which, 60)!r}", "see them: standfast decision list")
    return decision_of(row)
