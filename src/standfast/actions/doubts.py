"""The ready probe of a recorded effect: of `standfast once`, or of an effect of this package.

The row has facts and no command. The name of the action or of the tool selects the probe.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from typing import Any

from standfast.actions import table
from standfast.actions.action import Answer, Facts, Place, unknown
from standfast.config.scope import Label
from standfast.ledger.effects import identity
from standfast.ledger.effects.identity import Asking
from standfast.ledger.effects.models import Effect

WORDS = {True: "did arrive", False: "did not arrive", None: "may or may not have arrived"}


def facts_of(effect: Effect) -> Facts | None:
    """The facts that `once` recorded for the probe."""
    found = effect.context.get("action") if isinstance(effect.context, dict) else None
    return found if isinstance(found, dict) else None


def looked_up(effect: Effect, say: Callable[[str], None] = lambda text: None) -> Answer:
    """Ask the probe of a recorded `once`. The result of the answer has the form of a command's result."""
    facts = facts_of(effect)
    if facts is None:
        return unknown("no facts for a probe were recorded")
    answer = table.check(facts, Place(str(effect.context.get("cwd") or "/"), effect.dispatched_us))
    say(f"standfast: asked `{table.shown(facts)}`: it {WORDS[answer.happened]} ({answer.evidence})")
    return answer._replace(result={"exit": 0, "stdout": "", "stderr": "", "found": answer.evidence})


def asking(effect: Effect, say: Callable[[str], None] = lambda text: None) -> Asking | None:
    """The ready probe of a recorded effect; None if there is none."""
    facts = facts_of(effect)
    if effect.tool == "once":
        action = None if facts is None else table.named(facts.get("action"))
        if action is None or facts is None or action.find is None:
            return None

        def ask(_: Any, __: Any) -> Any:
            return looked_up(effect, say).as_probe()

        return Asking("once", ask, table.shown(facts), identity.settle_us(action.settle))
    module = effect.tool.partition(".")[0]
    if module not in table.MODULES.values():
        return None
    import_module(f"standfast.actions.{module}")
    from standfast.ledger.effects.intent import asking_of

    return asking_of(effect.tool)


def elsewhere(effect: Effect, cwd: str, label: Label) -> str | None:
    """The directory in which an effect must be checked, if it is another one: a probe reads the sender's repository."""
    there = str((facts_of(effect) or {}).get("dir") or (effect.context or {}).get("cwd") or "")
    home = Label(effect.git_dir, effect.origin)
    if not home.outside:
        return None if label.meets(home) else there or home.name
    return None if not there or os.path.realpath(there) == os.path.realpath(cwd) else there
