"""List prices of models, for calls whose cost neither the provider nor the transcript reports.

The table of the user comes first: `STANDFAST_PRICES` names a TOML file with US dollars per million tokens.

    ["m-1"]
    input = 3.0
    output = 15.0
    cached_input = 0.3       # without it, as `input`
    cache_write = 3.75       # without it, as `input`

Then genai-prices, if it is installed. If neither has the model, the cost is unknown, not 0. Each cost is stored with a
label, because a provider may bill another amount than the list price.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Any, NamedTuple

from standfast.errors import InvalidInput
from standfast.ledger.budgets.amounts import microusd

FIELDS = ("input", "output", "cached_input", "cache_write")


class Price(NamedTuple):
    """The cost of one call in millionths of a US dollar, and where it is from."""

    microusd: int
    label: str


def list_price(model: str | None, *, fresh: int, cached: int, cache_write: int, output: int) -> Price | None:
    """The list price of these tokens; None if no price is known. `fresh` counts input that was not cached."""
    if not model:
        return None
    own = table(os.environ.get("STANDFAST_PRICES", "")).get(model)
    if own is not None:
        priced = (fresh * own["input"], output * own["output"])
        kept = (cached * own.get("cached_input", own["input"]), cache_write * own.get("cache_write", own["input"]))
        return Price(microusd(f"{sum((*priced, *kept)) / 1_000_000:.9f}"), "list price, own table")
    try:
        import genai_prices
    except ImportError:
        return None
    whole = {"input_tokens": fresh + cached + cache_write, "output_tokens": output}
    usage = genai_prices.Usage(**whole, cache_read_tokens=cached, cache_write_tokens=cache_write)
    try:
        found = genai_prices.calc_price(usage, model_ref=model)
    except LookupError:
        return None
    return Price(microusd(found.total_price), f"list price, genai-prices {_version()}")


def fresh_input(model: str | None, input: int, cached: int, cache_write: int) -> int:
    """Input that was not cached. Anthropic counts cached tokens beside the input, other providers within it."""
    return input if (model or "").startswith("claude") else max(0, input - cached - cache_write)


@cache
def table(path: str) -> dict[str, dict[str, float]]:
    """The prices in a file; empty without a path. Raises InvalidInput for a file that cannot be read."""
    if not path:
        return {}
    import tomllib

    try:
        with open(path, "rb") as file:
            found: dict[str, Any] = tomllib.load(file)
    except (OSError, ValueError) as error:
        raise InvalidInput(
            f"STANDFAST_PRICES names {path}, which cannot be read: {error}", code="configuration"
        ) from None
    for model, prices in found.items():
        known = isinstance(prices, dict) and {"input", "output"} <= set(prices) <= set(FIELDS)
        if not known or not all(isinstance(price, int | float) and 0 <= price < 1e6 for price in prices.values()):
            raise InvalidInput(
                f"{path}: {model!r} needs input and output in US dollars per million tokens", code="configuration"
            )
    return found


def _version() -> str:
    from importlib.metadata import version

    return version("genai-prices")
