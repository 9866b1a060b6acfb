"""`standfast.restore()` and `standfast.move()`, which take no handle, because they replace a whole store.

Both return a plan. The same call with `confirm=plan.hash` carries it out.
"""

from __future__ import annotations

import os
from typing import overload

from standfast import config
from standfast.admin import move as moving
from standfast.admin.copies import choose, restore_here
from standfast.admin.copies.automatic import before_command
from standfast.admin.copies.restore import Restored
from standfast.admin.copies.restore import restore as restored
from standfast.clock import Time
from standfast.core.progress import quiet
from standfast.errors import Conflict

Path = str | os.PathLike[str]


@overload
def restore(
    copy: str | None = None,
    *,
    to: Path,
    as_of: Time | None = None,
    receipt: str | None = None,
    place: str | None = None,
    url: Path | None = None,
    data_dir: Path | None = None,
) -> Restored: ...


@overload
def restore(
    copy: str | None = None,
    *,
    as_of: Time | None = None,
    receipt: str | None = None,
    place: str | None = None,
    confirm: str | None = None,
    url: Path | None = None,
    data_dir: Path | None = None,
) -> restore_here.Plan: ...


def restore(
    copy: str | None = None,
    *,
    to: Path | None = None,
    as_of: Time | None = None,
    receipt: str | None = None,
    place: str | None = None,
    confirm: str | None = None,
    url: Path | None = None,
    data_dir: Path | None = None,
) -> Restored | restore_here.Plan:
    """Restore a copy: read only with `to`, a directory or an empty database; else in the place of the store.

    In the place of the store it returns the plan, and does it if `confirm` is the plan's hash. Raises Conflict if the
    plan is another by now, NotFound if there is no such copy, Corrupt naming a damaged one. Close every handle first.
    """
    settings = config.load(url, data_dir=data_dir)
    found, there = choose.chosen(settings, place, copy, as_of, receipt)
    if to is not None:
        target = os.fspath(to)
        return restored(found, there, config.parse_db_target(target, default_path=target), quiet)
    what = restore_here.plan(settings, found)
    if _agreed(what.hash, confirm, "standfast.restore()"):
        restore_here.here(settings, found, there, what, quiet)
    return what


def move(
    to: Path,
    *,
    confirm: str | None = None,
    url: Path | None = None,
    data_dir: Path | None = None,
) -> moving.Plan:
    """Move the store to a file or a database. Returns the plan, and does it if `confirm` is the plan's hash.

    Every row is compared in the target. The source stays there, sealed. Raises Conflict while a live process has an
    effect or a run under way, or if the plan is another by now.
    """
    settings, text = config.load(url, data_dir=data_dir), os.fspath(to)
    target = config.parse_db_target(text, default_path=text)
    what = moving.plan(settings, target)
    if _agreed(what.hash, confirm, "standfast.move()"):
        before_command(settings, what.store, "db move")
        moving.move(settings, target, what, quiet)
    return what


def _agreed(hash: str, confirm: str | None, call: str) -> bool:
    if confirm is not None and confirm != hash:
        raise Conflict(f"the plan is {hash} now, not {confirm}", f"look at the plan that {call} returns")
    return confirm is not None
