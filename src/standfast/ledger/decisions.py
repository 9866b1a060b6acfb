"""Decisions: what was decided and why, and what is to be done then, written before it is done.

                decide / record               leave the block, done
    (nothing) ─────────────────▶ open ──────────────────────────────▶ done
                                  ├─ an exception, fail ─▶ failed ──▶ open, when it is reached again
                                  └─ withdraw ─▶ withdrawn ◀─ withdraw ─ standing

The write is the commit point: whoever dies between deciding and acting leaves an open decision, and
the next process finds it, with its session. Whether the act itself happened is the ledger's to
answer (effects); a decision never claims it.

In a session a decision is known by what it says, `what` and `then`, and by how often one opening
has reached it. A program that runs again from its first line therefore decides once: an open
decision is taken up, one that is done stays as it is while the block runs through its recorded steps.

A standing order is a decision that stays, listed before all others until it is withdrawn; it belongs
to the scope, not to a session. `catch` writes down that a decision was made and not written;
`unwritten` finds the effects for which that is so.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self, TypeAlias

from standfast import crash, serial
from standfast.clock import parse_duration
from standfast.config.scope import Label, scope_of
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.db.store import Room, query, raised, verb
from standfast.errors import (
    ApprovalRequired,
    EffectInDoubt,
    IllegalTransition,
    InProgress,
    InvalidInput,
    LeaseLost,
    NotFound,
    StandfastError,
    StorageError,
)
from standfast.footings import journal, naming, repositories
from standfast.footings.checks import FAR_FUTURE_US, page_size
from standfast.footings.journal import Event, Receipt
from standfast.ids import Id, is_id, new_id, short
from standfast.ledger.opening import Opening

if TYPE_CHECKING:
    from datetime import datetime, timedelta

SQL = load(__name__)

STATES = ("open", "done", "failed", "standing", "withdrawn")
WHAT_MAX = 4_000
TEXT_MAX = 20_000
TAGS_MAX = 20
TAG_MAX = 60
UNWRITTEN = "decision:unwritten"
"""The journal's subject for decisions that were made and not written."""

_UNFIT = "[\x00\ud800-\udfff]"  # compiled on first use: what no store can hold
_TRIES = 5

# The block ended, the work did not: a person, another holder or the store itself is in the way.
_IN_THE_WAY = (ApprovalRequired, EffectInDoubt, InProgress, LeaseLost, StorageError)


class Decision(NamedTuple):
    """What was decided, and what became of it."""

    id: str
    scope: str
    session_id: str | None
    node_id: str | None
    position: int | None
    """The position of the next message when it was decided."""
    what: str
    why: str | None
    then: str | None
    n: int
    state: str
    outcome: str | None
    agent: str | None
    actor: str
    tags: tuple[str, ...]
    created_us: int
    closed_us: int | None
    session_key: str | None = None
    session_state: str | None = None
    receipt: Receipt | None = None

    @property
    def by(self) -> str:
        """The agent it is attributed to, else the actor that recorded it."""
        return self.agent or self.actor

    @staticmethod
    def columns() -> tuple[str, ...]:
        return "id", "state", "created_us when", "by", "session_key session", "what", "outcome"


_SAME = tuple(n for n in Decision._fields if n not in ("then", "tags", "session_key", "session_state", "receipt"))


class Caught(NamedTuple):
    """A decision that was made and not written, as a control found it."""

    what: str
    control: str
    notes: str | None
    session_id: str | None
    actor: str
    time_us: int
    seq: int | None
    receipt: Receipt | None = None

    @staticmethod
    def columns() -> tuple[str, ...]:
        return "seq", "time_us when", "control", "what", "notes"


class Unwritten(NamedTuple):
    """An effect that went out while nothing was decided in its session."""

    effect_id: str
    session_id: str
    tool: str
    key: str
    state: str
    dispatched_us: int
    actor: str | None

    @property
    def place(self) -> str:
        """Where a list goes on after it."""
        return self.effect_id

    @staticmethod
    def columns() -> tuple[str, ...]:
        return "effect_id", "dispatched_us when", "tool", "state"


