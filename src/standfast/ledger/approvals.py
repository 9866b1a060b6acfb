"""Approvals: a person answers one question, before anything is sent.

    requested ──▶ granted ──▶ consumed
        ├───────▶ denied
        └───────▶ expired ◀── granted

The question is one text (`questions.py`): the action, the requester, the reason and the expiry. It is stored with its
hash and never changed. The transaction that dispatches the effect builds the question again from the row that it is
about to send. It compares the hash, and uses one attempt of the grant if that has not expired. The last attempt
consumes the grant. The first answer wins. A denial counts until its request expires; then the same question may be
asked again.

Readers derive `expired` from the time of their transaction. The next method that writes stores it.

An effect calls `require` before it dispatches. The resource is for the person who answers. This module shows no prompt:
`standfast approve` does, and it needs a terminal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from standfast import crash, hints, serial
from standfast.clock import DAY_US, SECOND_US, Deadline, Duration, duration_us, format_duration, iso
from standfast.config.people import for_people
from standfast.core import journal, lookup, notices, repositories, user_code
from standfast.core.checks import NAME_MAX, bounded_us, one_of, page_size
from standfast.core.receipts import Receipt
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.db.store import Resource, Store, query, refused_inside, transactional
from standfast.errors import ApprovalRequired, Conflict, IllegalTransition, InvalidInput, NotFound, StandfastError
from standfast.ids import new_id, short
from standfast.ledger import deferred_answers, questions
from standfast.models import Model

if TYPE_CHECKING:
    from standfast.ledger.subjects import Action

SQL = load(__name__)

STATES = ("requested", "granted", "denied", "expired", "consumed")
DEFAULT_US = DAY_US
LIFETIME_MAX_US = 30 * DAY_US
METHODS = ("terminal", "passkey", "api")
"""How an answer was obtained."""
WORDS_MAX = 4000
LOOK_AGAIN_S = 1.0
"""A waiting call reads the row again at least this often, because a notification may be missed."""
YOUNG_US = SECOND_US
"""A younger answer may be visible before it is on disk."""

_LAST = "apr_z"  # greater than every id in every collation, because ids begin with 0 to 7


class Approval(Model):
    """One request for approval, and its answer."""

    id: str
    scope: str
    session_id: str | None
    effect_id: str
    gate: str | None
    tool: str
    intent_hash: str
    question_hash: str | None
    state: str
    requester: str
    why: str | None
    approver: str | None
    rationale: str | None
    method: str | None
    """How the answer was obtained: one of METHODS."""
    requested_us: int
    expires_us: int
    answered_us: int | None
    consumed_us: int | None
    attempt: int | None
    """The last attempt of the effect that used this grant."""
    attempts: int | None
    """The number of dispatches that the question asks for."""
    attempts_used: int | None
    receipt: Receipt | None = None


class Question(Model):
    """The text that an approver reads, which is hashed, and its parts."""

    approval: Approval
    text: str | None
    """The stored question."""
    tool: str
    scope: str
    effect_key: str
    directory: str | None
    """The directory in which the command runs; None for an effect that is not a command."""
    attempts: int
    intent: str | None
    """The exact action, as canonical text."""
    requester: str
    why: str | None
    gate: str | None
    session_key: str | None
    agent: str | None
    description: str | None
    """The agent's description of the call. A call with another description uses the same grant."""
    decision: str | None
    """The open decision of the session at the time of the request, with its reason."""
    requested_us: int
    expires_us: int
    current_hash: str | None
    """The hash of the effect's present intent. It differs from the approval's if the intent was changed since."""
    effect_state: str | None

    def as_json(self) -> dict[str, Any]:
        fields = self.as_dict()
        return {**fields.pop("approval").as_dict(), **fields, "exact": self.exact}

    @property
    def exact(self) -> bool:
        """Whether `text` is, byte for byte, what the approval is bound to."""
        found = self.approval
        if self.text is None or serial.hash_text(self.text) != found.question_hash:
            return False
        return (found.attempts, found.expires_us) == (self.attempts, self.expires_us)


# -- methods for effects ---------------------------------------------------------------------------


