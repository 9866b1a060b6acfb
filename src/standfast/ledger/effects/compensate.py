"""Compensate an effect. The compensation is an effect of its own, with the same rules.

    acknowledged ──▶ (compensate:… dispatched) ──▶ (compensate:… acknowledged) + compensated, in one transaction

A compensation can be interrupted like any effect. The first effect stays acknowledged until its compensation is
known to be done. A person resolves a compensation in doubt (`effect resolve`); resolving it as applied sets
`compensated` in the same transaction.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from standfast import hints, serial
from standfast.config.scope import Label
from standfast.core import user_code
from standfast.db.store import Store
from standfast.errors import IllegalTransition, InvalidInput
from standfast.ids import short
from standfast.ledger.effects import identity
from standfast.ledger.effects.call import Call
from standfast.ledger.effects.declared import Declared, Options
from standfast.ledger.effects.identity import Request
from standfast.ledger.effects.intent import request
from standfast.ledger.effects.perform import kept, walk
from standfast.ledger.effects.signatures import fill

if TYPE_CHECKING:
    from standfast.ledger.effects.models import Effect


def compensate(store: Store, effect: Effect, how: Callable[..., Any] | Declared[Any]) -> None:
    """Compensate the effect unless that was done. Raises the error of `how`, or EffectInDoubt for the compensation."""
    user_code.refuse_nested(f"the compensation of effect {effect.tool!r}")
    if effect.state == "compensated":
        return
    if effect.state != "acknowledged" or effect.pruned_us is not None:
        show = hints.command("effect", "show", short(effect.id))
        resolve = hints.command("effect", "resolve", short(effect.id), "--applied", "--evidence", "TEXT")
        raise IllegalTransition(
            f"effect {effect.tool!r} ({short(effect.id)}) is {'in doubt' if effect.in_doubt else effect.state} "
            "and cannot be compensated: only an acknowledged effect with its result can be",
            f"first say whether it happened: {resolve}" if effect.in_doubt else show,
        )
    result = effect.result if effect.artifact_id is None else serial.read(kept(store, effect.artifact_id))
    wanted = _request(effect.replace(result=result), how)
    walk(store, wanted._replace(session_id=effect.session_id, task_id=effect.task_id))


def _request(effect: Effect, how: Callable[..., Any] | Declared[Any]) -> Request:
    function, result = _function(effect, how)

    def act(_: serial.Json, call: Call) -> Any:
        arguments = effect.intent if isinstance(effect.intent, dict) else {}
        args, kwargs = fill(function, (result,), arguments, call._replace(intent=effect.intent, result=result))
        return user_code.call(function, *args, **kwargs)

    options = Options(by=("effect",), per="store")
    made = request(identity.COMPENSATE + effect.tool, options, {"effect": effect.id}, scope=effect.scope)
    return made._replace(act=act, function=function, label=Label(effect.git_dir, effect.origin))


def _function(effect: Effect, how: Callable[..., Any] | Declared[Any]) -> tuple[Callable[..., Any], Any]:
    """The function that compensates, and the result to pass to it, decoded for a declared effect."""
    if not isinstance(how, Declared):
        if not callable(how):
            raise InvalidInput(
                "compensate takes the declared effect, or a function of its result",
                "sf.effects.compensate(id, open_pr)",
            )
        return how, effect.result
    if how.name != effect.tool or how.options.compensate is None:
        lacks = f"{how.name} is another tool" if how.name != effect.tool else f"{how.name} declares no compensation"
        raise InvalidInput(
            f"{lacks}; this is {effect.tool} ({short(effect.id)})", "@that_effect.compensate above the function"
        )
    return how.options.compensate, serial.decode(effect.result, how.returns, what=f"{effect.tool}: result")