# In the room `list` is a verb, so that the type needs other names there.
DecisionList: TypeAlias = "list[Decision]"
CaughtList: TypeAlias = "list[Caught]"
UnwrittenList: TypeAlias = "list[Unwritten]"


# -- in a session ----------------------------------------------------------------------------------------


def decide(
    opening: Opening,
    what: str,
    *,
    why: str | None = None,
    then: str | None = None,
    tags: Iterable[str] = (),
    agent: str | None = None,
) -> Deciding:
    """Write a decision, durably, before anything is done about it; leaving the block closes it.

        with s.decide("edit parser.py", why="the test names it", then="patch, test, open a PR") as d:
            ...
            d.outcome = "patched"

    Reached again by a later opening it is the same decision: an open or failed one is taken up,
    one that is done is left as it is. Reached twice in one opening, the second is another.
    """
    opening.usable()
    said = _said(what, why, then, tags if isinstance(tags, str) else tuple(tags), agent or opening.agent)
    counted = f"{opening.node_id} {said.identity}"
    n = opening.number("decision", counted)
    try:
        crash.point("decision.before_write")
        decision, resumed = opening.store.write(lambda tx: _reached(tx, opening, said, n))
    except BaseException:
        opening.take_back("decision", counted)
        raise
    crash.point("decision.after_write")
    return Deciding(opening, decision, resumed=resumed)


class Deciding:
    """A decision while its block runs. `outcome` is what will stand in the record."""

    awaited = True
    """Under an event loop its methods are awaited too."""

    def __init__(self, opening: Opening, decision: Decision, *, resumed: bool) -> None:
        self._opening = opening
        self._store = opening.store
        self.decision = decision
        self.resumed = resumed
        """Whether an earlier opening wrote it: look at what was recorded before doing it again."""
        self.outcome: object = decision.outcome

    @property
    def id(self) -> str:
        return self.decision.id

    @property
    def what(self) -> str:
        return self.decision.what

    @property
    def state(self) -> str:
        return self.decision.state

    def done(self, outcome: object = None) -> Decision:
        """Close it before the block ends, or without one."""
        if outcome is not None:
            self.outcome = outcome
        return self._close("done", outcome_text(self.outcome))

    def fail(self, why: object = None) -> Decision:
        """Close it as failed: what was planned was not done, or did not work."""
        return self._close("failed", outcome_text(why if why is not None else self.outcome))

    def _close(self, state: str, outcome: str | None) -> Decision:
        if self.decision.state == "open":
            crash.point("decision.before_close")
            closed = self._store.write(lambda tx: _closed(tx, self.decision.id, state, outcome))
            # Somebody may have closed it meanwhile by its id: then theirs stands.
            self.decision = closed if closed is not None else self._now()
            crash.point("decision.after_close")
        return self.decision

    def _now(self) -> Decision:
        return raised(self._store.read(lambda tx: _found(tx, self.decision.id)))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._opening.elsewhere:
            return  # a forked child left its parent's block: the parent is still in it
        if error is None or (isinstance(error, SystemExit) and error.code in (None, 0, False)):
            self._close("done", outcome_text(self.outcome))
        elif not _unfinished(error):
            try:
                self._close("failed", last_line(error))
            except StandfastError as second:
                # The first error is the one to be seen; the decision stays open and is found later.
                error.add_note(f"standfast: decision {short(self.id)} could not be closed: {second.message}")

    def __repr__(self) -> str:
        return f"<Deciding {short(self.id)} {self.state}: {serial.clean(self.what, 60)}>"


def _unfinished(error: BaseException) -> bool:
    """Whether somebody will come back to it: then the decision stays open, and whoever goes on finds it."""
    if isinstance(error, BaseExceptionGroup):
        return all(_unfinished(one) for one in error.exceptions)
    interrupted = not isinstance(error, (Exception, SystemExit))  # Ctrl-C, a cancelled task, a closed generator
    return interrupted or isinstance(error, _IN_THE_WAY)


