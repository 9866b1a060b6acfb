"""A handle for one program: all programs share one store, and each has its own scope."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from standfast import config, handle
from standfast.clock import Clock
from standfast.config import Settings
from standfast.handle import Standfast


def opened(
    url: str, data: Path, scope: str, *, clock: Clock | None = None, actor: str | None = None, as_actor: bool = False
) -> Standfast:
    return handle.connect(_settings(url, data, actor)._replace(scope=scope), clock=clock, as_actor=as_actor)


@cache
def _settings(url: str, data: Path, actor: str | None) -> Settings:
    return config.load(url, data_dir=data, actor=actor)
