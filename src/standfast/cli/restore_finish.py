"""`standfast restore finish` and `restore promote`: what a person decides about a restored store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from standfast import hints, serial
from standfast.cli import exits
from standfast.cli.confirm import agreed
from standfast.cli.open_store import opened
from standfast.cli.output import Out
from standfast.cli.person_terminal import terminal_of_a_person
from standfast.cli.values import plain
from standfast.config import people
from standfast.errors import ApprovalRequired, Conflict, InvalidInput
from standfast.ids import short

if TYPE_CHECKING:
    from standfast.admin.gap_changes import Open
    from standfast.config import Settings
    from standfast.handle import Standfast
    from standfast.ledger.effects.models import Effect

CLOSE = "standfast restore finish --nothing-was-sent"


def finish(out: Out, ask_each: bool, nothing_was_sent: bool) -> None:
    """Show the gap and the effects in doubt; then close it, or ask about each."""
    from standfast.admin import gap_changes

    if ask_each and nothing_was_sent:
        raise click.UsageError("give --ask-each or --nothing-was-sent")
    people.refuse("restores the store")
    with opened(create=False) as sf:
        found = gap_changes.look(sf._store)
        lines = _lines(found)
        if not nothing_was_sent and not _asked(out, sf, found, lines, ask_each):
            return
        receipt = gap_changes.nothing_was_sent(sf._store)
    shown = {**found.gap._asdict(), "effects": len(found.effects), "receipt": plain(receipt)}
    out.record(shown, [f"the gap {found.gap.shown} is closed"])
    out.then("standfast loop list")


def _lines(found: Open) -> list[str]:
    gap = found.gap
    lost = f"rows {gap.seq + 1} to {gap.seen}" if gap.seen > gap.seq else "no row that this host saw"
    lines = [f"The store has no record of the time {gap.shown}: {lost} of the journal."]
    lines += [f"  {short(one.id)}  {one.shown} is in doubt" for one in found.effects]
    return [*lines, "What a program sent in that time, and has not asked about yet, is not in this list."]


def _asked(out: Out, sf: Standfast, found: Open, lines: list[str], ask_each: bool) -> bool:
    """Whether the person said that nothing else was sent."""
    try:
        with terminal_of_a_person("standfast restore finish") as terminal:
            for line in lines:
                terminal.write(line + "\n")
            question = "\nType `nothing` if nothing was sent in that time, or `each` to be asked about each effect: "
            said = "each" if ask_each else terminal.ask(question).lower()
            if said == "each":
                settled = sum(_settled(out, sf, one, terminal.ask(_question(one)).lower()) for one in found.effects)
                out.record({"settled": settled}, [f"{settled} of {len(found.effects)} effects are settled"])
                out.then(CLOSE)
            elif said != "nothing":
                out.say("nothing was changed")
                raise click.exceptions.Exit(exits.NEEDS_A_PERSON)
            return said == "nothing"
    except ApprovalRequired as error:
        if error.code != "no_terminal":
            raise
        out.record({**found.gap._asdict(), "effects": [plain(one) for one in found.effects]}, lines)
        ids = [short(one.id) for one in found.effects]
        resolve = hints.command("effect", "resolve", ids[0], "--applied", "--evidence", "TEXT") if ids else ""
        each = f"for each effect: {resolve}, or with --not-applied; " if ids else ""
        raise ApprovalRequired(
            f"the gap {found.gap.shown} is open: what was sent in it would be sent again",
            f"look at the outside systems; {each}if nothing else was sent: {CLOSE}",
            code="gap_open",
        ) from None


def _question(effect: Effect) -> str:
    return f"{effect.shown}: was it sent? Type yes, no, or nothing to leave it in doubt: "


def _settled(out: Out, sf: Standfast, effect: Effect, said: str) -> bool:
    """Record the answer; one that needs a result is left to `effect resolve`."""
    if said not in ("yes", "no"):
        return False
    evidence = "a person was asked by restore finish --ask-each"
    try:
        sf.effects.resolve(effect.id, "applied" if said == "yes" else "not_applied", evidence=evidence)
    except InvalidInput as error:
        out.say(str(error))
        return False
    return True


def promote(out: Out, settings: Settings, confirm: str | None) -> None:
    """Make the configured read-only copy the store to work in, after one question."""
    from standfast.admin.copies.here import copied, promote

    people.refuse("restores the store")
    there = copied(settings)
    facts = {"store": there.store_id, "copy": there.meta["copy_of"], "place": settings.target.shown}
    plan = {**facts, "hash": serial.hash(facts).removeprefix("h1:")[:12]}
    if confirm is not None and confirm != plan["hash"]:
        raise Conflict(f"the plan is {plan['hash']} now, not {confirm}", "standfast restore promote")
    lines = [
        f"{plan['place']} is restored from {plan['copy']}. Promoted, it is the store {plan['store']}.",
        "If another machine still uses this store, both would send what the other does not know of.",
    ]
    question = "Does no other machine use this store any more? Type yes: "
    if confirm is None and not agreed(out, ["restore", "promote"], question, plan, lines):
        out.say("nothing was changed")
        raise click.exceptions.Exit(exits.NEEDS_A_PERSON)
    gap = promote(settings)
    out.record({**plan, "gap": gap._asdict()}, [f"{plan['place']} is the store to work in; loops are paused"])
    out.then("standfast restore finish")