def _reached(tx: Tx, opening: Opening, said: _Said, n: int) -> tuple[Decision, bool]:
    """The decision an opening has come to, and whether it was there before."""
    node = tx.maybe(SQL.node, id=opening.node_id)
    below = node is not None and node["parent_id"] != ""
    # Two sub-agents may decide the same; the session's own decisions are also reached by its key.
    identity = serial.hash([said.identity, opening.node_id]) if below else said.identity
    place: Row = {"session_id": opening.session_id, "identity": identity, "n": n}
    row = tx.maybe(SQL.reached, **place)
    if row is None:
        position = node["next_position"] if node is not None else None
        whose: Row = {"home": opening.home(tx), "label": opening.label}
        made = _added(tx, said, node_id=opening.node_id, position=position, state="open", **whose, **place)
        if made is not None:
            return made, False
        row = tx.one(SQL.reached, **place)  # made by another process since we looked
    found = _decision(row)
    if found.state == "failed" and (again := tx.maybe(SQL.reopen, id=found.id)) is not None:
        return _journalled(tx, "decision.reopened", _decision(again)), True
    return found, True


# -- the room ----------------------------------------------------------------------------------------------


class Decisions(Room):
    """What was decided, by whom and why; what is still open; what always holds."""

    __slots__ = ()

    @verb
    def record(
        self,
        tx: Tx,
        what: str,
        *,
        why: str | None = None,
        then: str | None = None,
        session: object = None,
        tags: Collection[str] = (),
        agent: str | None = None,
        standing: bool = False,
    ) -> Decision:
        """Record a decision before acting on it. It stays open until you close it with its outcome.

        - `why`: the reason.
        - `then`: what you do next because of it.
        - `session`: the session it belongs to.
        - `tags`: a topic.
        - `agent`: the agent that decided, if it is not the caller.
        - `standing`: a standing order: it applies until it is withdrawn.

        Recording the same `what` and `then` again returns the decision that is open or standing.
        """
        said = _said(what, why, then, tags, agent)
        place = _session(tx, self.scope, session)
        if standing:
            return _standing(tx, said, place)
        return _recorded(tx, said, place)

    @verb
    def done(self, tx: Tx, which: str, outcome: object = None) -> Decision:
        """Close an open decision with its outcome.

        - `outcome`: what came of it.

        Raises IllegalTransition if it is not open.
        """
        return _ended(tx, which, "done", outcome_text(outcome))

    @verb
    def fail(self, tx: Tx, which: str, why: object = None) -> Decision:
        """Close an open decision as failed: the plan was not carried out, or did not work.

        - `why`: what went wrong.
        """
        return _ended(tx, which, "failed", outcome_text(why))

    @verb
    def withdraw(self, tx: Tx, which: str, why: object = None) -> Decision:
        """Withdraw a standing order, or an open decision that is no longer followed.

        - `why`: why it no longer applies.
        """
        return _ended(tx, which, "withdrawn", outcome_text(why), also="standing")

    @query
    def show(self, tx: Tx, which: str) -> Decision:
        """Show one decision, by its id or the end of its id."""
        return _found(tx, which)

    @query
    def list(
        self,
        tx: Tx,
        *,
        agent: str | None = None,
        tag: str | None = None,
        since: int | str | timedelta | datetime | None = None,
        until: int | str | timedelta | datetime | None = None,
        text: str | None = None,
        state: str | None = None,
        session: object = None,
        everywhere: bool = False,
        limit: int = 50,
        after: Id | None = None,
    ) -> DecisionList:
        """List decisions: standing orders first, then the newest.

        - `agent`: only by this agent or actor.
        - `tag`: only about this topic.
        - `since`: not before this time: "7d" is 7 days ago.
        - `until`: before this time.
        - `text`: only with this text in what, why, then or the outcome.
        - `state`: only in this state.
        - `session`: only of this session.
        - `after`: start after this id, the last one of the page before.

        In Python a time is microseconds, a datetime, or how long ago ("7d", a timedelta).
        """
        if state is not None and state not in STATES:
            raise InvalidInput(f"a decision is never {serial.clean(state, 40)!r}", f"one of: {', '.join(STATES)}")
        rows = tx.all(
            SQL.page,
            scope=self.scope,
            home=self.home,
            everywhere=int(everywhere),
            agent=agent or "",
            tag=f"%,{_like(_checked_tag(tag))},%" if tag else "",
            since_us=_moment(tx, since) if since is not None else -FAR_FUTURE_US,
            until_us=_moment(tx, until) if until is not None else FAR_FUTURE_US,
            text=f"%{_like(text)}%" if text else "",
            state=state or "",
            session=str(getattr(session, "id", session)) if session is not None else "",
            after=after or "",
            limit=page_size(limit),
        )
        return [_decision(row) for row in rows]

    def incomplete(
        self, *, session: object = None, everywhere: bool = False, limit: int = 50, after: str | None = None
    ) -> DecisionList:
        """Decided and not closed, with the state of their sessions: what a recovery looks at first."""
        return self.list(state="open", session=session, everywhere=everywhere, limit=limit, after=after)

    @verb
    def catch(
        self,
        tx: Tx,
        what: str,
        *,
        control: str,
        notes: str | None = None,
        session: object = None,
    ) -> Caught:
        """Record that a decision was made without being recorded, and which control noticed.

        - `control`: what noticed it: a review, a check, a person.
        - `notes`: how it was noticed.
        - `session`: the session it was made in.

        The journal marks it as a report (`said`).
        """
        what, control = _text(what, "what", WHAT_MAX), _text(control, "control", 200)
        notes = _text(notes, "notes", TEXT_MAX) if notes is not None else None
        place = _session(tx, self.scope, session)
        data = {"what": what, "control": control, "notes": notes}
        receipt = journal.append(
            tx, "decision.caught", UNWRITTEN, summary=what, data=data, session_id=place["session_id"], source="said"
        )
        return Caught(what, control, notes, place["session_id"], tx.caller.actor, tx.now_us(), None, receipt)

    @query
    def caught(self, tx: Tx, *, everywhere: bool = False, limit: int = 50, after: int | None = None) -> CaughtList:
        """List decisions that controls found to be unrecorded, the newest first.

        - `after`: start after this `seq`, the last one of the page before.
        """
        rows = tx.all(
            SQL.caught,
            subject=UNWRITTEN,
            scope=self.scope,
            everywhere=int(everywhere),
            before_seq=after if after is not None else FAR_FUTURE_US,
            limit=page_size(limit),
            **repositories.filtered(tx, everywhere=everywhere),
        )
        return [_caught(journal.event(row)) for row in rows]

    @query
    def unwritten(self, tx: Tx, session: object, *, limit: int = 50, after: Id | None = None) -> UnwrittenList:
        """List effects of a session that were sent while no decision was open in it, in order.

        - `after`: start after this effect's id, the last one of the page before.
        """
        place = _session(tx, self.scope, session)
        rows = tx.all(SQL.unwritten, session_id=place["session_id"], after=after or "", limit=page_size(limit))
        return [Unwritten(**row) for row in rows]


