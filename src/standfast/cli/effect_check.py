"""`standfast effect check`: run the ready probe of an effect in doubt, and record its answer if a person agrees."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from standfast import hints
from standfast.cli import exits
from standfast.cli.answers import One
from standfast.cli.once_probe import say
from standfast.cli.terminal import terminal_of_a_person
from standfast.cli.values import short
from standfast.config import people
from standfast.errors import InvalidInput

if TYPE_CHECKING:
    from standfast.handle import Standfast
    from standfast.ledger.effects.identity import Asking
    from standfast.ledger.effects.models import Effect
    from standfast.ledger.effects.resolve_doubt import Look


def check(sf: Standfast, name: str, *, yes: bool, ended: Callable[[Effect], One]) -> One:
    """Run the probe, and settle the doubt if the answer counts and the caller agrees."""
    from standfast.ledger.effects import resolve_doubt

    effect = sf.effects.get(name)
    asking = _asking(sf, effect)
    look = resolve_doubt.look(sf._store, effect.id, asking)
    finding, answer = _finding(look, asking)
    if not look.counts or not (yes or _agreed(effect, finding, answer)):
        lines = [finding, "nothing was recorded: the effect is still in doubt"]
        return One(effect, lines, f"effect check {short(effect.id)}", exit_code=exits.IN_DOUBT)
    _refuse_agents(sf, effect)
    resolve_doubt.settle(sf._store, look, asking._replace(name=f"{asking.name}: {finding}"))
    return ended(sf.effects.get(effect.id))


def _asking(sf: Standfast, effect: Effect) -> Asking:
    from standfast.actions import doubts

    asking = doubts.asking(effect, say)
    if asking is None:
        resolve = hints.command("effect", "resolve", short(effect.id), "--applied", "--evidence", "TEXT")
        raise InvalidInput(
            f"standfast has no ready probe for {effect.shown}", f"find out whether it happened, then: {resolve}"
        )
    there = doubts.elsewhere(effect, os.getcwd(), sf.settings.label)
    if there is not None:
        raise InvalidInput(
            f"{effect.shown} was sent from {there}, and its probe reads that directory",
            f"cd {hints.word(there)} && {hints.command('effect', 'check', short(effect.id))}",
        )
    return asking


def _finding(look: Look, asking: Asking) -> tuple[str, str]:
    """The finding as text, and the state that it leads to."""
    from standfast.ledger.effects.call import Applied, NotApplied

    if isinstance(look.answer, Applied):
        value = look.answer.value
        found = value.get("found") if isinstance(value, dict) else None
        return f"it did arrive{f' ({found})' if found else ''}", "acknowledged"
    if isinstance(look.answer, NotApplied):
        late = "" if look.doubt.quiet else "; its holder may still send it, so check again later"
        return f"it did not arrive ({look.answer.why}){late}", "failed: the next call sends it"
    return f"{asking.name} could not tell ({look.answer.why})", ""


def _agreed(effect: Effect, finding: str, answer: str) -> bool:
    words = ("effect", "check", short(effect.id))
    with terminal_of_a_person(hints.command(*words), f"to record it: {hints.command(*words, '--yes')}") as terminal:
        terminal.write(f"{effect.shown}: {finding}\n")
        return terminal.ask(f"Record it as {answer}? Type yes: ").lower() == "yes"


def _refuse_agents(sf: Standfast, effect: Effect) -> None:
    """Refuse agents if the effect needed an approval."""
    from standfast.ledger import approvals

    if sf.read(lambda tx: approvals.asked(tx, effect.id)):
        people.refuse("resolves an effect that needed approval")