def require(
    tx: Tx,
    effect: Row,
    *,
    attempt: int,
    why: str | None = None,
    gate: str | None = None,
    for_us: int = DEFAULT_US,
) -> StandfastError | None:
    """Use one attempt of the grant in `tx`. Returns None if `effect` may be dispatched as attempt `attempt`.

    Otherwise returns ApprovalRequired, and records the request if there is none. `effect` has id, scope, session_id,
    tool, key, intent, intent_hash and context of the dispatch. The caller has locked the row of the effect in this
    transaction, and calls `tell` after the commit.
    """
    asked = _asked(effect, why, gate, for_us)
    found = _current(tx, asked)
    if found is None:
        return _required(tx, _request(tx, asked), fresh=True)
    if found.state == "granted":
        _consume(tx, found, attempt, asked.attempts)
        return None
    return _required(tx, found) if found.state == "requested" else _denied(tx, found)


def asked(tx: Tx, effect_id: str) -> bool:
    """Whether an approval of this effect was ever requested. Then each dispatch needs one, also without `approve=`."""
    return tx.maybe(SQL.asked, effect_id=effect_id) is not None


def tell(store: Store, error: StandfastError, *, tx: Tx | None = None) -> None:
    """Run the `notify` command if `error` says that a request was just recorded. Call it after the commit."""
    if isinstance(error, ApprovalRequired) and error.fresh and error.approval_id:
        _tell(store, error.approval_id, error.message, tx)


class _Asked(NamedTuple):
    effect: Row
    attempts: int
    why: str | None
    gate: str | None
    for_us: int


def _asked(effect: Row, why: str | None, gate: str | None, for_us: int) -> _Asked:
    lifetime_us = bounded_us(
        for_us, "the lifetime of an approval", most_us=LIFETIME_MAX_US, hint="for example: --for 2h"
    )
    return _Asked(effect, questions.attempts(effect), why, gate, lifetime_us)


def _current(tx: Tx, asked: _Asked) -> Approval | None:
    """The approval that counts for this effect now. Requests and grants that have expired are recorded as expired."""
    now_us = tx.now_us()
    valid: dict[str, Approval] = {}
    for row in tx.all(SQL.standing, effect_id=asked.effect["id"]):
        found = Approval.from_row(row)
        answerable = found.state in ("requested", "granted")
        if not questions.asks_for(asked.effect, row["question"], row["question_hash"]):
            if answerable:
                _expire(tx, found, "the question was changed after it was asked for")
        elif found.expires_us > now_us:
            valid.setdefault(found.state, found)
        elif answerable:
            _expire(tx, found, "not answered in time" if found.state == "requested" else "granted, not used in time")
    # Filter by state, not by time, because a wall clock may run backwards.
    return next((valid[state] for state in ("granted", "requested", "denied") if state in valid), None)


def _request(tx: Tx, asked: _Asked) -> Approval:
    crash.point("approval.before_request")
    effect, now_us = asked.effect, tx.now_us()
    why, gate = _words(asked.why, "why"), _words(asked.gate, "gate")
    times = {"requested_us": now_us, "expires_us": now_us + asked.for_us}
    session = tx.maybe(SQL.asking, session_id=effect["session_id"]) if effect["session_id"] else None
    about = questions.request(effect, session, requester=tx.caller.actor, why=why, gate=gate, **times)
    question = questions.text(effect, about)
    row = tx.one(
        SQL.request,
        id=new_id("apr"),
        scope=effect["scope"],
        session_id=effect["session_id"],
        effect_id=effect["id"],
        gate=gate,
        tool=effect["tool"],
        intent_hash=effect["intent_hash"],
        question=question,
        question_hash=serial.hash_text(question),
        attempts=asked.attempts,
        requester=tx.caller.actor,
        why=why,
        **times,
    )
    made = Approval.from_row(row)
    action = _action(tx, made).text
    said = f"{action}: {made.why}" if made.why else action
    return _journal_change(tx, made, said, {"expires_us": made.expires_us, "gate": made.gate})


def _consume(tx: Tx, found: Approval, attempt: int, attempts: int) -> None:
    crash.point("approval.before_consume")
    bound: Row = {"id": found.id, "question_hash": found.question_hash, "attempts": attempts}
    row = tx.one(SQL.consume, attempt=attempt, now_us=tx.now_us(), **bound)
    tx.run(SQL.bind, effect_id=found.effect_id, approval_id=found.id)
    used = Approval.from_row(row)
    count = f"attempt {used.attempts_used} of {used.attempts}"
    said = f"{_action(tx, found).text}, granted by {found.approver}" + (f", {count}" if used.attempts != 1 else "")
    data: dict[str, serial.Json] = {"attempt": attempt, "attempts_used": used.attempts_used, "attempts": used.attempts}
    _journal_change(tx, used, said, data, what="consumed")