def _recorded(tx: Tx, said: _Said, place: Row) -> Decision:
    for _ in range(_TRIES):
        n = 1
        if place["session_id"] is not None:
            last = tx.maybe(SQL.last_in_session, session_id=place["session_id"], identity=said.identity)
            if last is not None and last["state"] == "open":
                return _decision(last)
            n = last["n"] + 1 if last is not None else 1
        else:
            by = said.agent or tx.caller.actor
            row = tx.maybe(SQL.open_outside, scope=tx.caller.home, identity=said.identity, by=by)
            if row is not None:
                return _decision(row)
        made = _added(
            tx,
            said._replace(agent=said.agent or place["agent"]),
            session_id=place["session_id"],
            node_id=place["node_id"],
            position=place["position"],
            identity=said.identity,
            n=n,
            state="open",
            home=place["home"],
            label=place["label"],
        )
        if made is not None:
            return made
    raise AssertionError("a decision was neither there nor could be written")


def _standing(tx: Tx, said: _Said, place: Row) -> Decision:
    """It holds for the scope: the session it was made in stands in the journal only."""
    made = _added(
        tx,
        said._replace(agent=said.agent or place["agent"]),
        session_id=None,
        node_id=None,
        position=None,
        identity=said.identity,
        n=1,
        state="standing",
        journal_session=place["session_id"],
        home=place["home"],
        label=place["label"],
    )
    if made is not None:
        return made
    return _decision(tx.one(SQL.standing, scope=place["home"], identity=said.identity))


