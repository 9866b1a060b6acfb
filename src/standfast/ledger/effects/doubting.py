"""In doubt: the probe, then the same key again if the remote knows it, then a person.

Never a silent second run, never a silent skip. A probe's "not there" counts only `settle` after the last attempt could
send: its request may still be on its way. The call waits until then, and asks once more.

An effect that is called while another one of its session is in doubt asks about that one first (`settle_first`).
Only a probe that this process knows can be asked: the declared one of that tool, or the one that was given when
that very effect was called.
"""

from __future__ import annotations

from typing import Any

from standfast import clock, crash, serial
from standfast.db.contract import Row, Tx
from standfast.db.store import Store
from standfast.errors import InvalidInput, StandfastError
from standfast.footings import foreign, notices
from standfast.ledger.effects import finding, transitions, words
from standfast.ledger.effects.call import Applied, Call, NotApplied, Unknown
from standfast.ledger.effects.finding import Doubt, Finding, Stopped
from standfast.ledger.effects.identity import Wanted, settle_us
from standfast.ledger.effects.work import Asking, Work, asking_of, name_of

KNOWN_MAX = 1000
_known: dict[str, Asking] = {}
"""The probes of effects that ended in doubt in this process, by the effect's id; the newest of them."""


def inquire(store: Store, work: Work, wanted: Wanted, doubt: Doubt, call: Call) -> Finding:
    """What is found out about a doubt. Raises EffectInDoubt where only a person can tell."""
    attempt = doubt.row["attempt"]
    probed = ""
    if work.ask is not None:
        remember(doubt.row, work)
        answer = _answer(store, _asking(work), doubt, call._replace(attempt=attempt))
        if isinstance(answer, Applied):
            return Finding(attempt, "applied", *_found(work.tool, answer, name_of(work.options.probe)))
        if isinstance(answer, NotApplied) and doubt.quiet:
            return Finding(attempt, "not_applied", None, _nothing(answer))
        probed = _shrug(answer)
    if store.read(lambda tx: finding.remembered(tx, doubt.row, wanted.idempotent_us)):
        return Finding(attempt, "again")
    raise _doubted(store, doubt, probed)


def settle_first(store: Store, found: Stopped, wanted: Wanted, call: Call) -> None:
    """Settle what stops `wanted`, by the probes this process knows. Raises EffectInDoubt for what stays in doubt."""
    for at, doubt in enumerate(found.doubts):
        left = found._replace(doubts=found.doubts[at:])
        asking = None if found.elsewhere is not None else _known.get(doubt.row["id"]) or asking_of(doubt.row["tool"])
        if asking is None:
            raise words.stopped(left, wanted.shown)
        about = call._replace(key=_call_key(store, doubt.row), attempt=doubt.row["attempt"])
        answer = _answer(store, asking, doubt, about)
        if not isinstance(answer, Applied) and not (isinstance(answer, NotApplied) and doubt.quiet):
            raise words.stopped(left, wanted.shown, f";{_shrug(answer)}")
        store.write(lambda tx, doubt=doubt, answer=answer, asking=asking: _settled(tx, doubt, answer, asking))  # type: ignore[misc]


def remember(row: Row, work: Work) -> None:
    """This process knows how to ask about that effect, whatever else it is about to do."""
    if work.ask is not None:
        _known.pop(row["id"], None)
        _known[row["id"]] = _asking(work)
        while len(_known) > KNOWN_MAX:
            del _known[next(iter(_known))]


def _asking(work: Work) -> Asking:
    assert work.ask is not None
    return Asking(work.tool, work.ask, name_of(work.options.probe), settle_us(work.options.settle), work.wait)


def _call_key(store: Store, row: Row) -> str:
    from standfast.ledger.effects import identity
    from standfast.ledger.effects.alone import store_id

    return identity.call_key(store_id(store), row["scope"], row["key"])


def _settled(tx: Tx, doubt: Doubt, answer: Applied | NotApplied, asking: Asking) -> None:
    """Write down what the probe said, if that attempt is still in doubt: the next look decides."""
    row = tx.one(transitions.SQL.by_id_for_update, id=doubt.row["id"])
    if row["state"] != "dispatched" or row["attempt"] != doubt.row["attempt"] or finding.doubtful(tx, row) is None:
        return
    if isinstance(answer, Applied):
        text, evidence = _found(asking.tool, answer, asking.name)
        transitions.acknowledged(tx, row, text, evidence=evidence, said="found by its probe")
    else:
        transitions.fail(tx, row, _nothing(answer))


def _found(tool: str, answer: Applied, name: str | None) -> tuple[str, str]:
    text = serial.dumps(answer.value, what=f"{tool}: result of its probe")
    return text, serial.clean(f"its probe found it: {name}", 500)


def _nothing(answer: NotApplied) -> str:
    return f"its probe found nothing ({answer.why or 'not applied'})"


def _answer(store: Store, asking: Asking, doubt: Doubt, call: Call) -> Any:
    """The probe's answer that counts: "not there" is asked again once `settle` has passed."""
    answer = _asked(store, asking, doubt, call)
    if not isinstance(answer, NotApplied) or not doubt.quiet:
        return answer
    left_us = store.read(lambda tx: finding.unsettled_us(tx, doubt.row, asking.settle_us))
    if left_us == 0:
        return answer
    (asking.wait or _wait)(store.caller.clock, left_us)
    return _asked(store, asking, doubt, call)


def _wait(of: clock.Clock, us: int) -> None:
    clock.wait(of, us)


def _asked(store: Store, asking: Asking, doubt: Doubt, call: Call) -> Any:
    """The probe's answer. A probe that breaks has not found out."""
    crash.point("effect.before_probe")
    try:
        with foreign.inside(asking.tool):
            answer = asking.ask(serial.read(doubt.row["intent"]), call)
    except NotApplied as error:
        answer = error
    except Exception as error:  # noqa: BLE001  # whatever it is, it proves nothing about the world
        answer = Unknown(f"{type(error).__name__}: {error}")
    crash.point("effect.after_probe")
    if isinstance(answer, type) and issubclass(answer, (NotApplied, Unknown)):
        answer = answer()
    if not isinstance(answer, (Applied, NotApplied, Unknown)):
        raise InvalidInput(
            f"{asking.tool}: its probe {asking.name} returned {type(answer).__name__}",
            "a probe returns standfast.Applied(result), standfast.NotApplied() or standfast.Unknown()",
        )
    if not isinstance(answer, Applied) and not (isinstance(answer, NotApplied) and doubt.quiet):
        said = f"{words.shown(doubt.row)}:{_shrug(answer)}"
        store.write(lambda tx: words.say(tx, "probed", doubt.row, said))
    return answer


def _shrug(answer: NotApplied | Unknown) -> str:
    if isinstance(answer, NotApplied):
        return " its probe found nothing, but the last holder may be asleep and send it late; ask again in a while"
    return f" its probe could not tell{f' ({serial.clean(answer.why, 200)})' if answer.why else ''}"


def _doubted(store: Store, doubt: Doubt, probed: str) -> StandfastError:
    """The refusal. That nobody is at it is written down once, so that every reader sees it and one notice is sent."""
    row, why = doubt.row, words.WHY[doubt.standing]
    if doubt.quiet and row["gave_up_us"] is None:
        first = store.write(lambda tx: transitions.give_up(tx, row, row["error"] or why))
    else:
        first = None
    error = words.in_doubt(doubt, f";{probed}" if probed else "")
    if first is not None:
        notices.tell(store, "effect.in_doubt", row["id"], error.message, words.settling(row))
    return error
