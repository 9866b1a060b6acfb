"""`@standfast.effect` declares that a function changes an outside system. No store is needed at import.

    from standfast.actions import github            # find_pr asks GitHub's API

    @standfast.effect("github.open_pr", by=("repo", "branch"), find=github.find_pr)
    def open_pr(repo: str, branch: str, title: str, body: str) -> github.PullRequest: ...

    @open_pr.compensate                             # takes the result
    def close_pr(pr: github.PullRequest) -> None: ...

    with sf.session("fix-42"):
        pr = open_pr("a/b", "fix-42", title=t, body=text)       # recorded as an effect of this session

Outside a session a call raises NoSession. `open_pr.plain(…)` runs the function without a record.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Concatenate, Final, Generic, NamedTuple, ParamSpec, Self, TypeVar, cast, overload
from weakref import ref

from standfast import serial
from standfast.core.checks import NOT_GIVEN
from standfast.core.user_code import awaited, refuse_generator, warn_duplicate
from standfast.errors import InvalidInput
from standfast.ledger import current
from standfast.ledger.effects import identity
from standfast.ledger.effects.call import Call
from standfast.ledger.effects.signatures import (
    bound,
    call_slot,
    contexts_of,
    hints_of,
    parameters_of,
    takes_rest,
)

if TYPE_CHECKING:
    import inspect
    from typing import Unpack

    from standfast.clock import Duration
    from standfast.ledger.effects.types import Approve, DeclaredOptions, Decorator, Exceptions, Idempotent

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])
F_co = TypeVar("F_co", bound=Callable[..., Any], covariant=True)


class All:
    """The type of `standfast.ALL`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "standfast.ALL"


ALL: Final = All()
"""`by=standfast.ALL`: all arguments identify the effect."""


class Options(NamedTuple):
    """The options of a declaration or of a call."""

    by: tuple[str, ...] | None = None
    idempotent: Idempotent = False
    not_applied: tuple[type[BaseException], ...] = ()
    approve: Approve = False
    wait: Duration | None = None
    retry: int = 1
    """The maximum of attempts. The next attempt is made only if the last one is known not applied. One grant covers
    all of them."""
    returns: Any = None
    key: str | None = None
    again: bool = False
    probe: Callable[..., Any] | None = None
    find: Callable[..., Any] | None = None
    compensate: Callable[..., Any] | None = None
    why: str | None = None
    settle: Duration | None = None
    per: str | None = None
    leave_out: tuple[str, ...] = ()

    def with_(self, given: dict[str, Any]) -> Options:
        """A copy of these options with the given ones replaced. Raises InvalidInput for an unknown option or a bad
        value."""
        for name in given:
            if name not in Options._fields:
                raise InvalidInput(f"effect() has no option {name!r}", f"it has: {', '.join(Options._fields)}")
        if "by" in given:
            given["by"] = None if given["by"] is ALL else _names(given["by"])
        if "leave_out" in given:
            given["leave_out"] = _names(given["leave_out"]) or ()
        if "not_applied" in given:
            given["not_applied"] = _exceptions(given["not_applied"])
        if given.get("retry", 1) != 1:
            from standfast.ledger.questions import checked_attempts

            checked_attempts(given["retry"], "retry")
        if not isinstance(given.get("approve", False), bool) and not callable(given["approve"]):
            raise InvalidInput(f"approve={given['approve']!r:.40} is neither a bool nor a function", "approve=True")
        identity.wait_us(given.get("wait"))
        identity.idempotent_us(given.get("idempotent"))
        identity.settle_us(given.get("settle"))
        if given.get("per") not in identity.PER:
            raise InvalidInput(f"per={given['per']!r:.40} is unknown", 'per="session" or per="store"')
        return self._replace(**given)


CALL_OPTIONS = ("again", "key", "approve", "wait", "why")
"""The options that `s.effect(open_pr, …)` takes too, where the function has no parameter of that name."""