def _expire(tx: Tx, found: Approval, reason: str) -> Approval:
    """Record that the approval has expired, unless another caller has just recorded the expiry or an answer."""
    row = tx.maybe(SQL.expire, id=found.id)
    return (
        found
        if row is None
        else _journal_change(tx, Approval.from_row(row), f"{_action(tx, found).text}: {reason}", {"reason": reason})
    )


def _journal_change(
    tx: Tx, made: Approval, summary: str, data: dict[str, serial.Json], *, what: str | None = None
) -> Approval:
    about = {"effect_id": made.effect_id, "question_hash": made.question_hash, **data}
    receipt = journal.append(
        tx,
        f"approval.{what or made.state}",
        made.id,
        scope=made.scope,  # the scope of the effect: the person who answers may be in another scope
        session_id=made.session_id,
        state=made.state,
        summary=summary,
        data=about,
    )
    return made.replace(receipt=receipt)


def _required(tx: Tx, found: Approval, *, fresh: bool = False) -> ApprovalRequired:
    left = format_duration(max(found.expires_us - tx.now_us(), 0), parts=2)
    since = "was requested now" if fresh else f"was requested at {iso(found.requested_us)} by {found.requester}"
    error = ApprovalRequired(
        f"{_action(tx, found).quoted} needs approval: {found.id} {since}; it expires in {left}",
        f"a person runs: {hints.command('approve', short(found.id))}; then repeat this call "
        f"(to wait: {hints.command('approval', 'wait', short(found.id))})",
    )
    error.approval_id, error.fresh = found.id, fresh
    return error


def _denied(tx: Tx, found: Approval) -> ApprovalRequired:
    reason = f": {serial.clean(found.rationale, 300)}" if found.rationale else ", without a reason"
    error = ApprovalRequired(
        f"{_action(tx, found).quoted} was denied by {found.approver} at {iso(found.answered_us or 0)}{reason}",
        f"do something else, or change the request; this exact request stays denied until {iso(found.expires_us)} "
        f"(to ask again: {hints.command('approval', 'request', short(found.effect_id), '--again')})",
        code="approval_denied",
    )
    error.approval_id = found.id
    return error


def _action(tx: Tx, found: Approval) -> Action:
    """The action without its payload, for summaries and messages, which the journal stores."""
    from standfast.ledger import subjects  # the effects' modules import this one

    return subjects.journalled(tx, found.effect_id) or subjects.Action(found.tool, found.tool, False)


# -- the resource --------------------------------------------------------------------------------------


