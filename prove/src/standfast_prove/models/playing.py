"""Plays a number of random programs of a model, by a seed, on one engine."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import Any

import hypothesis
from hypothesis import HealthCheck, Phase
from hypothesis.stateful import run_state_machine_as_test

from standfast import config, handle
from standfast_prove.models.machine import Machine

MODELS = (
    "agents",
    "apply",
    "approvals",
    "conversations",
    "credits",
    "decisions",
    "effects",
    "events",
    "hooks",
    "imports",
    "leases",
    "loops",
    "mail",
    "sessions",
    "state",
    "tasks",
    "threads",
    "undo",
    "webhooks",
)


def play(name: str, url: str, data: Path, *, examples: int, seed: int = 0, small: bool = True) -> int:
    """Play programs and return their number. The first one that differs from the model is minimised, and raises."""
    module = import_module(f"standfast_prove.models.{name}")
    how = hypothesis.settings(
        max_examples=examples,
        stateful_step_count=module.STEPS,
        deadline=None,
        database=None,
        derandomize=False,
        report_multiple_bugs=False,
        phases=[Phase.generate, Phase.shrink] if small else [Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    with ExitStack() as stack:
        # Keeps the store open, so that no program opens and closes the file itself.
        stack.enter_context(handle.connect(config.load(url, data_dir=data)))
        if hasattr(module, "program_on"):
            return _programs(module.program_on(url, data), how, seed)
        return _machines(module.Program, url, data, how, seed)


def _machines(machine: type[Machine], url: str, data: Path, how: hypothesis.settings, seed: int) -> int:
    here: type[Machine] = type(machine.__name__, (machine,), {"url": url, "data": data, "played": 0})
    run_state_machine_as_test(hypothesis.seed(seed)(here), settings=how)
    return here.played


def _programs(program: Callable[..., Any], how: hypothesis.settings, seed: int) -> int:
    played, inner = 0, program.hypothesis.inner_test  # type: ignore[attr-defined]

    def counted(*args: Any, **more: Any) -> None:
        nonlocal played
        played += 1
        inner(*args, **more)

    program.hypothesis.inner_test = counted  # type: ignore[attr-defined]
    hypothesis.seed(seed)(how(program))()
    return played


def complaint(error: BaseException) -> str:
    """The violation, and the smallest program that shows it."""
    return "\n".join([f"{type(error).__name__}: {error}"[:400], *getattr(error, "__notes__", ())])
