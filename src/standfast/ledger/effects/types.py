"""The types of declared effects and of their options, for type checkers. Nothing here runs.

mypy answers `Any` if an argument contains `Any` and two overloads with different parameters match it. The overloads of
`Decorator` therefore take the whole function type, and each class finds parameters and result by its self type.
"""

# mypy: disable-error-code=empty-body
from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import (
    Any,
    Concatenate,
    Generic,
    Never,
    ParamSpec,
    Protocol,
    Self,
    TypeAlias,
    TypedDict,
    TypeVar,
    Unpack,
    overload,
)

from standfast.clock import Duration
from standfast.ledger.effects.call import Call
from standfast.ledger.effects.declared import All, Declared

Idempotent: TypeAlias = "bool | Duration"
Exceptions: TypeAlias = type[BaseException] | tuple[type[BaseException], ...]
Approve: TypeAlias = bool | Callable[..., bool]


class _Anything:
    """A parameter that accepts this class is annotated `Any` or `object`, so it is not the Call."""


A = TypeVar("A")
P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
F = TypeVar("F", bound=Callable[..., Any])
F_co = TypeVar("F_co", bound=Callable[..., Any], covariant=True)
TakesAnything = TypeVar("TakesAnything", bound=Callable[Concatenate[_Anything, ...], Any])
TakesCall = TypeVar("TakesCall", bound=Callable[Concatenate[Call, ...], Any])
TakesAnythingSecond = TypeVar("TakesAnythingSecond", bound=Callable[Concatenate[Never, _Anything, ...], Any])
TakesCallSecond = TypeVar("TakesCallSecond", bound=Callable[Concatenate[Never, Call, ...], Any])


class Decorator(Protocol):
    """The type of `@standfast.effect(…)`. Callers of the decorated function do not pass the Call."""

    @overload
    def __call__(self, function: TakesAnything, /) -> Declared[TakesAnything]: ...
    @overload
    def __call__(self, function: TakesCall, /) -> DeclaredWithCall[TakesCall]: ...
    @overload
    def __call__(self, function: TakesAnythingSecond, /) -> Declared[TakesAnythingSecond]: ...
    @overload
    def __call__(self, function: TakesCallSecond, /) -> DeclaredWithCallSecond[TakesCallSecond]: ...
    @overload
    def __call__(self, function: F, /) -> Declared[F]: ...


class DeclaredWithCall(Generic[F_co]):
    """A `Declared` whose function takes the Call first."""

    name: str

    def __call__(self: DeclaredWithCall[Callable[Concatenate[Call, P], R]], *args: P.args, **kwargs: P.kwargs) -> R: ...
    def plain(self: DeclaredWithCall[Callable[Concatenate[Call, P], R]], *args: P.args, **kwargs: P.kwargs) -> R: ...
    def probe(self, function: F) -> F: ...
    def compensate(self, function: F) -> F: ...
    def with_options(self, **given: Unpack[DeclaredOptions]) -> Self: ...


class DeclaredWithCallSecond(Generic[F_co]):
    """A `Declared` whose function takes the Call second: a method takes it after `self`."""

    name: str

    def __call__(
        self: DeclaredWithCallSecond[Callable[Concatenate[A, Call, P], R]],
        first: A,
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R: ...
    def plain(
        self: DeclaredWithCallSecond[Callable[Concatenate[A, Call, P], R]],
        first: A,
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R: ...
    @overload
    def __get__(self, instance: None, owner: type[object]) -> Self: ...
    @overload
    def __get__(
        self: DeclaredWithCallSecond[Callable[Concatenate[Any, Call, P], R]], instance: object, owner: type[object]
    ) -> DeclaredWithCall[Callable[Concatenate[Call, P], R]]: ...
    def __get__(self, instance: object, owner: type[object]) -> Any: ...
    def probe(self, function: F) -> F: ...
    def compensate(self, function: F) -> F: ...
    def with_options(self, **given: Unpack[DeclaredOptions]) -> Self: ...


class AnyDeclared(Protocol[P, R_co]):
    """Any of the three classes of declared effects, by the parameters that callers see."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...
    def plain(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...


# -- options ------------------------------------------------------------------------------------------------


class _Options(TypedDict, total=False):
    by: str | Iterable[str] | All | None
    key: str | None
    idempotent: Idempotent
    not_applied: Exceptions
    retry: int
    approve: Approve
    wait: Duration | None
    why: str | None
    settle: Duration | None
    per: str | None
    again: bool


class NamedOptions(_Options, total=False):
    """The options of `s.effect(name, intent, do=…)` beside `do` and `returns`."""

    probe: Callable[[Call], Any] | None
    compensate: Callable[[Call], Any] | None


class DeclaredOptions(_Options, total=False):
    """The options of `with_options` of a declared effect."""

    probe: Callable[..., Any] | None
    find: Callable[..., Any] | None
    compensate: Callable[..., Any] | None
    leave_out: str | Iterable[str]
    returns: Any
