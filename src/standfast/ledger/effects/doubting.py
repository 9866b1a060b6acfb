"""In doubt: the probe, then the same key again if the remote knows it, then a person.

Never a silent second run, never a silent skip.
"""

from __future__ import annotations

from typing import Any

from standfast import crash, serial
from standfast.db.store import Store
from standfast.errors import InvalidInput, StandfastError
from standfast.footings import notices
from standfast.ledger.effects import finding, transitions, words
from standfast.ledger.effects.call import Applied, Call, NotApplied, Unknown
from standfast.ledger.effects.finding import Doubt, Finding
from standfast.ledger.effects.identity import Wanted
from standfast.ledger.effects.work import Work, name_of


def inquire(store: Store, work: Work, wanted: Wanted, doubt: Doubt, call: Call) -> Finding:
    """What is found out about a doubt. Raises EffectInDoubt where only a person can tell."""
    attempt = doubt.row["attempt"]
    probed = ""
    if work.ask is not None:
        answer = _asked(store, work, doubt, call._replace(attempt=attempt))
        if isinstance(answer, Applied):
            text = serial.dumps(answer.value, what=f"{work.tool}: result of its probe")
            asked = (serial.read(wanted.context) or {}).get("probe")
            return Finding(attempt, "applied", text, serial.clean(f"its probe found it: {asked}", 500))
        if isinstance(answer, NotApplied) and doubt.quiet:
            return Finding(attempt, "not_applied", None, f"its probe found nothing ({answer.why or 'not applied'})")
        probed = _shrug(answer)
    if store.read(lambda tx: finding.remembered(tx, doubt.row, wanted.idempotent_us)):
        return Finding(attempt, "again")
    raise _doubted(store, doubt, probed)


def _asked(store: Store, work: Work, doubt: Doubt, call: Call) -> Any:
    """The probe's answer. A probe that breaks has not found out."""
    assert work.ask is not None
    crash.point("effect.before_probe")
    try:
        answer = work.ask(serial.read(doubt.row["intent"]), call)
    except NotApplied as error:
        answer = error
    except Exception as error:  # noqa: BLE001  # whatever it is, it proves nothing about the world
        answer = Unknown(f"{type(error).__name__}: {error}")
    crash.point("effect.after_probe")
    if isinstance(answer, type) and issubclass(answer, (NotApplied, Unknown)):
        answer = answer()
    if not isinstance(answer, (Applied, NotApplied, Unknown)):
        raise InvalidInput(
            f"{work.tool}: its probe {name_of(work.options.probe)} returned {type(answer).__name__}",
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
        notices.tell(store, "effect.in_doubt", row["id"], error.message, words.settling(row["id"]))
    return error
