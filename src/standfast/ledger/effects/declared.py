"""Declaring an effect, beside the function that does it. No store is needed at import.

    @standfast.effect("github.open_pr", by=("repo", "branch"))
    def open_pr(repo: str, branch: str, title: str, body: str) -> PullRequest: ...

    @open_pr.probe                                  # asks the world; takes what it needs of the arguments
    def find_pr(repo: str, branch: str) -> standfast.Applied | standfast.NotApplied | standfast.Unknown: ...

    @open_pr.undo                                   # takes the result
    def close_pr(pr: PullRequest) -> None: ...

Called plainly it is the plain function. A parameter annotated `standfast.Call` is filled in and is
no part of the intent.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    NamedTuple,
    ParamSpec,
    Protocol,
    Self,
    TypeVar,
    cast,
    overload,
)
from weakref import WeakValueDictionary

from standfast import serial
from standfast.errors import InvalidInput
from standfast.ledger.effects import identity
from standfast.ledger.effects.call import Call
from standfast.ledger.effects.signatures import MISSING, bound, call_slot, hints_of, parameters_of, takes_rest

if TYPE_CHECKING:
    import inspect
    from datetime import timedelta
    from typing import TypeAlias

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])


if TYPE_CHECKING:
    Idempotent: TypeAlias = bool | timedelta
    Duration: TypeAlias = str | float | timedelta
    Exceptions: TypeAlias = type[BaseException] | tuple[type[BaseException], ...]


class Options(NamedTuple):
    """What a declaration, or a call, says beside the arguments."""

    by: tuple[str, ...] | None = None
    idempotent: Idempotent = False
    not_applied: tuple[type[BaseException], ...] = ()
    approve: bool = False
    attempts: int = 1
    """How many dispatches one grant is asked for."""
    returns: Any = None
    key: str | None = None
    again: bool = False
    probe: Callable[..., Any] | None = None
    undo: Callable[..., Any] | None = None
    why: str | None = None
    settle: Duration | None = None
    per: str | None = None

    def with_(self, given: dict[str, Any]) -> Options:
        """These options with the given ones in place. Raises InvalidInput for an unknown or unfit one."""
        for name in given:
            if name not in Options._fields:
                raise InvalidInput(f"effect() has no option {name!r}", f"it has: {', '.join(Options._fields)}")
        if "by" in given:
            given["by"] = _names(given["by"])
        if "not_applied" in given:
            given["not_applied"] = _exceptions(given["not_applied"])
        if "attempts" in given:
            from standfast.ledger.approvals import checked_attempts

            checked_attempts(given["attempts"])
        identity.idempotent_us(given.get("idempotent"))
        identity.settle_us(given.get("settle"))
        if given.get("per") not in identity.PER:
            raise InvalidInput(f"per={given['per']!r:.40} is unknown", 'per="session" or per="store"')
        return self._replace(**given)


_declared: WeakValueDictionary[str, Declared[Any, Any]] = WeakValueDictionary()
"""The latest declaration of each tool in this process: its probe can be asked about an effect of an earlier life."""


def declared(tool: str) -> Declared[Any, Any] | None:
    """The declaration of a tool, if this process has one."""
    return _declared.get(tool)


class Declared(Generic[P, R]):
    """A function that is an effect. Calling it plainly is calling the function."""

    def __init__(self, name: str, function: Callable[..., R], options: Options) -> None:
        self.name = identity.checked_tool(name)
        self.function = function
        self.options = options
        functools.update_wrapper(self, function)
        self._check_by()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        slot = self.call_slot
        if slot is not None and slot not in self.plain_signature.bind_partial(*args, **kwargs).arguments:
            kwargs = self._with_call(kwargs, slot)  # type: ignore[assignment]  # one keyword more
        return self.function(*args, **kwargs)

    @overload
    def __get__(self, instance: None, owner: type[object]) -> Self: ...

    @overload
    def __get__(self: Declared[Concatenate[Any, Q], R], instance: object, owner: type[object]) -> Declared[Q, R]: ...

    def __get__(self, instance: object, owner: type[object]) -> Any:
        """On a class it is a method: `self` is bound, and no part of the intent."""
        if instance is None:
            return self
        probe, undo = (bound(function, instance) for function in (self.options.probe, self.options.undo))
        function = self.function.__get__(instance, owner)
        return Declared(self.name, function, self.options._replace(probe=probe, undo=undo))

    def probe(self, function: F) -> F:
        """Say how to ask the world whether it happened. Parameters are those of the effect, or fewer."""
        self._check_parameters(function, "probe", skip=0)
        self.options = self.options._replace(probe=function)
        return function

    def undo(self, function: F) -> F:
        """Say how to reverse it. The first parameter is the result, further ones are the effect's own."""
        self._check_parameters(function, "undo", skip=1)
        self.options = self.options._replace(undo=function)
        return function

    def with_options(self, **given: Any) -> Declared[P, R]:
        """The same effect with other options, for where a parameter of the function has an option's name."""
        return Declared(self.name, self.function, self.options.with_(given))

    # -- what it knows about its function -------------------------------------------------------

    @functools.cached_property
    def plain_signature(self) -> inspect.Signature:
        import inspect

        return inspect.signature(self.function)

    @functools.cached_property
    def call_slot(self) -> str | None:
        """The parameter that receives the Call, if there is one."""
        return call_slot(self.function, self.plain_signature)

    @functools.cached_property
    def signature(self) -> inspect.Signature:
        """What callers see: everything but the Call."""
        parameters = self.plain_signature.parameters.values()
        return self.plain_signature.replace(parameters=[p for p in parameters if p.name != self.call_slot])

    @property
    def is_async(self) -> bool:
        import inspect

        return inspect.iscoroutinefunction(self.function)

    def arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments by name, defaults included. Raises InvalidInput as the call itself would TypeError."""
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise InvalidInput(f"{self.name}: {error}", f"it takes {self.signature}") from None
        bound.apply_defaults()
        named: dict[str, Any] = {}
        for name, value in bound.arguments.items():
            if self.signature.parameters[name].kind is _kinds().VAR_KEYWORD:
                named |= value
            else:
                named[name] = value
        return named

    def said(self, intent: dict[str, Any]) -> dict[str, Any]:
        """What was said beyond the defaults: a parameter added later must not change who an effect is."""
        return {name: value for name, value in intent.items() if not _equal(self._default(name), value)}

    def recorded(self, intent: serial.Json, arguments: dict[str, Any]) -> dict[str, Any]:
        """The arguments as they were sent, rebuilt by the annotations; what cannot be, as they are now."""
        if not isinstance(intent, dict):
            return arguments
        hints = hints_of(self.function)
        rest = next((p.name for p in self.signature.parameters.values() if p.kind is p.VAR_KEYWORD), "")
        rebuilt = dict(arguments)
        for name, value in intent.items():
            parameter = self.signature.parameters.get(name)
            hint = hints.get(name if parameter is not None else rest)
            many = parameter is not None and parameter.kind is parameter.VAR_POSITIONAL and hint is not None
            try:
                rebuilt[name] = serial.decode(value, list[hint] if many else hint, what=name)  # type: ignore[valid-type]
            except InvalidInput:
                continue  # what is recorded no longer fits the code; only the present value does
        return rebuilt

    def invoke(self, arguments: dict[str, Any], call: Call) -> tuple[Callable[..., R], tuple[Any, ...], dict[str, Any]]:
        """The function with everything it is to be called with."""
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        rest = dict(arguments)
        for parameter in self.plain_signature.parameters.values():
            if parameter.kind is parameter.VAR_KEYWORD:
                continue
            value = call if parameter.name == self.call_slot else rest.pop(parameter.name, MISSING)
            if parameter.kind is parameter.VAR_POSITIONAL:
                args += () if value is MISSING else value
            elif value is not MISSING and parameter.kind is parameter.KEYWORD_ONLY:
                kwargs[parameter.name] = value
            elif value is not MISSING:
                args.append(value)
        return self.function, tuple(args), {**kwargs, **rest}

    @functools.cached_property
    def returns(self) -> Any:
        if self.options.returns is not None:
            return self.options.returns
        return serial.return_annotation(self.function)

    def _default(self, name: str) -> Any:
        parameter = self.signature.parameters.get(name)
        if parameter is None or parameter.default is parameter.empty:
            return [] if parameter is not None and parameter.kind is parameter.VAR_POSITIONAL else MISSING
        return parameter.default

    def _with_call(self, kwargs: dict[str, Any], slot: str) -> dict[str, Any]:
        if self.plain_signature.parameters[slot].default is not self.plain_signature.empty:
            return kwargs
        import secrets

        return {**kwargs, slot: Call(f"sf_{secrets.token_hex(16)}", 1, None)}

    def _check_by(self) -> None:
        kinds = _kinds()
        parameters = self.signature.parameters
        if any(p.kind is kinds.VAR_KEYWORD for p in parameters.values()):
            return
        for name in self.options.by or ():
            if name not in parameters:
                has = ", ".join(parameters) or "none"
                raise InvalidInput(
                    f"{self.name}: by names {name!r}, which {_called(self.function)} does not have",
                    f"its parameters are: {has}",
                )

    def _check_parameters(self, function: Callable[..., Any], what: str, *, skip: int) -> None:
        ours = set(self.signature.parameters)
        parameters = parameters_of(function)
        for parameter in parameters[skip + (bool(parameters) and parameters[0].name == "self") :]:
            if parameter.default is parameter.empty and parameter.name not in ours and not takes_rest(parameter):
                raise InvalidInput(
                    f"{self.name}: its {what} {_called(function)} wants {parameter.name!r}, "
                    f"which {_called(self.function)} does not have",
                    f"it may take: {', '.join(sorted(ours)) or 'nothing'}",
                )


class Decorator(Protocol):
    """What `@standfast.effect(…)` is: a function whose first parameter is the Call is called without it."""

    @overload
    def __call__(self, function: Callable[Concatenate[Call, P], R], /) -> Declared[P, R]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> Declared[P, R]: ...


def effect(
    name: str,
    *,
    by: str | Iterable[str] | None = None,
    idempotent: Idempotent = False,
    not_applied: Exceptions = (),
    approve: bool = False,
    attempts: int = 1,
    returns: Any = None,
    settle: Duration | None = None,
    per: str | None = None,
) -> Decorator:
    """Declare that a function changes the outside world, and what identifies one such change.

    by          the parameters that make two calls the same effect; without it, all of them
    idempotent  True, or for how long, if the remote honours `call.key`: in doubt, it is sent again
    not_applied exceptions that prove that nothing was sent
    approve     a person has to say yes to each
    attempts    how many dispatches one grant allows, 1 to 10; the approver reads the number
    returns     the type of the result, where the annotation does not say it
    settle      a probe's "not there" counts only this long after the last attempt could send; default 10 s
    per         "store": tool and `by` are one effect in every session; default "session"
    """
    given = {"by": by, "idempotent": idempotent, "not_applied": not_applied, "approve": approve, "attempts": attempts}
    options = Options().with_({**given, "returns": returns, "settle": settle, "per": per})
    if not isinstance(name, str):
        raise InvalidInput("an effect is declared with its name", '@standfast.effect("github.open_pr")')

    def declare(function: Callable[..., Any]) -> Declared[Any, Any]:
        made: Declared[Any, Any] = Declared(name, function, options)
        _declared[name] = made
        return made

    return cast("Decorator", declare)


# -- small parts ------------------------------------------------------------------------------------


@functools.cache
def _kinds() -> Any:
    import inspect

    return inspect.Parameter


def _equal(default: Any, value: serial.Json) -> bool:
    try:
        return default is not MISSING and serial.canonical(default) == serial.canonical(value)
    except InvalidInput:  # a default that has no plain form is not what was said
        return False


def _called(function: Callable[..., Any]) -> str:
    return f"{getattr(function, '__qualname__', repr(function))}()"


def _names(by: object) -> tuple[str, ...] | None:
    if by is None:
        return None
    names = (by,) if isinstance(by, str) else tuple(by) if isinstance(by, Iterable) else (by,)
    if not all(isinstance(name, str) and name for name in names):
        raise InvalidInput("by names fields of the intent", 'for example by=("repo", "branch")')
    return tuple(dict.fromkeys(names))


def _exceptions(given: object) -> tuple[type[BaseException], ...]:
    kinds = given if isinstance(given, tuple) else (given,)
    for kind in kinds:
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise InvalidInput(
                "not_applied lists exceptions that prove that nothing was sent", "not_applied=(OSError,)"
            )
    return kinds
