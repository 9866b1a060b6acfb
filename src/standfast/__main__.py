"""`python -m standfast` is the `standfast` command."""

from __future__ import annotations

from standfast.cli import start

start()