class Approvals(Resource):
    """Approvals: request, grant, deny, list, and wait for an answer."""

    __slots__ = ()

    def request(
        self,
        effect: str,
        *,
        why: str | None = None,
        gate: str | None = None,
        for_: Duration = "24h",
        again: bool = False,
    ) -> Approval:
        """Ask a person to approve a planned EFFECT (id, its end, or key). Repeating a request changes nothing.

        - `why`: the reason that the person reads.
        - `for_`: how long the request and its answer are valid.
        - `again`: ask again after a denial.

        Raises NotFound for an unknown effect and IllegalTransition for one that was sent.
        """
        for_us = duration_us(for_, "for_")
        user_code.refuse_nested(f"a request for approval of {serial.clean(effect, 60)!r}")

        def ask(tx: Tx) -> Approval:
            row = tx.one(SQL.held_effect, id=self._effect(tx, effect)["id"])
            if row["state"] not in ("planned", "failed"):
                raise IllegalTransition(
                    f"effect {row['tool']!r} ({short(row['id'])}) is {row['state']}: there is nothing to ask for",
                    hints.command("effect", "show", short(row["id"])),
                )
            asked = _asked(row, why, gate, for_us)
            found = _current(tx, asked)
            return _request(tx, asked) if found is None or (found.state == "denied" and again) else found

        made = self._write(ask)
        crash.point("approval.after_request")
        if made.receipt is not None:
            about = self._read(lambda tx: _action(tx, made)).quoted
            _tell(self.store, made.id, f"{about} needs approval", self.tx)
        return made

    @for_people("answers an approval")
    @transactional
    def grant(
        self, tx: Tx, approval: str, *, approver: str, rationale: str | None = None, method: str = "api"
    ) -> Approval | StandfastError:
        """Grant a request. The first answer wins. `method` says how the answer was obtained.

        Raises NotFound, IllegalTransition for a request that is answered or has expired, and Conflict if the stored
        question was changed after it was asked.
        """
        return self._answer(tx, approval, "granted", approver, rationale, method)

    @for_people("answers an approval")
    @transactional
    def deny(
        self, tx: Tx, approval: str, *, approver: str, rationale: str | None = None, method: str = "api"
    ) -> Approval | StandfastError:
        """Deny a request. The first answer wins; the errors are those of `grant`."""
        return self._answer(tx, approval, "denied", approver, rationale, method)

    def get(self, approval: str) -> Approval:
        """The approval and its state. If it has an answer, that is on disk. Raises NotFound."""
        found, now_us = self._read(lambda tx: (self._find(tx, approval), tx.now_us()))
        if self.tx is None and now_us - max(found.answered_us or 0, found.consumed_us or 0) < YOUNG_US:
            self.store.sync()
        return found

    @query
    def question(self, tx: Tx, approval: str) -> Question:
        """Show the question of one APPROVAL, as `standfast approve` does.

        Raises NotFound.
        """
        return _question(tx, self._find(tx, approval))

    @transactional
    def pose(self, tx: Tx, approval: str) -> Question | StandfastError:
        """The question for a person who is about to answer it.

        Raises NotFound, IllegalTransition as `grant` does, and Conflict if the question or the intent was changed after
        it was asked.
        """
        found = self._find(tx, approval)
        if found.state != "requested":
            return _too_late(tx, found.id)
        if not _answerable(tx, found):
            raise _not_exact(found)
        posed = _question(tx, found)
        if posed.current_hash == found.intent_hash:
            return posed
        raise Conflict(
            f"the request was changed after approval {found.id} was asked for: {posed.current_hash} now",
            "the next call of the effect asks again; see standfast approval list",
            code="intent_changed",
        )

    @query
    def list(
        self,
        tx: Tx,
        *,
        state: str | None = None,
        session: str | None = None,
        scope: str | None = None,
        everywhere: bool = False,
        after: str | None = None,
        limit: int = 50,
    ) -> list[Approval]:
        """List approvals, the newest first. `session` is an id or a key; `after` is the last id of a page."""
        if state is not None:
            one_of(state, STATES, "the state of an approval")
        asked: Row = {
            "after": after or _LAST,
            "everywhere": int(everywhere),
            "scope": self.scope if scope is None else scope,
            "session": session or "",
            "now_us": tx.now_us(),
            "limit": page_size(limit),
            **repositories.filtered(tx, everywhere=everywhere or session is not None),
        }
        rows = tx.all(SQL.waiting, **asked) if state == "requested" else tx.all(SQL.page, state=state or "", **asked)
        return [_seen(tx, row) for row in rows]

    def wait(self, approval: str, timeout: Duration | None = None) -> Approval:
        """Wait for a person's answer. Exit 0: granted. Exit 5: denied, expired, or the timeout has passed.

        - `timeout`: stop waiting after this time; the request stays.  [default: wait until the request expires]

        Any process may wait, at any time. Raises ApprovalRequired after the timeout. A request expires after 24 h, or
        after the duration that it was requested for, at most 30 days.
        """
        timeout_us = duration_us(timeout, "timeout")
        refused_inside(self.tx, "approvals.wait")
        user_code.refuse_nested(f"a wait for approval {serial.clean(approval, 60)!r}")
        deadline = Deadline(self.store.caller.clock, LIFETIME_MAX_US if timeout_us is None else timeout_us)
        with self.store.watch() as watch:
            while (found := self.get(approval)).state == "requested":
                left_s = deadline.left_s
                if left_s <= 0:
                    raise self.store.read(lambda tx: _Still(_required(tx, found))).error
                watch.wait(min(LOOK_AGAIN_S, left_s))
        return found

    # -- private methods ---------------------------------------------------------------------------

    def _answer(
        self, tx: Tx, approval: str, state: str, approver: str, rationale: str | None, method: str
    ) -> Approval | StandfastError:
        one_of(method, METHODS, "method")
        if not approver.strip() or not approver.isprintable() or len(approver) > NAME_MAX:
            raise InvalidInput(f"approver must be one line of 1 to {NAME_MAX} printable characters")
        words = _words(rationale, "rationale")
        found = self._find(tx, approval)
        if state == "granted" and found.state == "requested" and not _answerable(tx, found):
            raise _not_exact(found)
        crash.point("approval.before_answer")
        said: Row = {"approver": approver, "rationale": words, "method": method}
        row = tx.maybe(SQL.answer, id=found.id, state=state, now_us=tx.now_us(), **said)
        if row is None:
            return _too_late(tx, found.id)
        deferred_answers.make_ready(tx, row["session_id"])
        made = Approval.from_row(row)
        summary = f"{_action(tx, made).text}, {state} by {approver}" + (f": {words}" if words else "")
        return _journal_change(tx, made, summary, {"approver": approver, "method": method})

    def _find(self, tx: Tx, text: str) -> Approval:
        """An approval of any scope, by its id or the end of its id: the person who answers may be in another scope."""
        row = lookup.row_of(tx, text, "apr")
        if row is None:
            raise NotFound(f"there is no approval {serial.clean(text, 60)!r}", "standfast approval list --all")
        return _seen(tx, row)

    def _effect(self, tx: Tx, text: str) -> Row:
        row = lookup.row_of(tx, text, "eff", by_key=lambda key: tx.maybe(SQL.effect_by_key, scope=self.scope, key=key))
        if row is None:
            raise NotFound(
                f"there is no effect {serial.clean(text, 60)!r}",
                "plan it and ask: standfast effect begin TOOL NAME=VALUE --approve",
            )
        return row


