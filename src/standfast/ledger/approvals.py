"""Approvals: a person's yes to one question, before anything is sent.

    requested ──▶ granted ──▶ consumed
        ├───────▶ denied
        └───────▶ expired ◀── granted

The question is one text: tool, scope, key, the directory where a command runs, the number of attempts,
and the exact action. It is stored with its hash when it is asked and never changed. The transaction that
dispatches the effect builds the question again from what it is about to send, compares the hash, and uses
one attempt of the grant if it has not expired. The last attempt consumes the grant. The first answer wins.
A denial counts until its request expires; after that the same question may be asked again.

Time is judged inside the transaction. `expired` is written down by the next verb that writes and
notices it; readers see it at once.

`require` is what an effect calls before it dispatches; the room is for whoever answers. Nothing
here asks a person: that is `standfast approve`, which wants a terminal.
"""

from __future__ import annotations

from typing import NamedTuple

from standfast import crash, serial
from standfast.clock import DAY_US, SECOND_US, format_duration, iso
from standfast.config.people import for_people
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.db.store import Room, Store, query, refused_inside, verb
from standfast.errors import ApprovalRequired, Conflict, IllegalTransition, InvalidInput, NotFound, StandfastError
from standfast.footings import journal, notices, repositories
from standfast.footings.journal import Receipt
from standfast.ids import is_id, like_suffix, new_id, short

SQL = load(__name__)

STATES = ("requested", "granted", "denied", "expired", "consumed")
DEFAULT_US = DAY_US
LIFETIME_MAX_US = 30 * DAY_US
ATTEMPTS_MAX = 10
METHODS = ("terminal", "passkey", "api")
"""How an answer was obtained."""
WORDS_MAX = 4000
NAME_MAX = 200
PAGE_MAX = 1000
LOOK_AGAIN_S = 1.0
"""While waiting: the bell is only a hint, so the row is read again at least this often."""
YOUNG_US = SECOND_US
"""An answer younger than this may be visible and not yet on disk."""

_ACTION = '{"action":'
_LAST = "apr_z"  # sorts behind every id, in every collation: an id begins with 0 to 7


class Approval(NamedTuple):
    """One request and what became of it."""

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
    """The effect's attempt that used it last."""
    attempts: int | None
    """How many dispatches the question asks for."""
    attempts_used: int | None
    receipt: Receipt | None = None


class Question(NamedTuple):
    """What an approver reads: the hashed text and its parts, and what the requester says beside it."""

    approval: Approval
    text: str | None
    """The stored question; None for a request of an older version."""
    tool: str
    scope: str
    effect_key: str
    directory: str | None
    """Where the command runs; None for an effect that is not a command."""
    attempts: int
    intent: str | None
    """The exact action, as canonical text."""
    current_hash: str | None
    """The hash of the effect's intent now; it differs from the approval's if the intent was changed since."""
    effect_state: str | None
    session_key: str | None
    agent: str | None
    description: str | None
    """The agent's own words about the call. They are not part of the question."""

    @property
    def exact(self) -> bool:
        """Whether `text` is, byte for byte, what the approval is bound to."""
        if self.text is None or serial.hash_text(self.text) != self.approval.question_hash:
            return False
        return self.approval.attempts == self.attempts


def question_text(effect: Row) -> str:
    """The question for `effect` (tool, scope, key, intent, context): canonical JSON, fields in this order."""
    context = _context(effect)
    fields = {"attempts": checked_attempts(context.get("attempts", 1)), "key": effect["key"], "scope": effect["scope"]}
    fields["tool"] = effect["tool"]
    if context.get("cwd") is not None:
        fields["directory"] = context["cwd"]
    # The intent is canonical text already: written in front, because "action" sorts first.
    return f"{_ACTION}{effect['intent']},{serial.canonical(fields)[1:]}"


def _context(effect: Row) -> dict[str, serial.Json]:
    found = serial.read(effect["context"])
    return found if isinstance(found, dict) else {}


def checked_attempts(number: object) -> int:
    """How many dispatches a question may ask for."""
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= ATTEMPTS_MAX:
        raise InvalidInput(f"attempts must be between 1 and {ATTEMPTS_MAX} (got {number!r})", "for example: attempts=3")
    return number


# -- for effects -----------------------------------------------------------------------------------


