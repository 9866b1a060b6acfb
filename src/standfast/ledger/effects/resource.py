"""`sf.effects`: list effects, settle doubts, and the split form for callers that cannot pass a function.

A shell, a hook or an MCP client calls `begin`, acts, and then calls `done` or `fail`. The holder is the actor, whose
lease ends by time. `plan` stops before anything is sent, and `dispatch` continues from there.

A person settles a doubt with `resolve` and gives the evidence.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from standfast import crash, hints, serial
from standfast.clock import Duration, duration_us
from standfast.core import journal, leases, repositories, user_code
from standfast.core.checks import one_of
from standfast.core.receipts import Receipt
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.db.store import Resource, query, refused_inside, transactional
from standfast.errors import ApprovalRequired, InvalidInput, LeaseLost, NotFound, StandfastError
from standfast.ids import Id, new_id, short
from standfast.ledger.effects import begin as begin_effect
from standfast.ledger.effects import identity, texts, transitions
from standfast.ledger.effects.begin import Doubt, Stopped
from standfast.ledger.effects.identity import Request
from standfast.ledger.effects.models import (
    Effect,
    Many,
    Verdict,
    find,
    found_session,
    found_task,
    illegal,
    judged,
    made,
)

if TYPE_CHECKING:
    from standfast.ledger.effects.declared import Declared, Options
    from standfast.ledger.effects.types import Idempotent

SQL = load(__name__)

STATES = ("planned", "dispatched", "acknowledged", "failed", "compensated", "superseded")
PAGE_MAX = 1000
SCANNED_MAX = 1000
"""Dispatched effects that one list of doubts checks. Fewer than this run at the same time."""

_LAST = "eff_z"  # greater than every id in every collation, because ids begin with 0 to 7


class Effects(Resource):
    """List effects, settle doubts, and begin and end effects by hand."""

    __slots__ = ()

    # -- lists --------------------------------------------------------------------------------

    @query
    def get(self, tx: Tx, effect: str) -> Effect:
        """One effect by id, key, or the end of its id. Raises NotFound."""
        return made(tx, find(tx, self.scope, effect))

    def in_doubt(self, *, everywhere: bool = False, limit: int = 50) -> Many:
        """List effects in doubt: they were sent, their outcome is unknown, and no live process runs them."""
        return self.list(state="in_doubt", everywhere=everywhere, limit=limit)

    @query
    def list(
        self,
        tx: Tx,
        *,
        state: str | None = None,
        tool: str | None = None,
        session: str | None = None,
        scope: str | None = None,
        everywhere: bool = False,
        limit: int = 50,
        after: Id | None = None,
    ) -> list[Effect]:
        """List effects, the newest first.

        - `state`: only list effects in this state: planned, dispatched, in_doubt, acknowledged, failed, …
        - `tool`: only of this tool.
        - `session`: only of this session.

        `after` is the last id of a page.
        """
        if state is not None:
            one_of(state, (*STATES, "in_doubt"), "the state of an effect", "standfast effect list --all")
        limit = max(1, min(limit, PAGE_MAX))
        try:
            session_id = None if session is None else found_session(tx, self.scope, session)["id"]
        except NotFound:
            return []  # a session that was never opened has no effects
        asked: Row = {
            "everywhere": int(everywhere),
            "scope": self.scope if scope is None else scope,
            "tool": tool or "",
            **repositories.filtered(tx, everywhere=everywhere or session_id is not None),
        }
        if state == "in_doubt":
            rows = tx.all(SQL.dispatched, session_id=session_id or "", limit=SCANNED_MAX, **asked)
            found = (made(tx, row) for row in sorted(rows, key=lambda row: row["id"], reverse=True))
            return [one for one in found if one.in_doubt and one.id < (after or _LAST)][:limit]
        page: Row = {"state": state or "", "after": after or _LAST, "limit": limit}
        if session_id is not None:
            rows = tx.all(SQL.page_of_session, session_id=session_id, tool=tool or "", **page)
        else:
            rows = tx.all(SQL.page, **page, **asked)
        return [made(tx, row) for row in rows]

    @query
    def may_replay(self, tx: Tx, effect: str) -> Verdict:
        """Show one EFFECT: its intent, its state, its history, and what the next call would do.

        Raises NotFound.
        """
        return judged(tx, find(tx, self.scope, effect))

    # -- the split form -------------------------------------------------------------------------

    def plan(self, tool: str, intent: serial.Json = None, **options: Any) -> Effect:
        """Record the intent and stop before it is sent. The options are those of `begin`."""
        return self.begin(tool, intent, plan=True, **options)

    def begin(
        self,
        tool: str,
        intent: serial.Json = None,
        *,
        by: str | tuple[str, ...] | None = None,
        key: str | None = None,
        session: str | None = None,
        task: str | None = None,
        idempotent: Idempotent = False,
        approve: bool = False,
        attempts: int = 1,
        again: bool = False,
        why: str | None = None,
        gate: str | None = None,
        plan: bool = False,
        per: str | None = None,
        for_: Duration | None = None,
        holder: str | None = None,
        context: dict[str, serial.Json] | None = None,
        still: Callable[[], bool] | None = None,
    ) -> Effect:
        """Record that TOOL is about to be used with INTENT: act only if the answer's state is "dispatched".

        - `intent`: the arguments, as JSON or as name=value words.
        - `by`: identify the effect by this field of the intent; may be given several times.
        - `key`: your own key of the effect, the same in every session.
        - `session`: the session it belongs to.
        - `task`: the task it is done for.
        - `idempotent`: the outside system honours the printed key: in doubt, send it again.
        - `approve`: require the approval of a person first.
        - `attempts`: one approval allows N dispatches, 1 to 10.
        - `again`: send it once more, although it was done; its key gets `#2`.
        - `why`: the reason that the approver reads.
        - `plan`: stop before it is sent.
        - `per`: `store` makes it one effect in all sessions.
        - `for_`: hold it for this long after your last command.  [default: 15m]

        The state "acknowledged" means that the effect was done before: its result is in the answer (exit 7). `task` is
        not part of the identity. `still` is called just before the dispatch, inside the transaction: if it returns
        False, the dispatch is refused. Raises InProgress (exit 75), EffectInDoubt (exit 6), ApprovalRequired,
        KeyConflict or Conflict as `s.effect` does.
        """
        from standfast.ledger.effects.declared import Options
        from standfast.ledger.effects.one_at_a_time import alone
        from standfast.ledger.questions import checked_attempts

        user_code.refuse_nested(f"effect {serial.clean(str(tool), 60)!r}")
        if not plan:
            self._refused_inside("effects.begin")
        checked_attempts(attempts)
        asking: dict[str, Any] = {"approve": approve, "retry": attempts, "why": why}
        options = Options().with_({"by": by, "key": key, "idempotent": idempotent, "per": per, **asking})
        wanted = self._wanted(tool, intent, options, session, again, context)
        task_id = self._task(task) if task is not None else None
        wanted = wanted._replace(task_id=task_id, plan=plan, gate=gate, holder=holder, still=_condition(still))
        wanted = wanted._replace(for_us=duration_us(for_, "for_"))
        id = new_id("eff")
        crash.point("effect.before_begin")
        with alone(self.store, wanted.scope, wanted.key, tool):
            try:
                effect = self._begin(id, wanted)
            except ApprovalRequired as error:
                from standfast.ledger import approvals

                approvals.tell(self.store, error, tx=self.tx)
                raise
            self._at_work(effect)
        crash.point("effect.after_begin")
        return self._keyed(effect)

    def dispatch(self, effect: str, *, for_: Duration | None = None, holder: str | None = None) -> Effect:
        """Record the next attempt of an effect that is planned or failed, then act.

        Raises IllegalTransition in any other state.
        """
        for_us = duration_us(for_, "for_")
        user_code.refuse_nested(f"effect {serial.clean(str(effect), 60)!r}")
        self._refused_inside("effects.dispatch")
        found = self._dispatch(effect, for_us, holder)
        self._at_work(found)
        return self._keyed(found)

    def done(
        self, effect: str, result: serial.Json = None, *, attempt: int | None = None, external_ref: str | None = None
    ) -> Effect:
        """Record the RESULT (JSON, or text; - is stdin) of an EFFECT that you began: id, its end, or key.

        - `result`: the answer of the outside system: JSON or text; - reads stdin.
        - `attempt`: the attempt that is done.  [default: the one you hold]
        - `external_ref`: the reference in the outside system: a URL, a number.

        The same result again changes nothing. Raises LeaseLost if another attempt began or another holder has it.
        """
        crash.point("effect.before_done")
        ended = self._done(effect, serial.dumps(result, what="result"), attempt, _line(external_ref))
        crash.point("effect.after_done")
        return self._over(ended)

    def fail(self, effect: str, why: str = "not applied", *, attempt: int | None = None) -> Effect:
        """Record that nothing was sent, and WHY. The next call sends it. If you do not know, leave it in doubt.

        - `why`: the reason.
        - `attempt`: the attempt that failed.  [default: the one you hold]
        """
        crash.point("effect.before_fail")
        ended = self._fail(effect, why, attempt)
        crash.point("effect.after_fail")
        return self._over(ended)

    # -- settlement of doubts -------------------------------------------------------------------

    @transactional
    def resolve(
        self,
        tx: Tx,
        effect: str,
        answer: str,
        *,
        evidence: str,
        result: serial.Json = None,
        attempt: int | None = None,
    ) -> Effect:
        """Settle an EFFECT in doubt after you looked at the outside system: "applied" or "not_applied".

        - `evidence`: where you looked, and what you saw.
        - `result`: the result it would have returned: JSON or text; - reads stdin.
        - `attempt`: the attempt you looked at; a later attempt stays as it is.

        The result must fit the type that the function returns. A second call may correct the result, but not the
        answer. The journal has both results.

        `attempt` is the attempt that was checked. Raises LeaseLost if another caller has begun a later one, InProgress
        while a live process runs the effect, IllegalTransition if it is not in doubt, InvalidInput for a result that
        does not fit.
        """
        if answer not in ("applied", "not_applied"):
            raise InvalidInput(f"{serial.clean(str(answer), 40)!r} is no answer", '"applied" or "not_applied"')
        if not evidence or not evidence.strip():
            raise InvalidInput("resolve needs evidence: where you looked, and what you saw", "--evidence TEXT")
        from standfast.config import people
        from standfast.ledger import approvals

        row = find(tx, self.scope, effect, lock=True)
        if attempt is not None and row["attempt"] != attempt:
            raise LeaseLost(
                f"attempt {attempt} of {texts.named(row)} is not in doubt any more: it is {row['state']} as attempt "
                f"{row['attempt']}",
                f"look again, at that one: {hints.command('effect', 'show', short(row['id']))}",
            )
        if approvals.asked(tx, row["id"]):
            refused = people.refusal("resolves an effect that needed approval")
            if refused is not None:
                raise refused
        text = None
        if answer == "applied":
            _refuse_misfit(row, result)
            text = serial.dumps(result, what="result")
        return self._resolved(tx, row, answer, text, serial.clean(evidence, transitions.EVIDENCE_MAX))

    @transactional
    def supersede(self, tx: Tx, effect: str, *, by: str | None = None, reason: str | None = None) -> Effect:
        """Record that a planned effect will not be sent. `by` is the effect that takes its place."""
        row = find(tx, self.scope, effect, lock=True)
        successor = find(tx, self.scope, by) if by is not None else None
        moved = tx.maybe(
            transitions.SQL.supersede,
            id=row["id"],
            successor_id=successor["id"] if successor else None,
            reason=_line(reason),
            now_us=tx.now_us(),
        )
        if moved is None:
            raise illegal(row, "superseded", "only a planned effect can be")
        said = f"{texts.shown(row)}{f': {reason}' if reason else ''}"
        receipt = transitions.journal_change(tx, "superseded", row, said, state="superseded")
        return self._fresh(tx, row, receipt)

    def compensate(self, effect: str, how: Callable[..., Any] | Declared[Any]) -> Effect:
        """Reverse an acknowledged effect, once. `how` is the declared effect, or a function of its result.

        The compensation is an effect of its own, so it may be in doubt too. One transaction records its result and
        marks the first effect as compensated. Raises IllegalTransition unless that is acknowledged.
        """
        refused_inside(self.tx, "effects.compensate")
        from standfast.ledger.effects.compensate import compensate

        compensate(self.store, self.get(effect), how)
        return self.get(effect)

    # -- private methods ------------------------------------------------------------------------

    def _refused_inside(self, what: str) -> None:
        if self.tx is not None:
            raise InvalidInput(
                f"{what} cannot run inside a transaction: the intent must be on disk before it is sent",
                "plan it inside, tx.effects.plan(…), and send it after the block: sf.effects.dispatch(id)",
            )

    @transactional
    def _begin(self, tx: Tx, id: str, wanted: Request) -> Effect | StandfastError:
        outcome = begin_effect.begin(tx, id, wanted)
        if isinstance(outcome, Doubt):
            if not begin_effect.remembered(tx, outcome.row, wanted.idempotent_us):
                return texts.in_doubt(outcome)
            again = begin_effect.Finding(outcome.row["attempt"], "again")
            outcome = begin_effect.begin(tx, id, wanted, again)
        if isinstance(outcome, Stopped):
            return texts.stopped(outcome, wanted.shown)
        if isinstance(outcome, StandfastError):
            return outcome
        return made(tx, tx.one(transitions.SQL.by_id, id=outcome.row["id"]))

    @transactional
    def _dispatch(self, tx: Tx, effect: str, for_us: int | None, holder: str | None) -> Effect | StandfastError:
        row = find(tx, self.scope, effect, lock=True)
        if row["state"] not in ("planned", "failed"):
            raise illegal(row, "dispatched", "only a planned or failed effect can be")
        sent = begin_effect.dispatch(tx, row, for_us=for_us, holder=holder)
        if isinstance(sent, Stopped):
            return texts.stopped(sent, texts.shown(row))
        return sent if isinstance(sent, StandfastError) else made(tx, tx.one(transitions.SQL.by_id, id=sent.row["id"]))

    @query
    def _session(self, tx: Tx, session: str) -> Row:
        return found_session(tx, self.scope, session)

    @query
    def _task(self, tx: Tx, task: str) -> str:
        return found_task(tx, self.keyspace, task)

    @query
    def _by_key(self, tx: Tx, key: str, scope: str) -> Effect:
        return made(tx, tx.one(transitions.SQL.by_key, scope=scope, key=key))

    @query
    def _maybe(self, tx: Tx, key: str, scope: str) -> Effect | None:
        row = tx.maybe(transitions.SQL.by_key, scope=scope, key=key)
        return None if row is None else made(tx, row)

    @query
    def _last_number(self, tx: Tx, key: str, scope: str) -> int:
        """The highest number of a key. The numbers have no gaps, so a few queries find it, however high it is."""

        def there(n: int) -> bool:
            return tx.maybe(transitions.SQL.by_key, scope=scope, key=identity.numbered(key, n)) is not None

        low, high = 0, 1
        while there(high):
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if there(middle) else (low, middle)
        return low

    def _wanted(
        self,
        tool: str,
        intent: serial.Json,
        options: Options,
        session: str | None,
        again: bool,
        context: dict[str, Any] | None,
    ) -> Request:
        from standfast.ledger.effects.intent import request

        within = self._session(session) if session is not None else None
        scope, session_id = (self.scope, None) if within is None else (within["scope"], within["id"])
        identity.checked_tool(tool)
        plain = serial.encode(intent, what="intent")
        made = request(tool, options, plain, scope=scope, session_id=session_id, fields=plain, context=context)
        if again:
            key, n = self._again(made.key, scope)
            made = made._replace(key=key, n=n)
        return made.within(within)

    def _again(self, key: str, scope: str) -> tuple[str, int]:
        """The key and the number of the next call: the last number if its effect is unfinished, else the next
        number."""
        last = self._last_number(key, scope)
        if last == 0:
            return key, 1
        found = self._by_key(identity.numbered(key, last), scope)
        n = last + 1 if found.state in ("acknowledged", "compensated", "superseded") else last
        return identity.numbered(key, n), n

    def _mine(self, tx: Tx, effect: str, attempt: int | None) -> Row:
        """The row, if the caller may end its attempt. The caller must name the attempt's number or be its holder."""
        row = find(tx, self.scope, effect, lock=True)
        if row["state"] not in ("dispatched", "acknowledged", "failed"):
            raise illegal(row, "ended", "it has not been sent")
        if attempt is not None:
            return {**row, "attempt": attempt}
        if row["state"] == "dispatched" and row["actor"] != tx.caller.actor and row["holder"] != tx.caller.holder:
            holder = row["actor"] or leases.holder_text(row["holder"])
            raise LeaseLost(
                f"{texts.named(row)} is held by {holder}, not by {tx.caller.actor}",
                f"if that holder is gone: {texts.settling_either(row)}",
            )
        return row

    @transactional
    def _done(
        self, tx: Tx, effect: str, text: str, attempt: int | None, external_ref: str | None
    ) -> Effect | StandfastError:
        row = self._mine(tx, effect, attempt)
        if row["state"] == "acknowledged" and row["result"] == text:
            return made(tx, row)
        ended = transitions.acknowledge(tx, row, text, external_ref=external_ref, source="said")
        return ended if isinstance(ended, StandfastError) else self._fresh(tx, row, ended)

    @transactional
    def _fail(self, tx: Tx, effect: str, why: str, attempt: int | None) -> Effect | StandfastError:
        row = self._mine(tx, effect, attempt)
        if row["state"] == "failed":
            return made(tx, row)
        ended = transitions.fail(tx, row, why, source="said")
        return ended if isinstance(ended, StandfastError) else self._fresh(tx, row, ended)

    def _over(self, effect: Effect) -> Effect:
        begin_effect.BEGUN.discard((effect.id, effect.attempt))
        return effect

    def _fresh(self, tx: Tx, row: Row, receipt: Receipt | None) -> Effect:
        return made(tx, tx.one(transitions.SQL.by_id, id=row["id"])).replace(receipt=receipt)

    def _resolved(self, tx: Tx, row: Row, answer: str, text: str | None, evidence: str) -> Effect:
        wanted = "acknowledged" if answer == "applied" else "failed"
        if row["state"] == wanted and row["result"] == text:
            return made(tx, row)
        if text is not None and row["state"] == "acknowledged" and _resolved_by_a_person(tx, row):
            return self._fresh(tx, row, transitions.correct(tx, row, text, evidence))
        if row["state"] != "dispatched":
            raise illegal(row, wanted, "only an effect in doubt can be resolved")
        if begin_effect.doubtful(tx, row) is None:
            raise texts.in_progress(tx, row)
        return self._fresh(tx, row, transitions.resolve(tx, row, text, evidence))

    def _at_work(self, effect: Effect) -> None:
        if effect.state == "dispatched" and self.store.memory is not None:
            journal.remember_about(self.store, effect.id)  # remember the row before the caller acts
        if effect.state == "dispatched" and effect.holder == self.store.caller.holder:
            begin_effect.BEGUN.add((effect.id, effect.attempt))
            if effect.holder.startswith("p:"):
                leases.renewer(self.store).start()

    def _keyed(self, effect: Effect) -> Effect:
        from standfast.ledger.effects.one_at_a_time import store_id

        if effect.state != "dispatched":
            return effect
        return effect.replace(call_key=identity.call_key(store_id(self.store), effect.scope, effect.key))


def _resolved_by_a_person(tx: Tx, row: Row) -> bool:
    """Whether a person gave the result of this attempt, and the function did not return it."""
    said = tx.maybe(transitions.SQL.resolved, id=row["id"]) if row["pruned_us"] is None else None
    return (
        said is not None and said["state"] == "acknowledged" and serial.read(said["data"])["attempt"] == row["attempt"]
    )


def _refuse_misfit(row: Row, result: serial.Json) -> None:
    """Raises InvalidInput for a result that the function could not have returned."""
    if row["result_shape"] is None:
        return
    from standfast.serial import shapes

    said = shapes.misfit(serial.encode(result, what="result"), serial.read(row["result_shape"]))
    if said is not None:
        raise InvalidInput(f"this result is not what {texts.named(row)} returns: {said}", texts.settling(row))


def _condition(still: Callable[[], bool] | None) -> Callable[[], bool] | None:
    if still is None or callable(still):
        return still
    raise InvalidInput(f"still is a function without arguments, not {type(still).__name__}", "still=lambda: True")


def _line(text: str | None) -> str | None:
    return None if text is None else serial.clean(text, transitions.ERROR_MAX)
