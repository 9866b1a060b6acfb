"""Choose the copy to restore. The store itself may be lost."""

from __future__ import annotations

from collections.abc import Sequence

from standfast.admin.copies import check, resource
from standfast.admin.copies.manifest import Manifest
from standfast.admin.copies.places import CopyPlace, configured, opened
from standfast.admin.copies.resource import Copy
from standfast.clock import SYSTEM, Time
from standfast.config import Settings
from standfast.core.checks import past_us
from standfast.core.progress import quiet
from standfast.core.receipts import parse_receipt
from standfast.db import store_memory
from standfast.errors import InvalidInput, NotFound


def places_of(settings: Settings, named: str | None) -> list[CopyPlace]:
    """The places of the copies of the configured store; of every store, if this host does not remember its id."""
    root = opened(named) if named else configured(settings.options.copies.to)
    stores = root.stores()
    here = store_memory.place_of(settings.target)
    known = [one.store_id for one in store_memory.at(here)] if here is not None else []
    return [root.of(one) for one in [one for one in stores if one in known] or stores]


def place_of(settings: Settings, named: str | None, copy: str | None) -> CopyPlace:
    """The place of the copies of the configured store. If this host does not remember its id, `copy` decides."""
    root = opened(named) if named else configured(settings.options.copies.to)
    mine = places_of(settings, named)
    if copy is not None and len(mine) > 1:
        mine = [one for one in mine if any(found.id.endswith(copy.lower()) for found in resource.listed(one))] or mine
    if len(mine) > 1:
        raise InvalidInput(
            f"{root.shown} has copies of {len(mine)} stores", "name the copy: standfast restore ID --to DIR"
        )
    if not mine:
        raise NotFound(f"there is no copy in {root.shown}", "name the place: standfast restore --from PLACE --to DIR")
    return mine[0]


def chosen(
    settings: Settings, place: str | None, copy: str | None, as_of: Time | None, receipt: str | None
) -> tuple[Manifest, CopyPlace]:
    """The manifest of the copy to restore, and the place of that copy. Raises NotFound; Corrupt naming the copy."""
    there = place_of(settings, place, copy)
    return resource.read(there, copy_of(there, copy, as_of, receipt).id), there


def copy_of(place: CopyPlace, copy: str | None, as_of: Time | None, receipt: str | None) -> Copy:
    """The copy with an id, the newest not after a time, or the oldest with a receipt; else the newest verified one."""
    if sum(given is not None for given in (copy, as_of, receipt)) > 1:
        raise InvalidInput("an id, a time and a receipt each choose a copy", "give one of: ID, --as-of, --receipt")
    copies, now_us = resource.listed(place), SYSTEM.now_us()
    if as_of is not None:
        time_us = past_us(as_of, now_us, "--as-of")
        return resource.as_of(copies, now_us if time_us is None else time_us, place.shown)
    if receipt is not None:
        return _containing(place, copies, receipt)
    return resource.chosen(copies, copy, place.shown)


def _containing(place: CopyPlace, copies: Sequence[Copy], receipt: str) -> Copy:
    """The oldest copy that has the row. After a restore a copy with a higher number may lack it."""
    seq = parse_receipt(receipt)[0]
    for copy in reversed(copies):
        if copy.seq >= seq and not copy.damage and check.has(resource.read(place, copy.id), place, receipt, quiet):
            return copy
    raise NotFound(f"no copy in {place.shown} has row {seq} of the journal", "standfast backup list")
