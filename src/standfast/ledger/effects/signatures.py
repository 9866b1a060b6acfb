"""Read the signatures of users' functions: which parameter takes the Call, and which arguments a probe gets."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from standfast.core.checks import NOT_GIVEN
from standfast.ledger.effects.call import Call

if TYPE_CHECKING:
    import inspect


def parameters_of(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """The parameters that callers fill: all except the Call."""
    import inspect

    signature = inspect.signature(function)
    slot = call_slot(function, signature)
    return [p for p in signature.parameters.values() if p.name != slot]


def fill(
    function: Callable[..., Any], first: tuple[Any, ...], arguments: dict[str, Any], call: Call
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments for a probe or a compensation: `first` by position, then each of `arguments` that has a parameter."""
    import inspect

    signature = inspect.signature(function)
    slot = call_slot(function, signature)
    args: list[Any] = []
    named: dict[str, Any] = {}
    left = list(first)
    for name, parameter in signature.parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            named |= {other: value for other, value in arguments.items() if other not in signature.parameters}
            continue
        value = call if name == slot else left.pop(0) if left else arguments.get(name, NOT_GIVEN)
        if value is NOT_GIVEN or parameter.kind is parameter.VAR_POSITIONAL:
            continue
        if parameter.kind is parameter.POSITIONAL_ONLY:
            args.append(value)
        else:
            named[name] = value
    return tuple(args), named


def call_slot(function: Callable[..., Any], signature: inspect.Signature) -> str | None:
    """The parameter that receives the Call."""
    for name, parameter in signature.parameters.items():
        if _is_call(parameter.annotation, getattr(function, "__globals__", {})):
            return name
    return None


def _is_call(annotation: Any, names: dict[str, Any]) -> bool:
    if not isinstance(annotation, str):
        return annotation is Call
    words = annotation.strip("'\" ").split(".")
    if words[-1] != "Call":
        return False
    # A postponed annotation is text. Look the name up in the module. A name that is imported only for type checkers is
    # not there, so the word `Call` alone decides.
    found = names.get(words[0], NOT_GIVEN)
    for word in words[1:]:
        found = getattr(found, word, NOT_GIVEN)
    return found is Call or found is NOT_GIVEN


_CONTEXTS = {
    "agents": ("RunContextWrapper", "ToolContext"),
    "langchain": ("ToolRuntime",),
    "langchain_core": ("RunnableConfig", "InjectedToolCallId"),
    "langgraph": ("InjectedState", "InjectedStore", "ToolRuntime"),
    "pydantic_ai": ("RunContext",),
}
"""Parameters that agent frameworks fill in, by package: their classes, and their marks in `Annotated`."""


def contexts_of(function: Callable[..., Any]) -> frozenset[str]:
    """The parameters that an agent framework fills in. They are not part of the intent."""
    from typing import get_args, get_origin

    def is_context(hint: Any) -> bool:
        kind = get_origin(hint) or hint
        kind = kind if isinstance(kind, type) else type(kind)
        package = kind.__module__.partition(".")[0]
        return kind.__name__ in _CONTEXTS.get(package, ()) or any(map(is_context, getattr(hint, "__metadata__", ())))

    def any_context(hint: Any) -> bool:
        return is_context(hint) or any(map(is_context, get_args(hint)))

    return frozenset(
        name for name, hint in hints_of(function, extras=True).items() if name != "return" and any_context(hint)
    )


def bound(function: Any, instance: object) -> Any:
    """The function, bound to `instance` if its first parameter is `self`: a method beside its effect."""
    if not callable(function) or not (names := [p.name for p in parameters_of(function)]) or names[0] != "self":
        return function
    method: Callable[..., Any] = function.__get__(instance)
    return method


def takes_rest(parameter: inspect.Parameter) -> bool:
    """Whether the parameter is `*args` or `**kwargs`."""
    return parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)


def hints_of(function: Callable[..., Any], *, extras: bool = False) -> dict[str, Any]:
    """The annotations of a function, resolved; empty if one of them cannot be resolved."""
    from typing import get_type_hints

    try:
        return get_type_hints(function, include_extras=extras)
    except (NameError, TypeError, AttributeError, SyntaxError):
        return {}
