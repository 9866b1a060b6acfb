"""The size of one try: full, or short if all campaigns have to fit into a few minutes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

SIZES = frozenset(
    (
        "acts",
        "calls",
        "count",
        "disasters",
        "events",
        "examples",
        "families",
        "faults",
        "firsts",
        "histories",
        "images",
        "inputs",
        "jobs",
        "kills",
        "losses",
        "moves",
        "partitions",
        "programs",
        "rounds",
        "schedules",
        "seconds",
        "simulations",
        "steps",
    )
)
"""The arguments of campaigns that set the amount of work."""
SHORTER = 5


def shortened(run: Callable[..., object], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The same arguments with a fifth of each amount, at least 1. Defaults of `run` are shortened too."""
    named = inspect.signature(run).parameters
    defaults = {name: one.default for name, one in named.items() if one.default is not inspect.Parameter.empty}
    sizes = {name: value for name, value in {**defaults, **arguments}.items() if name in SIZES and value}
    return {**arguments, **{name: max(1, value // SHORTER) for name, value in sizes.items()}}