def _added(
    tx: Tx,
    said: _Said,
    *,
    session_id: str | None,
    node_id: str | None,
    position: int | None,
    identity: str,
    n: int,
    state: str,
    home: str,
    label: Label,
    journal_session: str | None = None,
) -> Decision | None:
    """The new decision; None if one of the unique rules says that it is there already."""
    row = tx.maybe(
        SQL.add,
        id=new_id("dec"),
        scope=home,
        git_dir=label.git_dir,
        origin=label.origin,
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
    return _journalled(tx, "decision.made", _decision(row), session_id=journal_session, label=label)


def _ended(tx: Tx, which: str, state: str, outcome: str | None, *, also: str = "open") -> Decision:
    found = _found(tx, which)
    closed = _closed(tx, found.id, state, outcome, also=also)
    if closed is not None:
        return closed
    if (found.state, found.outcome) == (state, outcome):
        return found  # said twice: the first time stands
    hint = f"standfast decision show {short(found.id)}"
    if found.state == "standing":
        hint = f"a standing order is taken back: standfast decision withdraw {short(found.id)}"
    fact = "already, with another outcome" if found.state == state else f"and cannot become {state}"
    raise IllegalTransition(f"decision {short(found.id)} is {found.state} {fact}", hint)


def _closed(tx: Tx, id: str, state: str, outcome: str | None, *, also: str = "open") -> Decision | None:
    row = tx.maybe(SQL.end, id=id, state=state, outcome=outcome, now_us=tx.now_us(), also=also)
    return _journalled(tx, f"decision.{state}", _decision(row)) if row is not None else None


def _journalled(
    tx: Tx, type: str, decision: Decision, *, session_id: str | None = None, label: Label | None = None
) -> Decision:
    closed = decision.outcome is not None and type != "decision.made"
    receipt = journal.append(
        tx,
        type,
        decision.id,
        summary=f"{serial.clean(decision.what, 120)}: {decision.outcome}" if closed else decision.what,
        session_id=session_id or decision.session_id,
        state=decision.state,
        scope=scope_of(decision.scope),
        label=label,
    )
    return decision._replace(receipt=receipt)


# -- values --------------------------------------------------------------------------------------------------


class _Said(NamedTuple):
    """A decision's own words, checked."""

    what: str
    why: str | None
    then: str | None
    tags: str
    agent: str | None
    identity: str


def _said(what: str, why: str | None, then: str | None, tags: Collection[str], agent: str | None) -> _Said:
    what = _text(what, "what", WHAT_MAX)
    why = _text(why, "why", TEXT_MAX) if why is not None else None
    then = _text(then, "then", TEXT_MAX) if then is not None else None
    return _Said(what, why, then, _tags(tags), agent, serial.hash([what, then]))


def _text(text: object, what: str, limit: int) -> str:
    if not isinstance(text, str):
        raise InvalidInput(f"{what} is text, not {type(text).__name__}", "say it in words")
    if not text.strip():
        raise InvalidInput(f"{what} is empty", "say it in words")
    if len(text) > limit:
        raise InvalidInput(
            f"{what} has {len(text):,} characters, and the limit is {limit:,}", "keep the rest elsewhere"
        )
    if found := re.search(_UNFIT, text):
        raise InvalidInput(f"{what} holds the character U+{ord(found[0]):04X}, which cannot be stored")
    return text


def _tags(tags: object) -> str:
    """Between commas, so that one is found by `LIKE '%,ci,%'`."""
    # Nothing that can be read only once: the body that reads it may run twice.
    if isinstance(tags, str) or not isinstance(tags, Collection):
        raise InvalidInput(f"tags are a list of texts, not {type(tags).__name__}", 'tags=["ci"]')
    unique = sorted({_checked_tag(tag) for tag in tags})
    if len(unique) > TAGS_MAX:
        raise InvalidInput(f"{len(unique)} tags, and the limit is {TAGS_MAX}")
    return f",{','.join(unique)}," if unique else ""


def _checked_tag(tag: object) -> str:
    if not isinstance(tag, str):
        raise InvalidInput(f"a tag is text, not {type(tag).__name__}", 'tags=["ci"]')
    if not tag or len(tag) > TAG_MAX or not tag.isprintable() or "," in tag or tag != tag.strip():
        raise InvalidInput(f"{serial.clean(tag, 60)!r} is not a tag", f"1 to {TAG_MAX} characters without a comma")
    return tag


def outcome_text(outcome: object) -> str | None:
    """What came of it, as text. Total: closing never fails for the sake of its words."""
    if outcome is None:
        return None
    if isinstance(outcome, str):
        text = outcome
    else:
        try:
            text = serial.canonical(outcome)
        except InvalidInput:
            text = str(outcome)
    text = re.sub(_UNFIT, "", text)
    return text if len(text) <= TEXT_MAX else text[: TEXT_MAX - 1] + "…"


def last_line(error: BaseException) -> str:
    """What Python prints last of an exception."""
    from traceback import format_exception_only

    notes, error_text = getattr(error, "__notes__", []), "".join(format_exception_only(error)).strip()
    lines = error_text.splitlines()
    # Notes come after the line itself.
    lines = lines[: len(lines) - sum(len(str(note).splitlines()) for note in notes)] or lines
    return serial.clean(" ".join(lines), 500) or type(error).__name__


def _moment(tx: Tx, when: int | str | timedelta | datetime) -> int:
    """Microseconds of a moment, or of so long ago."""
    if isinstance(when, int):
        return when
    if isinstance(when, str):
        return tx.now_us() - parse_duration(when)
    from datetime import timedelta

    if isinstance(when, timedelta):
        return tx.now_us() - when // timedelta(microseconds=1)
    if when.tzinfo is None:
        raise InvalidInput(f"{when.isoformat()} has no time zone", "datetime.now(timezone.utc), or when.astimezone()")
    return round(when.timestamp() * 1_000_000)


def _like(text: str) -> str:
    return text.replace("!", "!!").replace("%", "!%").replace("_", "!_")


# -- small parts -----------------------------------------------------------------------------------------------


def _session(tx: Tx, scope: str, session: object) -> Row:
    """Where a decision stands: the session given as an object, an id or a key, with its own node."""
    if session is None:
        whose: Row = {"home": tx.caller.home, "label": tx.caller.label}
        return {"session_id": None, "node_id": None, "position": None, "agent": None, **whose}
    named = str(getattr(session, "id", session))
    row = tx.maybe(SQL.session, scope=scope, session=named)
    if row is None:
        raise NotFound(f"there is no session {serial.clean(named, 60)!r} here", "see them: standfast session list")
    if row["id"] != named:
        repositories.refuse(tx, row, f"session {row['key']!r}")
    label = repositories.labelled(row)
    found: Row = {"session_id": row["id"], "node_id": row["node_id"], "position": row["position"]}
    return {**found, "agent": row["agent"], "home": repositories.home(tx, row["scope"], label), "label": label}


def _found(tx: Tx, which: str) -> Decision:
    id = which if is_id(which) else naming.by_end(tx, SQL.by_suffix, which, prefix="dec", noun="decision")
    row = tx.maybe(SQL.by_id, id=id) if id is not None else None
    if row is None:
        raise NotFound(f"there is no decision {serial.clean(which, 60)!r}", "see them: standfast decision list")
    return _decision(row)


def _decision(row: Row) -> Decision:
    values = {name: row[name] for name in _SAME}
    tags = tuple(tag for tag in row["tags"].split(",") if tag)
    beside = {name: row[name] for name in ("session_key", "session_state") if name in row}
    return Decision(then=row["plan"], tags=tags, **values, **beside)


def _caught(event: Event) -> Caught:
    data = event.data or {}
    return Caught(
        what=data.get("what", event.summary or ""),
        control=data.get("control", ""),
        notes=data.get("notes"),
        session_id=event.session_id,
        actor=event.actor,
        time_us=event.time_us,
        seq=event.seq,
    )