def require(
    tx: Tx,
    effect: Row,
    *,
    attempt: int,
    why: str | None = None,
    gate: str | None = None,
    for_us: int = DEFAULT_US,
) -> StandfastError | None:
    """None if `effect` may be dispatched as attempt `attempt`: one attempt of its grant is used in `tx`.

    Otherwise the ApprovalRequired to return; the request is recorded if there was none.
    `effect` has id, scope, session_id, tool, key, intent, intent_hash and context of what will really be done.
    The caller holds the effect's row in this transaction, and tells with `tell` once it is committed.
    """
    asked = _asked(effect, why, gate, for_us)
    found = _current(tx, asked)
    if found is None:
        return _required(tx, _request(tx, asked), fresh=True)
    if found.state == "granted":
        _consume(tx, found, attempt, asked.attempts)
        return None
    return _required(tx, found) if found.state == "requested" else _denied(found)


def asked(tx: Tx, effect_id: str) -> bool:
    """Whether anybody ever asked for this effect: then it needs a yes, however it is called this time."""
    return tx.maybe(SQL.asked, effect_id=effect_id) is not None


def tell(store: Store, error: StandfastError, *, tx: Tx | None = None) -> None:
    """Run the `notify` command for a request that was just recorded; nothing for any other error."""
    if isinstance(error, ApprovalRequired) and error.fresh and error.approval_id:
        _tell(store, error.approval_id, error.message, tx)


class _Asked(NamedTuple):
    effect: Row
    question: str
    question_hash: str
    attempts: int
    why: str | None
    gate: str | None
    for_us: int


def _asked(effect: Row, why: str | None, gate: str | None, for_us: int) -> _Asked:
    question, attempts = question_text(effect), _context(effect).get("attempts", 1)
    return _Asked(effect, question, serial.hash_text(question), attempts, why, gate, _lifetime(for_us))


def _current(tx: Tx, asked: _Asked) -> Approval | None:
    """The approval that counts for this question now; what has lapsed is written down on the way."""
    now_us = tx.now_us()
    valid: dict[str, Approval] = {}
    for row in tx.all(SQL.standing, effect_id=asked.effect["id"], question_hash=asked.question_hash):
        found = _approval(row)
        answerable = found.state in ("requested", "granted")
        if found.question_hash != asked.question_hash:
            if answerable:
                _expire(tx, found, "the question was changed after it was asked for")
        elif found.expires_us > now_us:
            valid.setdefault(found.state, found)
        elif answerable:
            _expire(tx, found, "nobody answered in time" if found.state == "requested" else "granted, not used in time")
    # By what they say, not by their time: wall clocks may run backwards.
    return next((valid[state] for state in ("granted", "requested", "denied") if state in valid), None)


def _request(tx: Tx, asked: _Asked) -> Approval:
    crash.point("approval.before_request")
    effect = asked.effect
    row = tx.maybe(
        SQL.request,
        id=new_id("apr"),
        scope=effect["scope"],
        session_id=effect["session_id"],
        effect_id=effect["id"],
        gate=_words(asked.gate, "gate"),
        tool=effect["tool"],
        intent_hash=effect["intent_hash"],
        question=asked.question,
        question_hash=asked.question_hash,
        attempts=asked.attempts,
        requester=tx.caller.actor,
        why=_words(asked.why, "why"),
        now_us=tx.now_us(),
        expires_us=tx.now_us() + asked.for_us,
    )
    if row is None:  # asked for at this moment by somebody who does not hold the effect's row
        found = _current(tx, asked)
        assert found is not None
        return found
    made = _approval(row)
    said = f"{made.tool}: {made.why}" if made.why else made.tool
    return _journalled(tx, made, said, {"expires_us": made.expires_us, "gate": made.gate})


def _consume(tx: Tx, found: Approval, attempt: int, attempts: int) -> None:
    crash.point("approval.before_consume")
    bound: Row = {"id": found.id, "question_hash": found.question_hash, "attempts": attempts}
    row = tx.one(SQL.consume, attempt=attempt, now_us=tx.now_us(), **bound)
    tx.run(SQL.bind, effect_id=found.effect_id, approval_id=found.id)
    used = _approval(row)
    count = f"attempt {used.attempts_used} of {used.attempts}"
    said = f"{found.tool}, granted by {found.approver}" + (f", {count}" if used.attempts != 1 else "")
    data: dict[str, serial.Json] = {"attempt": attempt, "attempts_used": used.attempts_used, "attempts": used.attempts}
    _journalled(tx, used, said, data, what="consumed")


def _expire(tx: Tx, found: Approval, reason: str) -> Approval:
    """Write down that it is over. Somebody else may have done so, or answered, a moment before."""
    row = tx.maybe(SQL.expire, id=found.id)
    return found if row is None else _journalled(tx, _approval(row), f"{found.tool}: {reason}", {"reason": reason})


