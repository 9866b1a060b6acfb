"""An agent's tools: declared functions with unchanged signatures. Each call is an effect."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from standfast.ledger.effects.declared import Declared
from standfast.ledger.effects.intent import refuse_async, undeclared
from standfast.ledger.effects.perform import perform

if TYPE_CHECKING:
    from standfast.ledger.openings import Opening


def tools(opening: Opening, *functions: Callable[..., Any]) -> list[Callable[..., Any]]:
    """Make tools of declared functions. They have the same signatures, and every call is an effect of this session."""
    return [_tool(opening, function) for function in functions]


def _tool(opening: Opening, function: Callable[..., Any]) -> Callable[..., Any]:
    if not isinstance(function, Declared):
        raise undeclared(function)
    refuse_async(function.function)

    @functools.wraps(function.function)
    def tool(*args: Any, **kwargs: Any) -> Any:
        return perform(opening, function, args, kwargs)

    _dress(tool, function)
    return tool


def _dress(tool: Callable[..., Any], function: Declared[Any]) -> None:
    """Make `tool` look like the function without its Call, to readers of signatures and annotations."""
    from typing import get_type_hints

    try:
        hints = get_type_hints(function.function, include_extras=True)
    except (NameError, TypeError, AttributeError):
        # A name that is imported only for type checkers cannot be resolved: keep the text of the annotations.
        hints = dict(function.function.__annotations__)
    parameters = [p.replace(annotation=hints.get(p.name, p.annotation)) for p in function.signature.parameters.values()]
    returns = hints.get("return", function.signature.return_annotation)
    tool.__signature__ = function.signature.replace(parameters=parameters, return_annotation=returns)  # type: ignore[attr-defined]
    tool.__annotations__ = {name: hint for name, hint in hints.items() if name != function.call_slot}
    # A framework that unwraps the tool would find the plain function, whose calls are not recorded.
    del tool.__wrapped__  # type: ignore[attr-defined]
