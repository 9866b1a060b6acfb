"""`standfast restore`: a copy becomes a read-only store in a directory or database of its own, or the store itself."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from standfast import hints
from standfast.cli import exits
from standfast.cli.answers import One, show
from standfast.cli.backup import PLACE
from standfast.cli.confirm import agreed
from standfast.cli.frame import argument, command, option
from standfast.cli.output import Out
from standfast.cli.progress import reported
from standfast.cli.restore_finish import finish, promote
from standfast.clock import iso
from standfast.config import load, parse_db_target, people
from standfast.errors import Conflict

if TYPE_CHECKING:
    from standfast.admin.copies.manifest import Manifest
    from standfast.admin.copies.places import CopyPlace
    from standfast.config import Settings


@command("restore", examples=("standfast restore --to look", "standfast restore --here"))
@argument("copy", required=False, metavar="[ID|finish|promote]")
@option("--to", metavar="DIR|URL", help="An empty directory, or an empty PostgreSQL database: to look at, read only.")
@option("--here", is_flag=True, help="In the place of the store, which is moved aside. For people.")
@option("--if-missing", is_flag=True, help="Only if no store is here: for unattended starts. Asks nothing.")
@option("--as-of", metavar="TIME", help="The newest copy that was not taken after TIME: tue 03:00, 2h.")
@option("--receipt", metavar="RECEIPT", help="The oldest copy that has what RECEIPT names.")
@option("--ask-each", is_flag=True, help="With `restore finish`: ask about each effect in doubt.")
@option("--nothing-was-sent", is_flag=True, help="With `restore finish`: nothing else was sent in the gap. Close it.")
@option("--confirm", metavar="HASH", help="The hash of the plan, where there is no terminal to ask on.")
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
    """Restore a copy into a place of its own (--to) or in the place of the store (--here).

    Without ID it is the newest verified one. After --here, effects that may have been sent since the copy was taken are
    in doubt, until `restore finish` closes that gap. `restore promote` makes a read-only copy the store to work in.
    """
    from standfast.admin.copies import choose, resource
    from standfast.admin.copies.restore import restore as restored

    settings = load()
    if copy == "finish":
        finish(out, ask_each, nothing_was_sent)
        return
    if ask_each or nothing_was_sent:
        raise click.UsageError("--ask-each and --nothing-was-sent belong to `restore finish`")
    if copy == "promote":
        promote(out, settings, confirm)
        return
    if sum((to is not None, here, if_missing)) != 1:
        raise click.UsageError(
            "give --to DIR, to look at a copy; --here, in the place of the store; or --if-missing, unattended"
        )
    if if_missing and _present(out, settings, place):
        return
    there = choose.place_of(settings, place, copy)
    found = resource.read(there, choose.copy_of(there, copy, as_of, receipt).id)
    if to is None:
        _here(out, settings, found, there, confirm, ask=here)
        return
    target = parse_db_target(to, default_path=to)
    done = restored(found, there, target, reported(out))
    show(out, One(done, [f"{done.copy} is restored, read only, to {done.to}: the journal ends at {done.seq}"]))
    if target.engine == "sqlite":
        out.then(f"STANDFAST_DATA_DIR={hints.word(target.location)} standfast timeline")


def _present(out: Out, settings: Settings, place: str | None) -> bool:
    """Whether there is nothing to do: a store is here, or there is no copy and none was here."""
    from standfast.admin.copies.here import look
    from standfast.admin.copies.places import configured, opened
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


def _here(
    out: Out, settings: Settings, manifest: Manifest, there: CopyPlace, confirm: str | None, *, ask: bool
) -> None:
    from standfast.admin.copies.here import here, plan

    people.refuse("restores the store")
    what = plan(settings, manifest)
    if not ask and what.to and os.path.lexists(settings.target.location):
        raise Conflict(f"{settings.target.shown} is there and cannot be read", "standfast restore --here")
    if confirm is not None and confirm != what.hash:
        raise Conflict(f"the plan is {what.hash} now, not {confirm}", "standfast restore --here")
    shown = {**what.as_dict(), "hash": what.hash}
    lines = [
        f"Restore {what.copy} of {iso(manifest.taken_us)} to {what.place}.",
        f"The present store moves to {what.to}." if what.to else "No store is there.",
        f"Rows {manifest.seq + 1} to {what.gap['seen']} of the journal are not in the copy.",
        *([f"This store moved to {what.moved}: if it is in use there, both would send."] if what.moved else []),
        f"plan {what.hash}",
    ]
    command = ["restore", manifest.id, "--here"]
    if ask and confirm is None and not agreed(out, command, "Type yes to restore: ", shown, lines):
        out.say("nothing was changed")
        raise click.exceptions.Exit(exits.NEEDS_A_PERSON)
    here(settings, manifest, there, what, reported(out))
    out.record(shown, [f"{what.copy} is restored to {what.place}, epoch {what.epoch}; loops are paused"])
    out.say(f"Effects that may have been sent since {iso(manifest.taken_us)} are in doubt until the gap is closed.")
    out.then("standfast restore finish")