def _journalled(
    tx: Tx, made: Approval, summary: str, data: dict[str, serial.Json], *, what: str | None = None
) -> Approval:
    about = {"effect_id": made.effect_id, "question_hash": made.question_hash, **data}
    receipt = journal.append(
        tx,
        f"approval.{what or made.state}",
        made.id,
        scope=made.scope,  # whoever answers may stand elsewhere; the answer belongs to the effect's scope
        session_id=made.session_id,
        state=made.state,
        summary=summary,
        data=about,
    )
    return made._replace(receipt=receipt)


def _required(tx: Tx, found: Approval, *, fresh: bool = False) -> ApprovalRequired:
    left = format_duration(max(found.expires_us - tx.now_us(), 0), parts=2)
    since = "has been asked for now" if fresh else f"was asked for at {iso(found.requested_us)} by {found.requester}"
    error = ApprovalRequired(
        f"{_named(found)} needs a person's yes: approval {found.id} {since}; it expires in {left}",
        f"a person runs: standfast approve {short(found.id)}; then do the same again "
        f"(to wait: standfast approval wait {short(found.id)})",
    )
    error.approval_id, error.fresh = found.id, fresh
    return error


def _denied(found: Approval) -> ApprovalRequired:
    reason = f": {serial.clean(found.rationale, 300)}" if found.rationale else ", without a reason"
    error = ApprovalRequired(
        f"{_named(found)} was denied by {found.approver} at {iso(found.answered_us or 0)}{reason}",
        f"do something else, or change what is to be done; these very bytes stay denied until {iso(found.expires_us)} "
        f"(to ask once more: standfast approval request {short(found.effect_id)} --again)",
        code="approval_denied",
    )
    error.approval_id = found.id
    return error


def _named(found: Approval) -> str:
    return f"effect {found.tool!r} ({short(found.effect_id)})"


# -- the room --------------------------------------------------------------------------------------


