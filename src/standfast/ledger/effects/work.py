"""What is to be done, whatever form it was given in: a declared function, or a name with `do=`.

Everything that can be refused is refused here, before anything is recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from standfast import serial
from standfast.errors import InvalidInput
from standfast.footings import foreign
from standfast.ledger.effects import identity
from standfast.ledger.effects.call import Call
from standfast.ledger.effects.declared import Declared, Options, declared
from standfast.ledger.effects.identity import Wanted
from standfast.ledger.effects.signatures import fill, parameters_of

if TYPE_CHECKING:
    from standfast.clock import Clock


class Work(NamedTuple):
    """What is to be done, whatever form it was given in."""

    tool: str
    options: Options
    intent: serial.Json
    text: str
    """The intent as it is stored and hashed."""
    fields: serial.Json
    returns: Any
    act: Callable[[serial.Json, Call], Any]
    """Do it, with the recorded words if there are any to keep to, else with the caller's."""
    ask: Callable[[serial.Json, Call], Any] | None
    """The probe, with the recorded words."""
    function: Callable[..., Any] | None = None
    wait: Callable[[Clock, int], None] | None = None
    """How to let time pass before a probe is asked again, where it is not the clock's own way."""


class Asking(NamedTuple):
    """A probe, and how long its "not there" does not count."""

    tool: str
    ask: Callable[[serial.Json, Call], Any]
    name: str | None
    settle_us: int
    wait: Callable[[Clock, int], None] | None = None


def asking_of(tool: str) -> Asking | None:
    """The declared probe of a tool, for an effect that this process did not call: it has only the recorded intent."""
    what = declared(tool)
    probe = what.options.probe if what is not None else None
    if what is None or probe is None or any(p.name == "self" for p in parameters_of(probe)[:1]):
        return None

    def ask(recorded: serial.Json, call: Call) -> Any:
        # Nothing but what is recorded: with the arguments of another call it would ask about something else.
        args, kwargs = fill(probe, (), what.recorded(recorded, {}), call._replace(intent=recorded))
        return foreign.call(probe, *args, **kwargs)

    return Asking(tool, ask, name_of(probe), identity.settle_us(what.options.settle))


def prepare(what: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Work:
    """The work of one call. Raises InvalidInput naming what cannot be an effect."""
    if isinstance(what, Declared):
        return _declared_work(what, args, kwargs)
    if isinstance(what, str):
        return _form_work(what, args, dict(kwargs))
    raise undeclared(what)


def undeclared(what: Any) -> InvalidInput:
    """The refusal of a plain function."""
    name = getattr(what, "__qualname__", repr(what))
    return InvalidInput(
        f"{name} is not declared as an effect",
        f'write @standfast.effect("…", by=(…)) above {name}, or give a name and do=',
    )


def _declared_work(what: Declared[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Work:
    parameters = what.signature.parameters
    given = {name: kwargs[name] for name in kwargs if name in Options._fields and name not in parameters}
    options = what.options.with_(dict(given))
    refuse_async(what.function)
    arguments = what.arguments(args, {name: value for name, value in kwargs.items() if name not in given})
    intent = serial.encode(arguments, what="intent")
    text = serial.dumps(intent, what="intent")
    fields = what.said(intent) if options.by is None else identity.project(intent, options.by)

    def act(recorded: serial.Json, call: Call) -> Any:
        told = call._replace(intent=intent if recorded is None else recorded)
        function, args, kwargs = what.invoke(_words(what, recorded, arguments), told)
        return foreign.call(function, *args, **kwargs)

    def ask(recorded: serial.Json, call: Call) -> Any:
        assert options.probe is not None
        told = call._replace(intent=recorded)
        args, kwargs = fill(options.probe, (), _words(what, recorded, arguments), told)
        return foreign.call(options.probe, *args, **kwargs)

    returns = options.returns if options.returns is not None else what.returns
    return Work(what.name, options, intent, text, fields, returns, act, ask if options.probe else None, what.function)


def _words(what: Declared[..., Any], recorded: serial.Json, arguments: dict[str, Any]) -> dict[str, Any]:
    return arguments if recorded is None else what.recorded(recorded, arguments)


def _form_work(tool: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Work:
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
    intent = serial.encode(given, what="intent")
    text = serial.dumps(intent, what="intent")
    fields = intent if options.by is None else identity.project(intent, options.by)
    returns = options.returns if options.returns is not None else serial.return_annotation(do)

    def act(recorded: serial.Json, call: Call) -> Any:
        return foreign.call(do, call._replace(intent=intent if recorded is None else recorded))

    def ask(recorded: serial.Json, call: Call) -> Any:
        assert options.probe is not None
        return foreign.call(options.probe, call._replace(intent=recorded))

    return Work(tool, options, intent, text, fields, returns, act, ask if options.probe else None, do)


def refuse_async(function: Callable[..., Any]) -> None:
    """Before anything is recorded: an async function in a synchronous session would never run."""
    import inspect

    if inspect.iscoroutinefunction(function) and not foreign.bridged():
        raise foreign.NotAwaited(function)


def wanted_for(work: Work, *, scope: str, key: str, n: int, context: dict[str, serial.Json] | None = None) -> Wanted:
    """One call of `work` under an identity."""
    options = work.options
    about = {
        "by": list(options.by) if options.by is not None else None,
        "probe": name_of(options.probe),
        "undo": name_of(options.undo),
        "approve": True if options.approve else None,
        "attempts": options.attempts if options.attempts > 1 else None,
        **(context or {}),
    }
    return Wanted(
        scope=scope,
        tool=work.tool,
        key=key,
        n=n,
        by=options.by,
        fields=work.fields,
        shown=identity.describe(work.tool, work.fields),
        by_hash=serial.hash(work.fields, what="intent"),
        intent=work.intent,
        intent_text=work.text,
        intent_hash=serial.hash_text(work.text),
        context=serial.dumps({name: value for name, value in about.items() if value is not None}, what="context"),
        idempotent_us=identity.idempotent_us(options.idempotent),
        approve=options.approve,
        why=options.why,
        shape=serial.shape(work.returns),
    )


def name_of(function: Callable[..., Any] | None) -> str | None:
    """A function as people call it."""
    return None if function is None else serial.clean(getattr(function, "__qualname__", "a function"), 200)