_declared: dict[str, list[ref[Declared[Any]]]] = {}
"""The declarations of each tool in this process, the latest last. They are weak references: a declaration inside a
function goes away with the function's frame."""


def declared(tool: str) -> Declared[Any] | None:
    """The latest declaration of a tool in this process. Its probe also serves effects of processes that died."""
    return next((one for known in reversed(_declared.get(tool, [])) if (one := known()) is not None), None)


def _declare(made: Declared[Any]) -> None:
    known = [one for one in _declared.get(made.name, []) if one() is not None]
    _declared[made.name] = [*known, ref(made)]


class Declared(Generic[F_co]):
    """A function that is declared as an effect. A call inside a session is recorded."""

    def __init__(self, name: str, function: F_co, options: Options) -> None:
        self.name = identity.checked_tool(name)
        self.function = function
        self.options = options
        functools.update_wrapper(self, function)
        # A framework that unwraps this object would find the plain function, whose calls are not recorded.
        del self.__wrapped__  # type: ignore[attr-defined]
        self.__signature__ = self.signature
        self._check_names("by", options.by or ())
        self._check_names("leave_out", options.leave_out)
        for what in ("find", "approve"):
            if callable(named := getattr(options, what)):
                self._check_parameters(named, what, skip=0)
        if options.find is not None and options.returns is None:
            self._check_annotated()

    def __call__(self: Declared[Callable[P, R]], *args: P.args, **kwargs: P.kwargs) -> R:
        """Record the call as an effect of the current session. Raises NoSession outside any."""
        if current.UNRECORDED.get():
            return self.plain(*args, **kwargs)
        from standfast.ledger.effects.perform import perform

        opening = current.required(self.name).opening
        call = functools.partial(perform, opening, self, args, kwargs, options=False)
        return cast("R", awaited(call, self.function) if self.is_async else call())

    def plain(self: Declared[Callable[P, R]], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the plain function: nothing is recorded."""
        slot = self.call_slot
        if slot is None or slot in kwargs or any(isinstance(value, Call) for value in args):
            return self.function(*args, **kwargs)
        function, args_, kwargs_ = self.invoke(self.arguments(args, kwargs), self._plain_call(slot))
        return function(*args_, **kwargs_)

    @overload
    def __get__(self, instance: None, owner: type[object]) -> Self: ...

    @overload
    def __get__(
        self: Declared[Callable[Concatenate[Any, P], R]], instance: object, owner: type[object]
    ) -> Declared[Callable[P, R]]: ...

    def __get__(self, instance: object, owner: type[object]) -> Any:
        """A declared function in a class is a method: `self` is bound, and is not part of the intent."""
        if instance is None:
            return self
        names = ("probe", "find", "compensate", "approve")
        beside = {name: bound(getattr(self.options, name), instance) for name in names}
        return Declared(self.name, self.function.__get__(instance, owner), self.options._replace(**beside))

    def probe(self, function: F) -> F:
        """Declare the probe, which asks the outside system. It takes some or all parameters of the effect."""
        self._check_parameters(function, "probe", skip=0)
        if self.options.find is not None:
            raise InvalidInput(f"{self.name} has find= already", "keep one of the two: find= or @probe")
        self.options = self.options._replace(probe=function)
        return function

    def compensate(self, function: F) -> F:
        """Declare the function that reverses the effect. It takes the result, then parameters of the effect."""
        self._check_parameters(function, "compensate function", skip=1)
        self.options = self.options._replace(compensate=function)
        return function

    def with_options(self, **given: Unpack[DeclaredOptions]) -> Declared[F_co]:
        """The same effect with other options: `push.with_options(approve=True)(…)`."""
        return Declared(self.name, self.function, self.options.with_({**given}))

    def __repr__(self) -> str:
        return f"<effect {self.name}{self.signature}>"

    # -- the signature of the function -------------------------------------------------------

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
        """The signature that callers see: without the Call."""
        parameters = self.plain_signature.parameters.values()
        return self.plain_signature.replace(parameters=[p for p in parameters if p.name != self.call_slot])

    @functools.cached_property
    def left_out(self) -> frozenset[str]:
        """Parameters that are not part of the intent: those in `leave_out`, and contexts of agent frameworks."""
        return frozenset(self.options.leave_out) | contexts_of(self.function)

    @functools.cached_property
    def is_async(self) -> bool:
        import inspect

        return inspect.iscoroutinefunction(self.function)

    def arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments by name, with defaults. Raises InvalidInput where the plain call would raise TypeError."""
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            unknown = [name for name in kwargs if name not in self.signature.parameters]
            raise InvalidInput(f"{self.name}: {error}", f"it takes {self.signature}{self._options(unknown)}") from None
        bound.apply_defaults()
        named: dict[str, Any] = {}
        for name, value in bound.arguments.items():
            if self.signature.parameters[name].kind is _kinds().VAR_KEYWORD:
                named |= value
            else:
                named[name] = value
        return named

    def said(self, intent: dict[str, Any]) -> dict[str, Any]:
        """The arguments that differ from their defaults: a parameter added later must not change the identity."""
        return {name: value for name, value in intent.items() if not _equal(self._default(name), value)}

    def recorded(self, intent: serial.Json, arguments: dict[str, Any]) -> dict[str, Any]:
        """The stored arguments, decoded by the annotations; from this call, where one cannot be decoded."""
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
                continue  # the annotation was changed since, and the stored argument does not fit it
        return rebuilt

    def invoke(self, arguments: dict[str, Any], call: Call) -> tuple[F_co, tuple[Any, ...], dict[str, Any]]:
        """The function and the arguments to call it with."""
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        rest = dict(arguments)
        for parameter in self.plain_signature.parameters.values():
            if parameter.kind is parameter.VAR_KEYWORD:
                continue
            value: Any = call if parameter.name == self.call_slot else rest.pop(parameter.name, NOT_GIVEN)
            if parameter.kind is parameter.VAR_POSITIONAL:
                args += () if value is NOT_GIVEN else value
            elif value is not NOT_GIVEN and parameter.kind is parameter.KEYWORD_ONLY:
                kwargs[parameter.name] = value
            elif value is not NOT_GIVEN:
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
            return [] if parameter is not None and parameter.kind is parameter.VAR_POSITIONAL else NOT_GIVEN
        return parameter.default

    def _options(self, unknown: list[str]) -> str:
        """The end of the hint for unknown keywords: where an option of this name belongs."""
        ours = [name for name in unknown if name in Options._fields]
        called = self.function.__name__
        if ours:
            return f"; options go to {called}.with_options({ours[0]}=…)"
        return f"; the options of {called}.with_options are: {', '.join(Options._fields)}" if unknown else ""

    def _plain_call(self, slot: str) -> Any:
        """The Call of a plain call: the parameter's default, or a Call with a random key and no session."""
        default = self.plain_signature.parameters[slot].default
        if default is not self.plain_signature.empty:
            return default
        import secrets

        return Call(f"sf_{secrets.token_hex(16)}", 1, None)

    def _check_names(self, option: str, names: tuple[str, ...]) -> None:
        kinds = _kinds()
        parameters = self.signature.parameters
        if any(p.kind is kinds.VAR_KEYWORD for p in parameters.values()):
            return
        for name in names:
            if name not in parameters:
                has = ", ".join(parameters) or "none"
                raise InvalidInput(
                    f"{self.name}: {option} names {name!r}, which {_called(self.function)} does not have",
                    f"its parameters are: {has}",
                )
            if option == "by" and name in self.options.leave_out:
                raise InvalidInput(f"{self.name}: {name!r} is both in by and in leave_out", "keep it in one of them")

    def _check_annotated(self) -> None:
        function = getattr(self.function, "__func__", self.function)
        annotations = getattr(function, "__annotations__", {})
        if annotations.get("return") in (bool, "bool"):
            raise InvalidInput(
                f"{self.name}: find= cannot tell a result that is a bool from its own yes or no",
                f"use the long form: @{function.__name__}.probe",
            )
        if "return" not in annotations:
            raise InvalidInput(
                f"{self.name}: find= needs to know what {_called(function)} returns",
                "annotate it: -> PullRequest, or -> None if there is no result",
            )

    def _check_parameters(self, function: Callable[..., Any], what: str, *, skip: int) -> None:
        if isinstance(function, Declared):
            raise InvalidInput(f"{self.name}: its {what} {function.name} is an effect", "give a plain function")
        ours = set(self.signature.parameters)
        parameters = parameters_of(function)
        for parameter in parameters[skip + (bool(parameters) and parameters[0].name == "self") :]:
            if parameter.default is parameter.empty and parameter.name not in ours and not takes_rest(parameter):
                raise InvalidInput(
                    f"{self.name}: its {what} {_called(function)} has the parameter {parameter.name!r}, "
                    f"which {_called(self.function)} does not have",
                    f"it may take: {', '.join(sorted(ours)) or 'nothing'}",
                )


def effect(
    name: str,
    *,
    by: str | Iterable[str] | All,
    find: Callable[..., Any] | None = None,
    settle: Duration | None = None,
    per: str | None = None,
    leave_out: str | Iterable[str] = (),
    approve: Approve = False,
    wait: Duration | None = None,
    idempotent: Idempotent = False,
    not_applied: Exceptions = (),
    retry: int = 1,
    returns: Any = None,
) -> Decorator:
    """Declare that a function changes an outside system, and which arguments identify one change.

    by          the parameters that make two calls the same effect; standfast.ALL for all of them
    find        a function that looks the effect up. It takes some of the arguments and returns the result, or None if
                the effect did not happen. It raises if it cannot tell. If the effect has no result, it returns a bool.
    settle      how long after the last possible sending a "not there" begins to count; default 10 s
    per         "session" (default), or "store": tool and `by` are one effect in all sessions
    leave_out   parameters that are not recorded, such as a client or a framework's context
    approve     True, or a function of the arguments that returns a bool: a person has to approve the call
    wait        how long a call waits for that approval before it raises ApprovalRequired; default: not at all
    idempotent  True, or how long the remote service knows `call.key`. In doubt, the call is sent again with that key.
    not_applied exceptions that prove that nothing was sent
    retry       attempts in total, 1 to 10. Only a failure that is known not applied is tried again. The approver sees
                the number.
    returns     the type of the result, if the function has no return annotation
    """
    if not isinstance(name, str):
        raise InvalidInput("an effect is declared with its name", '@standfast.effect("github.open_pr", by=…)')
    if by is NOT_GIVEN:
        raise InvalidInput(
            f"{name}: by is missing: which arguments make two calls the same effect?",
            f'@standfast.effect("{name}", by=("repo", "branch")), or by=standfast.ALL for all arguments',
        )
    given: dict[str, Any] = {
        "by": by,
        "idempotent": idempotent,
        "not_applied": not_applied,
        "approve": approve,
        "retry": retry,
    }
    given |= {"find": find, "leave_out": leave_out, "wait": wait}
    options = Options().with_({**given, "returns": returns, "settle": settle, "per": per})

    def declare(function: Callable[..., Any]) -> Declared[Any]:
        refuse_generator(function, name)
        made: Declared[Any] = Declared(name, function, options)
        warn_duplicate(declared(name), function, f"effect {name!r}")
        _declare(made)
        return made

    return cast("Decorator", declare)


# Type checkers require `by`. At run time it has a default, so that the caller gets our error with its hint instead of
# Python's TypeError.
effect.__kwdefaults__ = {**(effect.__kwdefaults__ or {}), "by": NOT_GIVEN}


# -- private functions ------------------------------------------------------------------------------


@functools.cache
def _kinds() -> Any:
    import inspect

    return inspect.Parameter


def _equal(default: Any, value: serial.Json) -> bool:
    try:
        return default is not NOT_GIVEN and serial.canonical(default) == serial.canonical(value)
    except InvalidInput:  # a default without a JSON form equals no stored value
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
