"""`standfast restore`: restore a copy as a read-only store elsewhere, or in place of the store."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from standfast import hints
from standfast.cli import exits
from standfast.cli.answers import One, show
from standfast.cli.backup import PLACE
from standfast.cli.confirm import CONFIRM, require_consent
from standfast.cli.frame import argument, command, option
from standfast.cli.open_store import opened
from standfast.cli.output import Out
from standfast.cli.progress import watched
from standfast.cli.terminal import terminal_of_a_person
from standfast.cli.values import plain
from standfast.clock import readable
from standfast.config import load, parse_db_target, people
from standfast.errors import ApprovalRequired, Conflict, InvalidInput
from standfast.ids import short

if TYPE_CHECKING:
    from standfast.admin.copies.manifest import Manifest
    from standfast.admin.copies.places import CopyPlace
    from standfast.admin.restore_gap import Open
    from standfast.config import Settings
    from standfast.handle import Standfast
    from standfast.ledger.effects.models import Effect


@command("restore", examples=("standfast restore --to look", "standfast restore --here"))
@argument("copy", required=False, metavar="[ID|finish|promote]")
@option("--to", metavar="DIR|URL", help="Restore into this empty directory or PostgreSQL database, read-only.")
@option("--here", is_flag=True, help="Replace the store, and move the present one aside. Agents may not do this.")
@option("--if-missing", is_flag=True, help="Restore only if there is no store, without asking; for unattended starts.")
@option("--as-of", metavar="TIME", help='Use the newest copy taken before this time: "tue 03:00", 2h.')
@option("--receipt", metavar="RECEIPT", help="Use the oldest copy that contains the change of this receipt.")
@option("--ask-each", is_flag=True, help="With `restore finish`: ask about each effect in doubt.")
@option(
    "--nothing-was-sent",
    is_flag=True,
    help="With `restore finish`: close the gap, because nothing else was sent in it.",
)
@option("--confirm", **CONFIRM)
@option("--from", "place", **PLACE)
def restore(
    out: Out,
    copy: str | None,
    to: str | None,
    here: bool,
    if_missing: bool,
    as_of: str | None,
    receipt: str | None,
    ask_each: bool,
    nothing_was_sent: bool,
    confirm: str | None,
    place: str | None,
) -> None:
    """Restore a copy to another place (--to) or in place of the store (--here), by default the newest verified copy.

    After --here, effects that may have been sent after the copy was taken are in doubt until `restore finish` closes
    that gap. `restore promote` turns a read-only copy into a store that accepts writes.
    """
    from standfast.admin.copies import choose
    from standfast.admin.copies.restore import restore as restored

    settings = load()
    if copy == "finish":
        _finish(out, ask_each, nothing_was_sent)
        return
    if ask_each or nothing_was_sent:
        raise click.UsageError("--ask-each and --nothing-was-sent belong to `restore finish`")
    if copy == "promote":
        _promote(out, settings, confirm)
        return
    if sum((to is not None, here, if_missing)) != 1:
        raise click.UsageError(
            "give --to DIR to read a copy, --here to replace the store, or --if-missing for an unattended start"
        )
    if if_missing and _present(out, settings, place):
        return
    found, there = choose.chosen(settings, place, copy, as_of, receipt)
    if to is None:
        _here(out, settings, found, there, confirm, ["--from", place] if place else [], ask=here)
        return
    target = parse_db_target(to, default_path=to)
    with watched(out, "restoring") as progress:
        done = restored(found, there, target, progress)
    show(out, One(done, [f"{done.copy} is restored, read only, to {done.to}: the journal ends at {done.seq}"]))
    if target.engine == "sqlite":
        out.then(f"STANDFAST_DATA_DIR={hints.word(target.location)} standfast timeline")


def _present(out: Out, settings: Settings, place: str | None) -> bool:
    """Whether no restore is needed: a store exists, or there is no copy and this host remembers no store here."""
    from standfast.admin.copies.places import configured, opened
    from standfast.admin.copies.restore_here import look
    from standfast.db import store_memory

    there = look(settings.target)
    if there is not None:
        out.record({"store": there.store_id}, [f"{settings.target.shown} has the store {there.store_id}"])
        return True
    root = opened(place) if place else configured(settings.options.copies.to)
    here = store_memory.place_of(settings.target)
    if root.stores() or (here is not None and store_memory.at(here)):
        return False
    out.record({"store": None}, [f"there is no copy in {root.shown}: the next command creates a store"])
    return True


def _lacking(seq: int, last: int) -> str:
    if seq == last:
        return f"The copy ends with the last known row of the journal, {last}."
    return f"The copy ends at row {seq} of the journal. The last known row is {last}."


def _here(
    out: Out,
    settings: Settings,
    manifest: Manifest,
    there: CopyPlace,
    confirm: str | None,
    place: list[str],
    *,
    ask: bool,
) -> None:
    from standfast.admin.copies.restore_here import here, plan

    people.refuse("restores the store")
    what = plan(settings, manifest)
    if not ask and what.to and os.path.lexists(settings.target.location):
        raise Conflict(f"{settings.target.shown} is there and cannot be read", "standfast restore --here")
    shown = {**what.as_dict(), "hash": what.hash}
    lines = [
        f"Restore {what.copy} of {readable(manifest.taken_us)} to {what.place}.",
        f"The present store moves to {what.to}." if what.to else "No store is there.",
        _lacking(manifest.seq, what.last),
        *(
            [f"This store was moved to {what.moved}: if it is in use there, both stores would send effects."]
            if what.moved
            else []
        ),
    ]
    if ask or confirm is not None:
        words = ["restore", manifest.id, *place, "--here"]
        require_consent(out, words, "Type yes to restore: ", shown, lines, confirm)
    with watched(out, "restoring") as progress:
        here(settings, manifest, there, what, progress)
    out.record(shown, [f"{what.copy} is restored to {what.place}, epoch {what.epoch}; loops are paused"])
    out.say(
        f"Effects that may have been sent since {readable(manifest.taken_us)} are in doubt until the gap is closed."
    )
    out.then("standfast restore finish")


# -- restore finish and restore promote ---------------------------------------------------------------


CLOSE = "standfast restore finish --nothing-was-sent"


def _finish(out: Out, ask_each: bool, nothing_was_sent: bool) -> None:
    """Show the gap and its effects in doubt, then close the gap or ask about each effect."""
    from standfast.admin import restore_gap

    if ask_each and nothing_was_sent:
        raise click.UsageError("give --ask-each or --nothing-was-sent")
    people.refuse("restores the store")
    with opened(create=False) as sf:
        found = restore_gap.look(sf._store)
        lines = _lines(found)
        if not nothing_was_sent and not _asked(out, sf, found, lines, ask_each):
            return
        receipt = restore_gap.nothing_was_sent(sf._store)
    shown = {**found.gap._asdict(), "effects": len(found.effects), "receipt": plain(receipt)}
    out.record(shown, [f"the gap {found.gap.shown} is closed"])
    out.then("standfast loop list")


def _lines(found: Open) -> list[str]:
    gap = found.gap
    lost = f"rows {gap.seq + 1} to {gap.seen}" if gap.seen > gap.seq else "no row that this host saw"
    lines = [f"The store has no record of the time {gap.shown}: {lost} of the journal."]
    lines += [f"  {short(one.id)}  {one.shown} is in doubt" for one in found.effects]
    return [*lines, "Effects that were sent in that time and that no program has asked for yet are not in this list."]


def _asked(out: Out, sf: Standfast, found: Open, lines: list[str], ask_each: bool) -> bool:
    """Whether a person confirmed that nothing else was sent."""
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
            f"the gap {found.gap.shown} is open: effects that were sent in it would be sent again",
            f"look at the outside systems; {each}if nothing else was sent: {CLOSE}",
            code="gap_open",
        ) from None


def _question(effect: Effect) -> str:
    return f"{effect.shown}: was it sent? Type yes, no, or nothing to leave it in doubt: "


def _settled(out: Out, sf: Standfast, effect: Effect, said: str) -> bool:
    """Record the answer. Returns False if the answer needs a result: `effect resolve` takes one."""
    if said not in ("yes", "no"):
        return False
    evidence = "a person answered restore finish --ask-each"
    try:
        sf.effects.resolve(effect.id, "applied" if said == "yes" else "not_applied", evidence=evidence)
    except InvalidInput as error:
        out.say(str(error))
        return False
    return True


def _promote(out: Out, settings: Settings, confirm: str | None) -> None:
    """Turn the configured read-only copy into a store that accepts writes, after one question."""
    from standfast.admin.copies.restore_here import copied, promote
    from standfast.admin.plans import plan_hash

    people.refuse("restores the store")
    there = copied(settings)
    facts = {"store": there.store_id, "copy": there.meta["copy_of"], "place": settings.target.shown}
    plan = {**facts, "hash": plan_hash(facts)}
    lines = [
        f"{plan['place']} is restored from {plan['copy']}. Promoted, it is the store {plan['store']}.",
        "If another machine still uses this store, both stores would send effects that the other does not know.",
    ]
    question = "Does no other machine use this store any more? Type yes: "
    require_consent(out, ["restore", "promote"], question, plan, lines, confirm)
    gap = promote(settings)
    out.record({**plan, "gap": gap._asdict()}, [f"{plan['place']} accepts writes now; loops are paused"])
    out.then("standfast restore finish")