class Approvals(Room):
    """Ask, answer, look, wait."""

    __slots__ = ()

    def request(
        self,
        effect: str,
        *,
        why: str | None = None,
        gate: str | None = None,
        for_us: int = DEFAULT_US,
        again: bool = False,
    ) -> Approval:
        """Ask for `effect` (id, short id or key), which is planned; asked before, that request stands.

        A denial stands too, unless `again`. Raises NotFound for an unknown effect and
        IllegalTransition for one that is past asking.
        """
        made = self._ask(effect, why, gate, for_us, again)
        crash.point("approval.after_request")
        if made.receipt is not None:
            _tell(self.store, made.id, f"{_named(made)} needs a person's yes", self.tx)
        return made

    @verb
    def _ask(
        self, tx: Tx, effect: str, why: str | None, gate: str | None, for_us: int, again: bool
    ) -> Approval | StandfastError:
        row = self._effect(tx, effect)
        if isinstance(row, StandfastError):
            return row
        if row["state"] not in ("planned", "failed"):
            return IllegalTransition(
                f"effect {row['tool']!r} ({short(row['id'])}) is {row['state']}: there is nothing to ask for",
                f"standfast effect show {short(row['id'])}",
            )
        asked = _asked(row, why, gate, for_us)
        found = _current(tx, asked)
        if found is None or (found.state == "denied" and again):
            return _request(tx, asked)
        return found

    @for_people("answers an approval")
    @verb
    def grant(
        self, tx: Tx, approval: str, *, approver: str, rationale: str | None = None, method: str = "api"
    ) -> Approval | StandfastError:
        """Say yes. First answer wins. `method` says how the answer was obtained.

        Raises NotFound, IllegalTransition for what is answered or expired, saying by whom and when, and Conflict if
        the stored question is not the one that was asked.
        """
        return self._answer(tx, approval, "granted", approver, rationale, method)

    @for_people("answers an approval")
    @verb
    def deny(
        self, tx: Tx, approval: str, *, approver: str, rationale: str | None = None, method: str = "api"
    ) -> Approval | StandfastError:
        """Say no. First answer wins; the errors are those of `grant`."""
        return self._answer(tx, approval, "denied", approver, rationale, method)

    def get(self, approval: str) -> Approval:
        """The approval as it stands now. An answer that is read here is on disk. Raises NotFound."""
        found, now_us = self._look(approval)
        if self.tx is None and now_us - max(found.answered_us or 0, found.consumed_us or 0) < YOUNG_US:
            self.store.sync()
        return found

    @query
    def question(self, tx: Tx, approval: str) -> Question | StandfastError:
        """What is or was asked: the stored question and its parts. Raises NotFound."""
        found = self._find(tx, approval)
        return found if isinstance(found, StandfastError) else _question(tx, found)

    @verb
    def pose(self, tx: Tx, approval: str) -> Question | StandfastError:
        """The question for a person about to answer it, while it can be answered.

        Raises NotFound, IllegalTransition as `grant` does, and Conflict if the stored bytes are not
        the ones it was asked for.
        """
        found = self._find(tx, approval)
        if isinstance(found, StandfastError):
            return found
        if found.state != "requested":
            return _too_late(tx, found.id)
        if not _answerable(tx, found):
            return _not_exact(found)
        posed = _question(tx, found)
        if posed.current_hash == found.intent_hash:
            return posed
        return Conflict(
            f"what is to be done was changed after approval {found.id} was asked for: {posed.current_hash} now",
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
    ) -> list[Approval] | StandfastError:
        """The newest first; of one state, or of one session (id or key). `after` is the last id of a page."""
        if state is not None and state not in STATES:
            return InvalidInput(
                f"{serial.clean(state, 40)!r} is no state of an approval", f"one of {', '.join(STATES)}"
            )
        asked: Row = {
            "after": after or _LAST,
            "everywhere": int(everywhere),
            "scope": self.scope if scope is None else scope,
            "session": session or "",
            "now_us": tx.now_us(),
            "limit": max(1, min(limit, PAGE_MAX)),
            **repositories.filtered(tx, everywhere=everywhere or session is not None),
        }
        rows = tx.all(SQL.waiting, **asked) if state == "requested" else tx.all(SQL.page, state=state or "", **asked)
        return [_approval(row) for row in rows]

    def wait(self, approval: str, timeout_s: float | None = None) -> Approval:
        """Return once it is answered or has expired; it is only a row, so any process may wait, also later.

        Raises ApprovalRequired if `timeout_s` passes first.
        """
        refused_inside(self.tx, "approvals.wait")
        import time

        end = float("inf") if timeout_s is None else time.monotonic() + timeout_s
        with self.store.watch() as watch:
            while (found := self.get(approval)).state == "requested":
                left_s = end - time.monotonic()
                if left_s <= 0:
                    raise self.store.read(lambda tx: _Still(_required(tx, found))).error
                watch.wait(min(LOOK_AGAIN_S, left_s))
        return found

    # -- parts of the verbs above ----------------------------------------------------------------

    def _answer(
        self, tx: Tx, approval: str, state: str, approver: str, rationale: str | None, method: str
    ) -> Approval | StandfastError:
        if method not in METHODS:
            return InvalidInput(f"{serial.clean(str(method), 40)!r} is no method", f"one of {', '.join(METHODS)}")
        if not approver.strip() or not approver.isprintable() or len(approver) > NAME_MAX:
            return InvalidInput(f"approver must be one line of 1 to {NAME_MAX} printable characters")
        words = _words(rationale, "rationale")
        found = self._find(tx, approval)
        if isinstance(found, StandfastError):
            return found
        if state == "granted" and found.state == "requested" and not _answerable(tx, found):
            return _not_exact(found)
        crash.point("approval.before_answer")
        said: Row = {"approver": approver, "rationale": words, "method": method}
        row = tx.maybe(SQL.answer, id=found.id, state=state, now_us=tx.now_us(), **said)
        if row is None:
            return _too_late(tx, found.id)
        made = _approval(row)
        summary = f"{made.tool}, {state} by {approver}" + (f": {words}" if words else "")
        return _journalled(tx, made, summary, {"approver": approver, "method": method})

    @query
    def _look(self, tx: Tx, approval: str) -> tuple[Approval, int] | StandfastError:
        found = self._find(tx, approval)
        return found if isinstance(found, StandfastError) else (found, tx.now_us())

    def _find(self, tx: Tx, text: str) -> Approval | StandfastError:
        """By id or by its end, in every scope: whoever answers may stand anywhere."""
        rows = _named_rows(tx, text, "apr")
        if len(rows) == 1:
            return _approval(rows[0])
        return _not_one("approval", text, rows, "standfast approval list --all")

    def _effect(self, tx: Tx, text: str) -> Row | StandfastError:
        rows = _named_rows(tx, text, "eff") or tx.all(SQL.effect_by_key, scope=self.scope, key=text)
        hint = "standfast effect list" if rows else "plan it and ask: standfast effect begin TOOL NAME=VALUE --approve"
        return rows[0] if len(rows) == 1 else _not_one("effect", text, rows, hint)


