"""Texts of effects: lines for people, and the errors that stop a call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast import hints, serial
from standfast.clock import iso
from standfast.core import leases, repositories
from standfast.db.contract import Row, Tx
from standfast.errors import Conflict, EffectInDoubt, InProgress
from standfast.ids import short
from standfast.ledger.effects import identity

if TYPE_CHECKING:
    from standfast.ledger.effects.begin import Doubt, Stopped

WHY = {
    "gave_up": "it failed and may have been applied",
    "gone": "its process is gone",
    "over": "its lease ran out",
    "interrupted": "its call was interrupted",
}
"""Why an effect is in doubt, by `Doubt.standing`."""
IN_GAP = "it may have been sent"
"""The first part of the error for an effect that may have been sent in a gap."""
LOST = "; its session may be one that was lost"
"""The last part of that error if the session is newer than the restored copy."""


def shown(row: Row) -> str:
    """An effect in one line, from its row: the tool and the identifying fields."""
    known: str | None = row.get("shown")
    return known or told(row["tool"], serial.read(row["intent"]), serial.read(row["context"]))


def told(tool: str, intent: serial.Json, context: serial.Json) -> str:
    """An effect in one line, from the parts of its row."""
    by = context.get("by") if isinstance(context, dict) else None
    if by is not None and isinstance(intent, dict):
        intent = {name: intent[name] for name in by if name in intent}
    return identity.describe(tool, intent)


def named(row: Row) -> str:
    """The tool and the short id, for a sentence."""
    return f"effect {row['tool']!r} ({short(row['id'])})"


def settling(row: Row) -> str:
    """The command for an effect that happened, with a template of the result if one is needed."""
    words = ("effect", "resolve", short(row["id"]), "--applied", "--evidence", "TEXT")
    return hints.command(*words, *_result(row.get("result_shape")))


def settling_either(row: Row) -> str:
    """The commands for both answers, one on each line."""
    other = hints.command("effect", "resolve", short(row["id"]), "--not-applied", "--evidence", "TEXT")
    return f"{settling(row)}\nif it did not happen: {other}"


def _result(shape: str | None) -> tuple[str, ...]:
    if shape is None:
        return ()
    from standfast.serial import shapes

    return "--result", serial.canonical(shapes.template(serial.read(shape)))


def in_progress(tx: Tx, row: Row) -> InProgress:
    """The error while a live holder runs it: the holder, since when, and what to do."""
    found = leases.in_progress(tx, named(row), row)
    since = f"begun at {iso(row['dispatched_us'] or row['updated_us'])}"
    if row["holder"] == tx.caller.holder and row["holder"].startswith("a:"):
        done, fail = (hints.command("effect", verb, short(row["id"])) for verb in ("done", "fail"))
        hint = f"say how it ended: {done}\nif it did not happen: {fail}"
    else:
        hint = f"wait, or end that holder; then ask again: {hints.command('effect', 'show', short(row['id']))}"
    return InProgress(f"{found.message}; {since}", hint)


def lost(row: Row) -> bool:
    """Whether a session that the store lost may have sent it. That session used another key."""
    error: str = row["error"] or ""
    return error.startswith(IN_GAP) and error.endswith(LOST)


def in_doubt(doubt: Doubt, probed: str = "") -> EffectInDoubt:
    """The error for a doubt that only a person can settle."""
    row = doubt.row
    error = f" ({serial.clean(row['error'], 200)})" if row["error"] else ""
    sent = f"attempt {row['attempt']} was sent at {iso(row['dispatched_us'] or row['updated_us'])} by {row['actor']}"
    why = f"{sent}, {WHY[doubt.standing]}{error}"
    look = "look whether it happened, then say so"
    if (row["error"] or "").startswith(IN_GAP):
        why = row["error"]
        look = f"if nothing was sent in that time, a person runs: standfast restore finish\n{look}"
    found = EffectInDoubt(
        f"{shown(row)} is in doubt: {why}{probed}",
        f"{look}: {settling_either(row)}",
    )
    found.effect_id = row["id"]
    return found


def stopped(found: Stopped, wanted: str, probed: str = "") -> EffectInDoubt:
    """The error for an effect that was not sent because others are in doubt."""
    row = found.doubts[0].row
    about = in_doubt(found.doubts[0], probed)
    if found.elsewhere is not None:
        of = f" of {found.repository}" if found.repository else ""
        message = f"{about.message}; it is the same effect {found.elsewhere}{of}, so it was not sent here"
        hint = f"{about.hint}\n{repositories.SEPARATE}" if found.repository else about.hint
    else:
        others = f" (and {len(found.doubts) - 1} more)" if len(found.doubts) > 1 else ""
        message = f"{about.message}{others}; session {found.session!r} is stopped, so {wanted} was not sent"
        hint = f"{about.hint}\nto continue without knowing, the program calls s.proceed()"
    error = EffectInDoubt(message, hint)
    error.effect_id = row["id"]
    return error


def closed(row: Row) -> Conflict | None:
    """The error for an effect that ended in a state from which no call continues."""
    tell = hints.command("effect", "show", short(row["id"]))
    if row["pruned_us"] is not None:
        return Conflict(
            f"{named(row)} was {row['state']} and its result was pruned at {iso(row['pruned_us'])}",
            f"it is not done again under this identity; to do it again, use another key ({tell})",
            code="result_pruned",
        )
    if row["state"] == "superseded":
        successor = f" by {short(row['successor_id'])}" if row["successor_id"] else ""
        return Conflict(f"{named(row)} was superseded{successor}", tell, code="superseded")
    if row["state"] == "compensated":
        return Conflict(
            f"{named(row)} was done and compensated by {short(row['successor_id'] or '')}",
            f"to do it once more, pass again=True or another key ({tell})",
            code="compensated",
        )
    return None
