"""Which copies to keep: the newest of each hour, day and week, the newest of all, and the newest verified one.

The manifest is removed first. After that the copy does not exist, even if other files of it remain.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from standfast import crash
from standfast.admin.copies.manifest import name_of
from standfast.admin.copies.take import ARTIFACTS, artifact_name
from standfast.admin.plans import plan_hash
from standfast.clock import DAY_US, HOUR_US
from standfast.config.files import KEEP
from standfast.errors import InvalidInput
from standfast.models import Model

if TYPE_CHECKING:
    from standfast.admin.copies.places import CopyPlace
    from standfast.admin.copies.resource import Copy

FREE_SHARE = 0.10
"""Local copies use at most this share of the free disk."""
GARBAGE_AFTER_US = DAY_US
_UNITS_US = {"h": HOUR_US, "d": DAY_US, "w": 7 * DAY_US}


class Plan(Model):
    """The plan of `forget`."""

    place: str
    forget: list[str]
    keep: list[str]

    @property
    def hash(self) -> str:
        """The hash that a person confirms if there is no terminal."""
        return plan_hash(self.as_dict())


def rules(text: str) -> list[tuple[int, int]]:
    """Parse "24h,14d" into pairs of a count and a length in µs. Raises InvalidInput."""
    if not re.fullmatch(KEEP, text):
        raise InvalidInput(f"{text[:60]!r} does not say which copies to keep", "for example: 24h,14d,8w")
    parts = (part.strip() for part in text.split(","))
    return [(int(part[:-1]), _UNITS_US[part[-1]]) for part in parts]


def kept(copies: Sequence[Copy], text: str) -> set[str]:
    """The ids that a rule keeps: the newest copy of each of the last N hours, days or weeks that have one."""
    stay = always(copies)
    newest_first = sorted(copies, key=lambda copy: copy.taken_us, reverse=True)
    for count, unit_us in rules(text):
        newest: dict[int, str] = {}
        for copy in newest_first:
            newest.setdefault(copy.taken_us // unit_us, copy.id)
        stay |= {newest[period] for period in sorted(newest, reverse=True)[:count]}
    return stay


def always(copies: Sequence[Copy]) -> set[str]:
    """The ids of the newest copy and of the newest verified copy. They are never removed."""
    newest = max(copies, key=lambda copy: copy.taken_us, default=None)
    sound = max((copy for copy in copies if copy.verified_us), key=lambda copy: copy.taken_us, default=None)
    return {copy.id for copy in (newest, sound) if copy is not None}


def over_budget(copies: Sequence[Copy], text: str, budget_bytes: int) -> list[str]:
    """The ids to remove so that the rest fits: first copies that the rule does not keep, then the oldest."""
    left, stay, must = sum(copy.size_bytes for copy in copies), kept(copies, text), always(copies)
    gone = []
    for copy in sorted(copies, key=lambda copy: (copy.id in stay, copy.taken_us)):
        if left <= budget_bytes:
            break
        if copy.id not in must:
            gone.append(copy.id)
            left -= copy.size_bytes
    return gone


def remove(place: CopyPlace, ids: Iterable[str], remaining: Iterable[set[str]] | None, now_us: int) -> None:
    """Remove copies, and artifacts that no remaining copy needs.

    `remaining` has the digests of each remaining copy. It is None if a manifest cannot be read: then no artifact is
    removed.
    The caller holds the exclusive lock of the place.
    """
    files = {entry.name for entry in place.entries()}
    for copy_id in ids:
        crash.point("copy.before_forget")
        place.remove(name_of(copy_id))
        for name in sorted(name for name in files if name.startswith(f"{copy_id}.")):
            place.remove(name)
    if remaining is None:
        return
    named = {artifact_name(digest) for digests in remaining for digest in digests}
    for entry in list(place.entries(ARTIFACTS)):
        if entry.name not in named and entry.written_us < now_us - GARBAGE_AFTER_US:
            place.remove(entry.name)
