"""Make the request of one call, for a declared function or for a name with `do=`.

Bad arguments are refused here, before anything is recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from standfast import serial
from standfast.core import user_code
from standfast.errors import InvalidInput
from standfast.ledger import current
from standfast.ledger.effects import identity
from standfast.ledger.effects.call import Applied, Call, NotApplied
from standfast.ledger.effects.declared import CALL_OPTIONS, Declared, Options, declared
from standfast.ledger.effects.identity import Asking, Request
from standfast.ledger.effects.signatures import fill, parameters_of

if TYPE_CHECKING:
    from standfast.ledger.openings import Opening


def prepare(opening: Opening, what: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *, options: bool) -> Request:
    """The request of one call in a session. With `options`, the keywords may include options such as `again`.

    Raises InvalidInput for an undeclared function and for bad arguments or options.
    """
    if isinstance(what, Declared):
        made = _of_declared(opening, what, args, kwargs, _given(what, kwargs) if options else {})
    elif isinstance(what, str):
        made = _of_name(opening, what, args, dict(kwargs))
    else:
        raise undeclared(what)
    # In the first opening of a session no effect is recorded yet: insert without a lookup.
    return made._replace(opening=opening, unheard=opening.first and made.of_session)


def undeclared(what: Any) -> InvalidInput:
    """The error for a function that is not declared."""
    name = getattr(what, "__qualname__", repr(what))
    return InvalidInput(
        f"{name} is not declared as an effect",
        f'write @standfast.effect("…", by=(…)) above {name}, or give a name and do=',
    )


def request(
    tool: str,
    options: Options,
    intent: serial.Json,
    *,
    scope: str,
    session_id: str | None = None,
    fields: serial.Json = None,
    returns: Any = None,
    context: dict[str, serial.Json] | None = None,
) -> Request:
    """The request of `tool` with `intent`. The fields in `by` identify it; without `by`, `fields` do."""
    fields = fields if options.by is None else identity.project(intent, options.by)
    text = serial.dumps(intent, what="intent")
    of_session = options.key is None and options.per != "store"
    if options.key is None:
        key = identity.derived_key(session_id if of_session else None, tool, fields)
    else:
        key = identity.checked_key(options.key)
    about = {
        "by": list(options.by) if options.by is not None else None,
        "probe": name_of(options.find or options.probe),
        "compensate": name_of(options.compensate),
        "approve": True if options.approve else None,
        "attempts": options.retry if options.retry > 1 else None,
        **(context or {}),
    }
    return Request(
        scope=scope,
        tool=tool,
        key=key,
        n=1,
        by=options.by,
        fields=fields,
        shown=identity.describe(tool, fields),
        by_hash=serial.hash(fields, what="intent"),
        intent=intent,
        intent_text=text,
        intent_hash=serial.hash_text(text),
        context=serial.dumps({name: value for name, value in about.items() if value is not None}, what="context"),
        idempotent_us=identity.idempotent_us(options.idempotent),
        approve=bool(options.approve),
        why=options.why,
        shape=serial.shape(returns),
        of_session=of_session,
        again=options.again,
        retry=options.retry,
        wait_us=identity.wait_us(options.wait),
        not_applied=options.not_applied,
        returns=returns,
    )


# -- a declared function ------------------------------------------------------------------------------------


def _given(what: Declared[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The options among the keywords. A keyword that is a parameter of the function is no option."""
    own = what.signature.parameters
    return {name: kwargs[name] for name in kwargs if name in CALL_OPTIONS and name not in own}