def _question(tx: Tx, found: Approval) -> Question:
    row = tx.one(SQL.question, id=found.id)
    text: str | None = row["question"]
    fields = _fields(text)
    description = _context(row).get("description")
    return Question(
        approval=found,
        text=text,
        tool=str(fields.get("tool", found.tool)),
        scope=str(fields.get("scope", found.scope)),
        effect_key=str(fields.get("key", row["key"])),
        directory=None if fields.get("directory") is None else str(fields["directory"]),
        attempts=fields.get("attempts", 1),
        intent=fields.get("action"),
        current_hash=row["intent_hash"],
        effect_state=row["state"],
        session_key=row["session_key"],
        agent=row["agent"],
        description=description if isinstance(description, str) else None,
    )


def _answerable(tx: Tx, found: Approval) -> bool:
    """Whether an approver may answer it: the stored question is the one that was asked, and nothing is used yet."""
    return found.attempts_used == 0 and _question(tx, found).exact


def _fields(text: str | None) -> dict[str, serial.Json]:
    """The parts of a stored question; the action as the text that it is in there."""
    if text is None or not text.startswith(_ACTION):
        return {}
    from json import JSONDecoder

    try:
        _, end = JSONDecoder().raw_decode(text, len(_ACTION))
        rest = serial.read("{" + text[end:].removeprefix(","))
    except (ValueError, RecursionError):
        return {}
    return {**rest, "action": text[len(_ACTION) : end]} if isinstance(rest, dict) else {}


def _not_exact(found: Approval) -> Conflict:
    return Conflict(
        f"the stored question of approval {found.id} is not the one that was asked: its hash is not the recorded one",
        "the next call of the effect asks again; see standfast approval list",
        code="question_changed",
    )


class _Still(NamedTuple):
    """An error as a value: a query would raise it."""

    error: ApprovalRequired


def _too_late(tx: Tx, id: str) -> IllegalTransition:
    """Why this answer does not count: who was first, or that time has run out."""
    found = _approval(tx.one(SQL.by_id, id=id, now_us=tx.now_us()))
    again = f"ask once more: standfast approval request {short(found.effect_id)} --again"
    if found.state == "expired":
        _expire(tx, found, "nobody answered in time")
        return IllegalTransition(
            f"approval {id} expired at {iso(found.expires_us)}; nobody can answer it any more", again, code="expired"
        )
    what = "granted" if found.state == "consumed" else found.state
    return IllegalTransition(
        f"approval {id} was already {what} by {found.approver} at {iso(found.answered_us or 0)}: the first answer wins",
        again if found.state == "denied" else f"standfast approval show {short(id)}",
    )


def _named_rows(tx: Tx, text: str, prefix: str) -> list[Row]:
    moment: Row = {"now_us": tx.now_us()} if prefix == "apr" else {}
    if is_id(text):
        return tx.all(SQL.by_id if prefix == "apr" else SQL.effect_by_id, id=text, **moment)
    suffix = like_suffix(text, prefix=prefix)
    if suffix is None:
        return []
    ends = SQL.by_suffix if prefix == "apr" else SQL.effect_by_suffix
    return tx.all(ends, pattern=f"{prefix}_%{suffix}", **moment)


def _not_one(noun: str, text: str, rows: list[Row], hint: str) -> StandfastError:
    shown = serial.clean(text, 60)
    if rows:
        return InvalidInput(f"{shown!r} names more than one {noun}", "give more of its characters")
    return NotFound(f"there is no {noun} {shown!r}", hint)


def _approval(row: Row) -> Approval:
    return Approval(*(row[name] for name in Approval._fields[:-1]))


def _lifetime(for_us: int) -> int:
    if not 0 < for_us <= LIFETIME_MAX_US:
        raise InvalidInput("an approval lasts longer than nothing and at most 30 days", "for example: --for 2h")
    return for_us


def _words(text: str | None, what: str) -> str | None:
    """What a person or an agent gave as a reason, if it can be stored."""
    if not text:
        return None
    if len(text) > WORDS_MAX:
        raise InvalidInput(f"{what}: {len(text):,} characters, and the limit is {WORDS_MAX:,}")
    serial.canonical(text, what=what)
    return text


def _tell(store: Store, id: str, summary: str, tx: Tx | None) -> None:
    notices.tell(store, "approval.requested", id, summary, f"standfast approve {short(id)}", tx=tx)
