"""Settle an effect in doubt: by its probe, by sending the same key again if that is safe, or by a person.

standfast never silently sends twice and never silently skips. A probe's "not there" counts only `settle` after the last
attempt may have sent, because its request may still be in flight. The call waits until then and asks again.

If another effect of the session is in doubt, a call asks about that one first (`settle_first`). This process can ask
only a probe that it knows: the declared probe of the tool, or the probe of an earlier call of the same effect.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from standfast import clock, crash, serial
from standfast.core import notices, user_code
from standfast.db.contract import Row, Tx
from standfast.db.store import Store
from standfast.errors import InvalidInput, StandfastError
from standfast.ledger import deferred_answers
from standfast.ledger.effects import begin, texts, transitions
from standfast.ledger.effects.begin import Doubt, Finding, Stopped
from standfast.ledger.effects.call import Applied, Call, LostCall, NotApplied, Unknown
from standfast.ledger.effects.identity import Asking, Request
from standfast.ledger.effects.intent import asking_of

KNOWN_MAX = 1000
_known: dict[str, Asking] = {}
"""The probes of the newest effects that ended in doubt in this process, by the effect's id."""


def inquire(store: Store, wanted: Request, doubt: Doubt, call: Call) -> Finding:
    """Find out what happened. Raises EffectInDoubt if only a person can tell."""
    attempt = doubt.row["attempt"]
    probed = ""
    if wanted.asking is not None:
        remember(doubt.row, wanted)
        answer = _answer(store, wanted.asking, doubt, call._replace(attempt=attempt))
        if isinstance(answer, Applied):
            return Finding(attempt, "applied", *_found(wanted.asking, answer))
        if isinstance(answer, NotApplied) and doubt.quiet:
            return Finding(attempt, "not_applied", None, _nothing(answer))
        probed = _shrug(answer)
    if store.read(lambda tx: begin.remembered(tx, doubt.row, wanted.idempotent_us)):
        return Finding(attempt, "again")
    raise _doubted(store, doubt, probed)


def settle_first(store: Store, found: Stopped, wanted: Request, call: Call) -> None:
    """Settle the effects that stop `wanted`, by the probes this process knows. Raises EffectInDoubt if one stays."""
    for at, doubt in enumerate(found.doubts):
        left = found._replace(doubts=found.doubts[at:])
        asking = None if found.elsewhere is not None else _known.get(doubt.row["id"]) or asking_of(doubt.row["tool"])
        if asking is None:
            raise texts.stopped(left, wanted.shown)
        about = call._replace(key=_call_key(store, doubt.row), attempt=doubt.row["attempt"])
        answer = _answer(store, asking, doubt, about)
        if not isinstance(answer, Applied) and not (isinstance(answer, NotApplied) and doubt.quiet):
            raise texts.stopped(left, wanted.shown, f";{_shrug(answer)}")
        store.write(lambda tx, doubt=doubt, answer=answer, asking=asking: _settled(tx, doubt, answer, asking))  # type: ignore[misc]


class Look(NamedTuple):
    """The answer of a probe about one attempt in doubt. Nothing is written yet."""

    doubt: Doubt
    answer: Applied | NotApplied | Unknown

    @property
    def counts(self) -> bool:
        """Whether the answer settles the doubt. "Not there" does only if the last holder can no longer send."""
        return isinstance(self.answer, Applied) or (isinstance(self.answer, NotApplied) and self.doubt.quiet)


def look(store: Store, id: str, asking: Asking) -> Look:
    """Ask a probe about one effect now, outside a call of the effect. Raises IllegalTransition or InProgress."""

    def found(tx: Tx) -> Doubt:
        row = tx.one(transitions.SQL.by_id, id=id)
        if row["state"] != "dispatched":
            from standfast.ledger.effects.models import illegal

            raise illegal(row, "settled", "only an effect in doubt can be checked")
        doubt = begin.doubtful(tx, row)
        if doubt is None:
            raise texts.in_progress(tx, row)
        return doubt

    doubt = store.read(found)
    return Look(doubt, _answer(store, asking, doubt, Call(_call_key(store, doubt.row), doubt.row["attempt"], None)))


def settle(store: Store, found: Look, asking: Asking) -> None:
    """Record the answer of the probe, if that attempt is still in doubt."""
    answer = found.answer
    assert found.counts
    assert not isinstance(answer, Unknown)
    store.write(lambda tx: _settled(tx, found.doubt, answer, asking))