def _of_declared(
    opening: Opening,
    what: Declared[Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    given: dict[str, Any],
) -> Request:
    options = what.options.with_(dict(given)) if given else what.options
    refuse_async(what.function)
    arguments = what.arguments(args, {name: value for name, value in kwargs.items() if name not in given})
    intent = serial.encode({name: arguments[name] for name in arguments if name not in what.left_out}, what="intent")
    options = _asked_for(opening, options, lambda asks, call: fill(asks, (), arguments, call), intent)
    returns = options.returns if options.returns is not None else what.returns

    def act(recorded: serial.Json, call: Call) -> Any:
        words = arguments if recorded is None else what.recorded(recorded, arguments)
        function, args, kwargs = what.invoke(words, call._replace(intent=intent if recorded is None else recorded))
        return user_code.call(function, *args, **kwargs)

    fields = what.said(intent)
    made = request(
        what.name,
        options,
        intent,
        scope=opening.scope,
        session_id=opening.session_id,
        fields=fields,
        returns=returns,
    )
    return made._replace(act=act, asking=_asking(what, options, arguments), function=what.function)


def asking_of(tool: str) -> Asking | None:
    """The declared probe of a tool, for an effect that another process called. It gets the recorded intent."""
    what = declared(tool)
    probe = None if what is None else what.options.find or what.options.probe
    if what is None or probe is None or any(p.name == "self" for p in parameters_of(probe)[:1]):
        return None
    # No arguments beside the recorded ones: those of another call would make it ask about another effect.
    return _asking(what, what.options, {})


def _asking(what: Declared[Any], options: Options, arguments: dict[str, Any]) -> Asking | None:
    probe = options.find or options.probe
    if probe is None:
        return None

    def ask(recorded: serial.Json, call: Call) -> Any:
        args, kwargs = fill(probe, (), what.recorded(recorded, arguments), call._replace(intent=recorded))
        return user_code.call(probe, *args, **kwargs)

    read = None if options.find is None else lambda value: _found(what, value)
    return Asking(what.name, ask, name_of(probe), identity.settle_us(options.settle), what.returns, read)


def _found(what: Declared[Any], value: Any) -> Applied | NotApplied:
    """The value that a `find` function returned, as the answer of a probe. Raises InvalidInput for a wrong type."""
    if what.returns is None:
        if not isinstance(value, bool):
            raise InvalidInput(
                f"{what.name}: find returned {type(value).__name__}, and the effect has no result",
                "return True if it happened, False if it did not; raise if you cannot tell",
            )
        return Applied(None) if value else NotApplied("find returned False")
    if isinstance(value, bool):
        raise InvalidInput(
            f"{what.name}: find returned {value}, not the result of the effect",
            "return the result, or None if it did not happen; raise if you cannot tell",
        )
    return NotApplied("find returned None") if value is None else Applied(value)


# -- a name with functions ----------------------------------------------------------------------------------


def _of_name(opening: Opening, tool: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Request:
    identity.checked_tool(tool)
    if len(args) > 1 or (args and "intent" in kwargs):
        raise InvalidInput(
            f"{tool}: effect() takes a name, an intent, and options by name", "s.effect(name, intent, do=…)"
        )
    given = args[0] if args else kwargs.pop("intent", None)
    do = kwargs.pop("do", None)
    if not callable(do) or isinstance(do, Declared):
        raise InvalidInput(f"{tool}: do= is the function that does it; it takes one call", "do=lambda call: …")
    refuse_async(do)
    options = Options().with_(kwargs)
    if options.find is not None or options.leave_out:
        raise InvalidInput(f"{tool}: find= and leave_out= belong to @standfast.effect", "pass probe= instead")
    _check_takes_call(tool, "do", do)
    if options.probe is not None:
        _check_takes_call(tool, "probe", options.probe)
    intent = serial.encode(given, what="intent")
    options = _asked_for(opening, options, lambda asks, call: ((call,), {}), intent)
    returns = options.returns if options.returns is not None else serial.return_annotation(do)

    def act(recorded: serial.Json, call: Call) -> Any:
        return user_code.call(do, call._replace(intent=intent if recorded is None else recorded))

    made = request(
        tool,
        options,
        intent,
        scope=opening.scope,
        session_id=opening.session_id,
        fields=intent,
        returns=returns,
    )
    return made._replace(act=act, asking=_probe_asking(tool, options, returns), function=do)


def _check_takes_call(tool: str, option: str, function: Callable[..., Any]) -> None:
    """Raise InvalidInput unless `function` takes the Call. Later, its TypeError would leave the effect in doubt."""
    import inspect

    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some C functions have no signature
        return
    try:
        signature.bind(None)
    except TypeError as error:
        raise InvalidInput(
            f"{tool}: {option}= is called with one argument, the call; {name_of(function)}{signature}: {error}",
            f"{option}=lambda call: …",
        ) from None


def _probe_asking(tool: str, options: Options, returns: Any) -> Asking | None:
    probe = options.probe
    if probe is None:
        return None

    def ask(recorded: serial.Json, call: Call) -> Any:
        return user_code.call(probe, call._replace(intent=recorded))

    return Asking(tool, ask, name_of(probe), identity.settle_us(options.settle), returns)


# -- private methods ----------------------------------------------------------------------------------------


def _asked_for(
    opening: Opening,
    options: Options,
    filled: Callable[[Callable[..., Any], Call], tuple[tuple[Any, ...], dict[str, Any]]],
    intent: serial.Json,
) -> Options:
    """The options with `approve` as a bool for this call, and the reason that the approver sees."""
    asks = options.approve
    if callable(asks):
        args, kwargs = filled(asks, Call("", 0, opening.session_key, intent))
        asks = user_code.call(asks, *args, **kwargs)
        if not isinstance(asks, bool):
            raise InvalidInput(
                f"approve: {name_of(options.approve)} returned {type(asks).__name__}", "return True or False"
            )
    return options._replace(approve=asks, why=options.why if options.why is not None else current.reason(opening))


def refuse_async(function: Callable[..., Any]) -> None:
    """Raise NotAwaited for an async function in a synchronous session, before anything is recorded."""
    import inspect

    if inspect.iscoroutinefunction(function) and not user_code.bridged():
        raise user_code.NotAwaited(function)


def name_of(function: Any) -> str | None:
    """The qualified name of a function, for people."""
    return None if function is None else serial.clean(getattr(function, "__qualname__", "a function"), 200)