def _question(tx: Tx, found: Approval) -> Question:
    row = tx.one(SQL.question, id=found.id)
    parts = questions.parts(row["question"])
    return Question(
        approval=found,
        text=row["question"],
        current_hash=row["intent_hash"],
        effect_state=row["state"],
        **parts._asdict(),
    )


def _answerable(tx: Tx, found: Approval) -> bool:
    """Whether a person may grant the request. Its stored question must be unchanged, and no attempt used."""
    return found.attempts_used == 0 and _question(tx, found).exact


def _not_exact(found: Approval) -> Conflict:
    return Conflict(
        f"the stored question of approval {found.id} was changed after it was asked: it has another hash",
        "the next call of the effect asks again; see standfast approval list",
        code="question_changed",
    )


class _Still(NamedTuple):
    """An error as a value: `store.read` would raise an error that it gets."""

    error: ApprovalRequired


def _too_late(tx: Tx, id: str) -> IllegalTransition:
    """The error for an answer that does not count: another answer was first, or the request has expired."""
    found = _seen(tx, tx.one(SQL.by_id, id=id))
    again = f"ask once more: {hints.command('approval', 'request', short(found.effect_id), '--again')}"
    if found.state == "expired":
        _expire(tx, found, "not answered in time")
        return IllegalTransition(
            f"approval {id} expired at {iso(found.expires_us)}; it can no longer be answered", again, code="expired"
        )
    what = "granted" if found.state == "consumed" else found.state
    return IllegalTransition(
        f"approval {id} was already {what} by {found.approver} at {iso(found.answered_us or 0)}: the first answer wins",
        again if found.state == "denied" else hints.command("approval", "show", short(id)),
    )


def _seen(tx: Tx, row: Row) -> Approval:
    """The approval for readers. It is expired after its time, also before a method has recorded the expiry."""
    found = Approval.from_row(row)
    over = found.state in ("requested", "granted") and found.expires_us <= tx.now_us()
    return found.replace(state="expired") if over else found


def _words(text: str | None, what: str) -> str | None:
    """A reason that can be stored; None if it is empty. Raises InvalidInput for a long one."""
    if not text:
        return None
    if len(text) > WORDS_MAX:
        raise InvalidInput(f"{what}: {len(text):,} characters, and the limit is {WORDS_MAX:,}")
    serial.canonical(text, what=what)
    return text


def _tell(store: Store, id: str, summary: str, tx: Tx | None) -> None:
    notices.tell(store, "approval.requested", id, summary, hints.command("approve", short(id)), tx=tx)