def remember(row: Row, wanted: Request) -> None:
    """Keep the probe of an effect in doubt, so that a later call of this process may ask it."""
    if wanted.asking is not None:
        _known.pop(row["id"], None)
        _known[row["id"]] = wanted.asking
        while len(_known) > KNOWN_MAX:
            del _known[next(iter(_known))]


def _call_key(store: Store, row: Row) -> str:
    from standfast.ledger.effects import identity
    from standfast.ledger.effects.one_at_a_time import store_id

    return identity.call_key(store_id(store), row["scope"], row["key"])


def _settled(tx: Tx, doubt: Doubt, answer: Applied | NotApplied, asking: Asking) -> None:
    """Record the answer of the probe, if that attempt is still in doubt. Otherwise the next call decides."""
    row = tx.one(transitions.SQL.by_id_for_update, id=doubt.row["id"])
    if row["state"] != "dispatched" or row["attempt"] != doubt.row["attempt"] or begin.doubtful(tx, row) is None:
        return
    if isinstance(answer, Applied):
        text, evidence = _found(asking, answer)
        transitions.acknowledged(tx, row, text, evidence=evidence, said="found by its probe")
    else:
        transitions.fail(tx, row, _nothing(answer))
    deferred_answers.make_ready(tx, row["session_id"])


def _found(asking: Asking, answer: Applied) -> tuple[str, str]:
    what = f"{asking.tool}: result of its probe"
    text = serial.dumps(answer.value, what=what)
    serial.decode(serial.read(text), asking.returns, what=what)  # refuse it now: no call could return it later
    return text, serial.clean(f"its probe found it: {asking.name}", 500)


def _nothing(answer: NotApplied) -> str:
    return f"its probe found nothing ({answer.why or 'not applied'})"


def _answer(store: Store, asking: Asking, doubt: Doubt, call: Call) -> Any:
    """The answer of the probe. If it says "not there" too early, wait for `settle` and ask again."""
    answer = _asked(store, asking, doubt, call)
    if not isinstance(answer, NotApplied) or not doubt.quiet:
        return answer
    left_us = store.read(lambda tx: begin.unsettled_us(tx, doubt.row, asking.settle_us))
    if left_us == 0:
        return answer
    (asking.wait or _wait)(store.caller.clock, left_us)
    return _asked(store, asking, doubt, call)


def _wait(of: clock.Clock, us: int) -> None:
    clock.wait(of, us)


def _asked(store: Store, asking: Asking, doubt: Doubt, call: Call) -> Any:
    """The probe's answer. A probe that raises counts as Unknown."""
    crash.point("effect.before_probe")
    call = LostCall(call) if texts.lost(doubt.row) else call
    try:
        with user_code.inside(asking.tool):
            answer = asking.ask(serial.read(doubt.row["intent"]), call)
    except NotApplied as error:
        answer = error
    except Exception as error:  # noqa: BLE001  # an error proves nothing about the outcome
        answer = Unknown(f"{type(error).__name__}: {error}")
    else:
        answer = answer if asking.read is None else asking.read(answer)
    crash.point("effect.after_probe")
    if isinstance(answer, type) and issubclass(answer, (NotApplied, Unknown)):
        answer = answer()
    if not isinstance(answer, (Applied, NotApplied, Unknown)):
        raise InvalidInput(
            f"{asking.tool}: its probe {asking.name} returned {type(answer).__name__}",
            "a probe returns standfast.Applied(result), standfast.NotApplied() or standfast.Unknown()",
        )
    if not isinstance(answer, Applied) and not (isinstance(answer, NotApplied) and doubt.quiet):
        said = f"{texts.shown(doubt.row)}:{_shrug(answer)}"
        store.write(lambda tx: transitions.journal_change(tx, "probed", doubt.row, said))
    return answer


def _shrug(answer: NotApplied | Unknown) -> str:
    if isinstance(answer, NotApplied):
        return " its probe found nothing, but the last holder may be asleep and send it late; ask again in a while"
    return f" its probe could not tell{f' ({serial.clean(answer.why, 200)})' if answer.why else ''}"


def _doubted(store: Store, doubt: Doubt, probed: str) -> StandfastError:
    """The error for the caller. The doubt is recorded once: every reader sees it, and one notice is sent."""
    row, why = doubt.row, texts.WHY[doubt.standing]
    if doubt.quiet and row["gave_up_us"] is None:
        first = store.write(lambda tx: transitions.give_up(tx, row, row["error"] or why))
    else:
        first = None
    error = texts.in_doubt(doubt, f";{probed}" if probed else "")
    if first is not None:
        notices.tell(store, "effect.in_doubt", row["id"], error.message, texts.settling(row))
    return error
