"""Makes the product's timeouts small: a test waits tenths of a second instead of 30 s.

A timeout is a constant that modules import by name, so it is set in each of them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable


def set_limit(name: str, value: float, *, change: Callable[[object, str, object], object] = setattr) -> None:
    """`change` is `monkeypatch.setattr` in a test, and `setattr` in a child process."""
    import standfast.db.sqlite.engine  # noqa: F401  so that everything that has the name is loaded

    holders = [
        module
        for key, module in list(sys.modules.items())
        if key.startswith("standfast.db") and isinstance(getattr(module, name, None), (int, float))
    ]
    assert holders, f"no module of standfast.db has {name}"
    for module in holders:
        change(module, name, value)
