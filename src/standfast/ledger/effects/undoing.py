"""Undoing: an effect of its own, by the same discipline.

    acknowledged ──▶ (undo:… dispatched) ──▶ (undo:… acknowledged) + compensated, in one transaction

An undo can be interrupted like anything else. What it undoes stays acknowledged until the undo is
known to be done; an undo in doubt is settled by a person (`effect resolve`), and resolving it
as applied compensates in the same transaction.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from standfast import serial
from standfast.config.scope import Label
from standfast.db.store import Store
from standfast.errors import IllegalTransition, InvalidInput
from standfast.footings import foreign
from standfast.ids import short
from standfast.ledger.effects import identity
from standfast.ledger.effects.call import Call
from standfast.ledger.effects.declared import Declared, Options
from standfast.ledger.effects.performing import kept, walk
from standfast.ledger.effects.signatures import fill
from standfast.ledger.effects.work import Work, wanted_for

if TYPE_CHECKING:
    from standfast.ledger.effects.nouns import Effect


def undo(store: Store, effect: Effect, how: Callable[..., Any] | Declared[..., Any]) -> None:
    """Do it unless it was done; raise what `how` raises, or EffectInDoubt about the undo itself."""
    foreign.refuse_nested(f"the undo of effect {effect.tool!r}")
    if effect.state == "compensated":
        return
    if effect.state != "acknowledged" or effect.pruned_us is not None:
        raise IllegalTransition(
            f"effect {effect.tool!r} ({short(effect.id)}) is {effect.state} and cannot be undone: "
            "only what was acknowledged, with its result, can be",
            f"standfast effect show {short(effect.id)}",
        )
    result = effect.result if effect.artifact_id is None else serial.read(kept(store, effect.artifact_id))
    work = _work(effect._replace(result=result), how)
    key = identity.derived_key(None, work.tool, work.fields)
    wanted = wanted_for(work, scope=effect.scope, key=key, n=1)
    label = Label(effect.git_dir, effect.origin)
    walk(store, work, wanted._replace(session_id=effect.session_id, task_id=effect.task_id, label=label))


def _work(effect: Effect, how: Callable[..., Any] | Declared[..., Any]) -> Work:
    function, result = _function(effect, how)

    def act(_: serial.Json, call: Call) -> Any:
        arguments = effect.intent if isinstance(effect.intent, dict) else {}
        args, kwargs = fill(function, (result,), arguments, call._replace(intent=effect.intent, result=result))
        return foreign.call(function, *args, **kwargs)

    fields = {"effect": effect.id}
    options = Options(by=("effect",))
    return Work(identity.UNDO + effect.tool, options, fields, serial.dumps(fields), fields, None, act, None, function)


def _function(effect: Effect, how: Callable[..., Any] | Declared[..., Any]) -> tuple[Callable[..., Any], Any]:
    """The function that undoes, and the result as it expects it."""
    if not isinstance(how, Declared):
        if not callable(how):
            raise InvalidInput(
                "undo is told how: the declared effect, or a function of its result", "undo(id, open_pr)"
            )
        return how, effect.result
    if how.name != effect.tool or how.options.undo is None:
        lacks = f"{how.name} is another tool" if how.name != effect.tool else f"{how.name} declares no undo"
        raise InvalidInput(f"{lacks}; this is {effect.tool} ({short(effect.id)})", "@that_effect.undo above its undo")
    return how.options.undo, serial.decode(effect.result, how.returns, what=f"{effect.tool}: result")
