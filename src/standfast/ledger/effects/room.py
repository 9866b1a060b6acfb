"""`sf.effects`: what was sent, what is in doubt, and the split form for whoever acts elsewhere.

A function can be called between intent and result; a shell, a hook or an MCP client cannot hand
us one. It says `begin`, acts, and says `done` or `fail`. The holder is then the actor, whose
lease ends by time. `plan` stops before anything is sent; `dispatch` goes on from there.

A person settles what is in doubt with `resolve`, and says by what evidence.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from standfast import crash, serial
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.db.store import Room, query, refused_inside, verb
from standfast.errors import ApprovalRequired, InvalidInput, LeaseLost, NotFound, StandfastError
from standfast.footings import foreign, journal, leases, repositories
from standfast.footings.journal import Receipt
from standfast.ids import new_id, short
from standfast.ledger.effects import finding, identity, transitions, words
from standfast.ledger.effects.finding import Doubt, Stopped
from standfast.ledger.effects.identity import Wanted
from standfast.ledger.effects.nouns import Effect, Many, Verdict, find, found_session, found_task, illegal, judged, made

if TYPE_CHECKING:
    from standfast.ledger.effects.declared import Declared, Idempotent

SQL = load(__name__)

STATES = ("planned", "dispatched", "acknowledged", "failed", "compensated", "superseded")
PAGE_MAX = 1000
SCANNED_MAX = 1000
"""Dispatched effects looked at for those in doubt: more than this are not at work at once."""

_LAST = "eff_z"  # sorts behind every id, in every collation: an id begins with 0 to 7


class Effects(Room):
    """Look, settle, and begin by hand."""

    __slots__ = ()

    # -- looking --------------------------------------------------------------------------------

    @query
    def get(self, tx: Tx, effect: str) -> Effect | StandfastError:
        """One effect by id, key, or the end of its id. Raises NotFound."""
        row = find(tx, self.scope, effect)
        return row if isinstance(row, StandfastError) else made(tx, row)

    def in_doubt(self, *, everywhere: bool = False, limit: int = 50) -> Many:
        """What was sent while nobody alive is at it: each needs a probe, the same key again, or a person."""
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
        after: str | None = None,
    ) -> list[Effect] | StandfastError:
        """The newest first; of one state (or "in_doubt"), tool or session. `after` is the last id of a page."""
        if state is not None and state not in (*STATES, "in_doubt"):
            known = ", ".join((*STATES, "in_doubt"))
            return InvalidInput(f"{serial.clean(state, 40)!r} is no state of an effect", f"one of {known}")
        limit = max(1, min(limit, PAGE_MAX))
        within = None if session is None else found_session(tx, self.scope, session)
        if isinstance(within, NotFound):
            return []  # a session nobody has opened has no effects
        if isinstance(within, StandfastError):
            return within
        session_id = within["id"] if within is not None else None
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
    def may_replay(self, tx: Tx, effect: str) -> Verdict | StandfastError:
        """Whether doing it again would be safe, and what the next call would do. Raises NotFound."""
        row = find(tx, self.scope, effect)
        return row if isinstance(row, StandfastError) else judged(tx, row)

    # -- the split form -------------------------------------------------------------------------

    def plan(self, tool: str, intent: serial.Json = None, **options: Any) -> Effect:
        """Write down what is to be done, and stop before sending it."""
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
        for_us: int | None = None,
        holder: str | None = None,
        context: dict[str, serial.Json] | None = None,
        still: Callable[[], bool] | None = None,
    ) -> Effect:
        """Record the intent as being sent: act only if the answer's state is "dispatched".

        "acknowledged" means that it was done before, and its result is there. `task` is what it is done for:
        part of the row, not of the identity. `attempts` is the number of dispatches that one grant allows, 1 to 10.
        `still` is asked inside the transaction, just before the dispatch: False refuses it. Raises InProgress,
        EffectInDoubt, ApprovalRequired, KeyConflict or Conflict as `s.effect` does.
        """
        from standfast.ledger.effects.alone import alone

        foreign.refuse_nested(f"effect {serial.clean(str(tool), 60)!r}")
        asking: dict[str, Any] = {"approve": approve, "attempts": attempts, "why": why}
        work = _by_hand(tool, intent, by=by, key=key, idempotent=idempotent, per=per, **asking)
        within = self._session(session) if session is not None else None
        wanted = self._wanted(work, within, again, context)
        task_id = self._task(task) if task is not None else None
        wanted = wanted._replace(task_id=task_id, plan=plan, gate=gate, for_us=for_us, holder=holder, still=still)
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

    def dispatch(self, effect: str, *, for_us: int | None = None, holder: str | None = None) -> Effect:
        """Send what was planned, or what is known not to have been applied: act on the answer.

        Raises IllegalTransition from any other state.
        """
        foreign.refuse_nested(f"effect {serial.clean(str(effect), 60)!r}")
        found = self._dispatch(effect, for_us, holder)
        self._at_work(found)
        return self._keyed(found)

    def done(
        self, effect: str, result: serial.Json = None, *, attempt: int | None = None, external_ref: str | None = None
    ) -> Effect:
        """Record the result. The same result again is no error.

        Raises LeaseLost if another attempt was begun, or it is held by somebody else.
        """
        crash.point("effect.before_done")
        ended = self._done(effect, serial.dumps(result, what="result"), attempt, _line(external_ref))
        crash.point("effect.after_done")
        return self._over(ended)

    def fail(self, effect: str, why: str, *, attempt: int | None = None) -> Effect:
        """Record that nothing was sent: the next call acts. Only if you know; otherwise leave it in doubt."""
        crash.point("effect.before_fail")
        ended = self._fail(effect, why, attempt)
        crash.point("effect.after_fail")
        return self._over(ended)

    # -- settling -------------------------------------------------------------------------------

    @verb
    def resolve(
        self,
        tx: Tx,
        effect: str,
        answer: str,
        *,
        evidence: str,
        result: serial.Json = None,
        attempt: int | None = None,
    ) -> Effect | StandfastError:
        """Settle what is in doubt: "applied" (with its result) or "not_applied", and by what evidence.

        The result has to look like what the function returns. A second call may correct the result that a person
        gave, not the answer; the journal keeps both.

        `attempt` is the one that was looked at: what is known of it says nothing about a later one, which
        somebody may have settled, sent and lost meanwhile. Raises LeaseLost then, InProgress while somebody
        alive is at it, IllegalTransition for what is not in doubt, InvalidInput for a result that does not fit.
        """
        if answer not in ("applied", "not_applied"):
            return InvalidInput(f"{serial.clean(str(answer), 40)!r} is no answer", '"applied" or "not_applied"')
        if not evidence or not evidence.strip():
            return InvalidInput("resolve needs evidence: what was looked at, and what it said", "--evidence TEXT")
        from standfast.config import people
        from standfast.ledger import approvals

        row = find(tx, self.scope, effect, lock=True)
        if isinstance(row, StandfastError):
            return row
        if attempt is not None and row["attempt"] != attempt:
            return LeaseLost(
                f"attempt {attempt} of {words.named(row)} is not in doubt any more: it is {row['state']} as attempt "
                f"{row['attempt']}",
                f"look again, at that one: standfast effect show {short(row['id'])}",
            )
        if approvals.asked(tx, row["id"]):
            refused = people.refusal("resolves an effect that needed approval")
            if refused is not None:
                return refused
        misfit = _misfit(row, result) if answer == "applied" else None
        if misfit is not None:
            return misfit
        text = serial.dumps(result, what="result") if answer == "applied" else None
        return self._resolved(tx, row, answer, text, serial.clean(evidence, transitions.EVIDENCE_MAX))

    @verb
    def supersede(
        self, tx: Tx, effect: str, *, by: str | None = None, reason: str | None = None
    ) -> Effect | StandfastError:
        """Say that what was planned will not be sent; `by` is the effect that takes its place."""
        row = find(tx, self.scope, effect, lock=True)
        successor = find(tx, self.scope, by) if by is not None else None
        for found in (row, successor):
            if isinstance(found, StandfastError):
                return found
        assert not isinstance(row, StandfastError)
        assert not isinstance(successor, StandfastError)
        moved = tx.maybe(
            transitions.SQL.supersede,
            id=row["id"],
            successor_id=successor["id"] if successor else None,
            reason=_line(reason),
            now_us=tx.now_us(),
        )
        if moved is None:
            return illegal(row, "superseded", "only what is planned can be")
        said = f"{words.shown(row)}{f': {reason}' if reason else ''}"
        receipt = words.say(tx, "superseded", row, said, state="superseded")
        return self._fresh(tx, row, receipt)

    def undo(self, effect: str, how: Callable[..., Any] | Declared[..., Any]) -> Effect:
        """Reverse what was done, once: `how` is the declared effect, or a function of its result.

        The undo is an effect of its own, with an intent, a result and perhaps a doubt; its result
        and `compensated` are one transaction. Raises IllegalTransition unless it is acknowledged.
        """
        refused_inside(self.tx, "effects.undo")
        from standfast.ledger.effects.undoing import undo

        undo(self.store, self.get(effect), how)
        return self.get(effect)

    # -- parts ----------------------------------------------------------------------------------

    @verb
    def _begin(self, tx: Tx, id: str, wanted: Wanted) -> Effect | StandfastError:
        outcome = finding.begin(tx, id, wanted, None, True)
        if isinstance(outcome, Doubt):
            if not finding.remembered(tx, outcome.row, wanted.idempotent_us):
                return words.in_doubt(outcome)
            again = finding.Finding(outcome.row["attempt"], "again")
            outcome = finding.begin(tx, id, wanted, again, True)
        if isinstance(outcome, Stopped):
            return words.stopped(outcome, wanted.shown)
        if isinstance(outcome, StandfastError):
            return outcome
        return made(tx, tx.one(transitions.SQL.by_id, id=outcome.row["id"]))

    @verb
    def _dispatch(self, tx: Tx, effect: str, for_us: int | None, holder: str | None) -> Effect | StandfastError:
        row = find(tx, self.scope, effect, lock=True)
        if isinstance(row, StandfastError):
            return row
        if row["state"] not in ("planned", "failed"):
            return illegal(row, "dispatched", "only what is planned or failed can be")
        sent = finding.dispatch(tx, row, for_us=for_us, holder=holder)
        if isinstance(sent, Stopped):
            return words.stopped(sent, words.shown(row))
        return sent if isinstance(sent, StandfastError) else made(tx, tx.one(transitions.SQL.by_id, id=sent.row["id"]))

    @query
    def _session(self, tx: Tx, session: str) -> Row | StandfastError:
        return found_session(tx, self.scope, session)

    @query
    def _task(self, tx: Tx, task: str) -> str | StandfastError:
        return found_task(tx, self.home, task)

    @query
    def _by_key(self, tx: Tx, key: str, scope: str) -> Effect:
        return made(tx, tx.one(transitions.SQL.by_key, scope=scope, key=key))

    @query
    def _last_number(self, tx: Tx, key: str, scope: str) -> int:
        """The highest number of a key. They have no gaps, so it is found in a few looks, however high."""

        def there(n: int) -> bool:
            return tx.maybe(transitions.SQL.by_key, scope=scope, key=identity.numbered(key, n)) is not None

        low, high = 0, 1
        while there(high):
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if there(middle) else (low, middle)
        return low

    def _wanted(self, work: Any, within: Row | None, again: bool, context: dict[str, Any] | None) -> Wanted:
        from standfast.ledger.effects.work import wanted_for

        key, n = work.options.key, 1
        scope = self.scope if within is None else within["scope"]
        if key is None:
            session_id = None if within is None or work.options.per == "store" else within["id"]
            key = identity.derived_key(session_id, work.tool, work.fields)
        else:
            key = identity.checked_key(key)
        if again:
            key, n = self._again(key, scope)
        return wanted_for(work, scope=scope, key=key, n=n, context=context).within(within)

    def _again(self, key: str, scope: str) -> tuple[str, int]:
        """The number after the last one that was done; what is not over yet comes first."""
        last = self._last_number(key, scope)
        if last == 0:
            return key, 1
        found = self._by_key(identity.numbered(key, last), scope)
        n = last + 1 if found.state in ("acknowledged", "compensated", "superseded") else last
        return identity.numbered(key, n), n

    def _mine(self, tx: Tx, effect: str, attempt: int | None) -> Row | StandfastError:
        """The row, if the caller may end its attempt: by the attempt's number, or as its holder."""
        row = find(tx, self.scope, effect, lock=True)
        if isinstance(row, StandfastError):
            return row
        if row["state"] not in ("dispatched", "acknowledged", "failed"):
            return illegal(row, "ended", "it has not been sent")
        if attempt is not None:
            return {**row, "attempt": attempt}
        if row["state"] == "dispatched" and row["actor"] != tx.caller.actor and row["holder"] != tx.caller.holder:
            holder = row["actor"] or leases.who(row["holder"])
            return LeaseLost(
                f"{words.named(row)} is held by {holder}, not by {tx.caller.actor}",
                f"if that holder is gone: {words.settling_either(row)}",
            )
        return row

    @verb
    def _done(
        self, tx: Tx, effect: str, text: str, attempt: int | None, external_ref: str | None
    ) -> Effect | StandfastError:
        row = self._mine(tx, effect, attempt)
        if isinstance(row, StandfastError):
            return row
        if row["state"] == "acknowledged" and row["result"] == text:
            return made(tx, row)
        ended = transitions.acknowledge(tx, row, text, external_ref=external_ref, source="said")
        return ended if isinstance(ended, StandfastError) else self._fresh(tx, row, ended)

    @verb
    def _fail(self, tx: Tx, effect: str, why: str, attempt: int | None) -> Effect | StandfastError:
        row = self._mine(tx, effect, attempt)
        if isinstance(row, StandfastError) or row["state"] == "failed":
            return row if isinstance(row, StandfastError) else made(tx, row)
        ended = transitions.fail(tx, row, why, source="said")
        return ended if isinstance(ended, StandfastError) else self._fresh(tx, row, ended)

    def _over(self, effect: Effect) -> Effect:
        finding.BEGUN.discard((effect.id, effect.attempt))
        return effect

    def _fresh(self, tx: Tx, row: Row, receipt: Receipt | None) -> Effect:
        return made(tx, tx.one(transitions.SQL.by_id, id=row["id"]))._replace(receipt=receipt)

    def _resolved(self, tx: Tx, row: Row, answer: str, text: str | None, evidence: str) -> Effect | StandfastError:
        wanted = "acknowledged" if answer == "applied" else "failed"
        if row["state"] == wanted and row["result"] == text:
            return made(tx, row)
        if text is not None and row["state"] == "acknowledged" and _resolved_by_a_person(tx, row):
            return self._fresh(tx, row, transitions.correct(tx, row, text, evidence))
        if row["state"] != "dispatched":
            return illegal(row, wanted, "only what is in doubt can be resolved")
        doubt = finding.doubtful(tx, row)
        if doubt is None:
            return words.in_progress(tx, row)
        return self._fresh(tx, row, transitions.resolve(tx, row, text, evidence))

    def _at_work(self, effect: Effect) -> None:
        if effect.state == "dispatched" and self.store.memory is not None:
            self._remember(effect.id)
        if effect.state == "dispatched" and effect.holder == self.store.caller.holder:
            finding.BEGUN.add((effect.id, effect.attempt))
            if effect.holder.startswith("p:"):
                leases.renewer(self.store).start()

    def _remember(self, id: str) -> None:
        """Before the caller acts. In a transaction of the caller's: once it is committed."""
        if self.tx is None:
            journal.remember_about(self.store, id)
        else:
            self.tx.after = [*(self.tx.after or ()), lambda: journal.remember_about(self.store, id)]

    def _keyed(self, effect: Effect) -> Effect:
        from standfast.ledger.effects.alone import store_id

        if effect.state != "dispatched":
            return effect
        return effect._replace(call_key=identity.call_key(store_id(self.store), effect.scope, effect.key))


def _by_hand(tool: str, intent: serial.Json, **options: Any) -> Any:
    """Work without a function: the split form and the function form share everything else."""
    from standfast.ledger.effects.work import prepare

    return prepare(tool, (intent,), {"do": _nobody, **options})


def _nobody(call: Any) -> None:
    raise AssertionError("the split form calls nobody")


def _resolved_by_a_person(tx: Tx, row: Row) -> bool:
    """Whether the result is what a person gave, and not what the function returned, in this attempt."""
    said = tx.maybe(transitions.SQL.resolved, id=row["id"]) if row["pruned_us"] is None else None
    return (
        said is not None and said["state"] == "acknowledged" and serial.read(said["data"])["attempt"] == row["attempt"]
    )


def _misfit(row: Row, result: serial.Json) -> InvalidInput | None:
    """The refusal of a result that the function could not have returned."""
    if row["result_shape"] is None:
        return None
    from standfast.serial import shapes

    said = shapes.misfit(serial.encode(result, what="result"), serial.read(row["result_shape"]))
    if said is None:
        return None
    return InvalidInput(f"this result is not what {words.named(row)} returns: {said}", words.settling(row))


def _line(text: str | None) -> str | None:
    return None if text is None else serial.clean(text, transitions.ERROR_MAX)
