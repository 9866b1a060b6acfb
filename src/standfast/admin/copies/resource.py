"""`sf.copies`: take, list, verify, test and forget copies of this store."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from typing import TypeAlias

from standfast.admin.copies import check, keep, manifest
from standfast.admin.copies.manifest import Manifest
from standfast.admin.copies.places import CopyPlace, Directory, configured, joined, opened, reason
from standfast.admin.copies.take import ARTIFACTS, Order, Source, take
from standfast.clock import Duration, duration_us, format_duration, iso, parse_duration
from standfast.config.people import for_people
from standfast.config.target import MEMORY
from standfast.core import digests, journal
from standfast.core.progress import Progress, quiet
from standfast.core.receipts import Receipt
from standfast.db.contract import Tx
from standfast.db.sql import load
from standfast.db.store import Resource, query, refused_inside
from standfast.errors import Busy, Conflict, InvalidInput, NotFound, SchemaTooNew, StorageError
from standfast.ids import is_id, like_suffix
from standfast.models import Model

SQL = load(__name__)
MARK_MAX_BYTES = 64 * 1024
STATES = ("verified", "tested")


class Copy(Model):
    """One copy in its place."""

    id: str
    place: str
    store_id: str = ""
    engine: str = ""
    schema: int = 0
    seq: int = 0
    """The highest sequence number of the journal in it."""
    why: str = ""
    note: str | None = None
    size_bytes: int = 0
    artifacts: int = 0
    unreadable: int = 0
    """Artifacts that the store could not read when the copy was taken."""
    taken_us: int = 0
    verified_us: int | None = None
    tested_us: int | None = None
    damage: str | None = None
    """The error of its manifest, if it cannot be read."""
    receipt: Receipt | None = None

    @property
    def state(self) -> str:
        if self.damage:
            return "damaged"
        return "tested" if self.tested_us else "verified" if self.verified_us else "taken"


class Tested(Model):
    """The result of a test of a copy."""

    copy: Copy
    checks: list[check.Check]


class Newest(Model):
    """The times of the newest copy, the newest verified and the newest tested copy; None if there is none."""

    taken_us: int | None
    verified_us: int | None
    tested_us: int | None
    seq: int | None


def newest(tx: Tx) -> Newest:
    return Newest(**tx.one(SQL.newest))


def stale(found: Newest, max_age: str, now_us: int) -> str:
    """The warning about old copies. Empty if no copy was ever taken, or the last verified one is recent."""
    if found.taken_us is None:
        return ""
    if found.verified_us is None:
        return "no copy of this store is verified"
    age_us = now_us - found.verified_us
    if age_us <= parse_duration(max_age):
        return ""
    return f"the last verified copy is {format_duration(age_us, parts=1)} old; the limit is {max_age}"


# -- restore without a store ------------------------------------------------------------------------------


def listed(place: CopyPlace) -> list[Copy]:
    """The copies in the place of one store, the newest first, with the damaged ones."""
    try:
        names = {entry.name for entry in place.entries()}
        ids = sorted((name[:-5] for name in names if name.endswith(".json") and is_id(name[:-5])), reverse=True)
        return [_copy(place, copy_id, names) for copy_id in ids]
    except OSError as error:
        raise StorageError(f"{place.shown} cannot be read: {reason(error)}", code="copy_failed") from error


def _copy(place: CopyPlace, copy_id: str, names: set[str]) -> Copy:
    try:
        found = read(place, copy_id)
    except StorageError as error:
        return Copy(copy_id, place.shown, damage=error.message)
    verified_us, tested_us = (
        _marked(place, copy_id, state) if _mark(copy_id, state) in names else None for state in STATES
    )
    return _of(found, place).replace(verified_us=verified_us, tested_us=tested_us)


def _of(found: Manifest, place: CopyPlace) -> Copy:
    same = {name: getattr(found, name) for name in Copy.field_names() if name in Manifest.field_names()}
    counts = {"artifacts": len(found.artifacts), "unreadable": len(found.unreadable)}
    return Copy(**{**same, **counts}, place=place.shown, size_bytes=found.size_bytes)


def read(place: CopyPlace, copy_id: str) -> Manifest:
    """The manifest of a copy. Raises NotFound; Corrupt or SchemaTooNew naming the copy."""
    try:
        text = joined(place.read(manifest.name_of(copy_id)), manifest.MAX_BYTES)
    except FileNotFoundError:
        raise NotFound(f"there is no copy {copy_id} in {place.shown}", "standfast backup list") from None
    except OSError as error:
        raise manifest.failed(copy_id, place.shown, "read from", reason(error)) from error
    return manifest.loads(text, copy_id, place.shown)


def chosen(copies: Sequence[Copy], which: str | None, place: str) -> Copy:
    """The copy with this id or end of an id. Without one: the newest verified copy, else the newest undamaged one."""
    if which is None:
        sound = [copy for copy in copies if not copy.damage]
        found = [copy for copy in sound if copy.verified_us] or sound
    else:
        suffix = like_suffix(which, prefix="cpy")
        found = [copy for copy in copies if suffix is not None and copy.id.endswith(suffix)]
        if len(found) > 1:
            raise InvalidInput(f"{which!r} names {len(found)} copies", "give more of its characters")
    if not found:
        what = f"no copy {which!r}" if which else "no copy"
        raise NotFound(f"there is {what} in {place}", "take one: standfast backup")
    return found[0]


def as_of(copies: Sequence[Copy], time_us: int, place: str) -> Copy:
    """The newest verified copy that was not taken after a time, else the newest of any state. Raises NotFound."""
    found = [copy for copy in copies if copy.taken_us <= time_us and not copy.damage]
    if not found:
        raise NotFound(f"no copy in {place} was taken before {iso(time_us)}", "standfast backup list")
    return chosen(found, None, place)


def _mark(copy_id: str, state: str) -> str:
    return f"{copy_id}.{state}.json"


def _marked(place: CopyPlace, copy_id: str, state: str) -> int | None:
    try:
        found = json.loads(joined(place.read(_mark(copy_id, state)), MARK_MAX_BYTES))
        return int(found["time_us"])
    except (OSError, ValueError, KeyError, TypeError, StorageError):
        return None  # the copy counts as not checked


def note(place: CopyPlace, copy_id: str, state: str, now_us: int) -> int:
    """Write into the place that a copy is verified or tested, because the store may be lost later. Returns `now_us`."""
    try:
        place.put_bytes(_mark(copy_id, state), json.dumps({"time_us": now_us}).encode() + b"\n")
    except OSError as error:
        raise manifest.failed(copy_id, place.shown, f"marked as {state} in", reason(error)) from error
    return now_us


Found: TypeAlias = "list[Copy]"  # inside the resource class, `list` is a method


# -- methods with a store -----------------------------------------------------------------------------------


class Copies(Resource):
    """The copies of this store."""

    __slots__ = ()

    def take(
        self,
        *,
        to: str | None = None,
        note: str | None = None,
        why: str = "asked",
        verify: bool = True,
        progress: Progress = quiet,
    ) -> Copy:
        """Take a copy, and verify it unless `verify` is false. Raises StorageError naming the copy.

        Everything that was acknowledged before is in it. Writers continue meanwhile.
        """
        refused_inside(self.store.held or self.tx, "copies.take")
        root = self._root(to)
        order = Order(why, note, self.store.caller.clock.now_us(), progress, self._witness())
        made = take(self._source(), root, order)
        place = root.of(self.store.pin[0])
        copy = self._record(_of(made, place), "copy.taken")
        if verify:
            copy = self._verify(place, made, copy, progress)
        if to is None and isinstance(place, Directory):
            self._fit(place)
        return copy

    def _witness(self) -> str | None:
        """The digest of the journal. None if this role may not read or write digests: a copy without one is useful."""
        try:
            return str(digests.extend(self.store))
        except StorageError:
            return None

    def list(self, *, place: str | None = None) -> Found:
        """The copies of this store in a place, the newest first; by default where copies are taken to."""
        return listed(self._place(place))

    def get(self, which: str | None = None, *, place: str | None = None) -> Copy:
        """One copy by its id or the end of it; without one, the newest verified. Raises NotFound."""
        there = self._place(place)
        return chosen(listed(there), which, there.shown)

    def manifest(self, which: str | None = None, *, place: str | None = None) -> Manifest:
        """The manifest of one copy, chosen as by `get`. Raises NotFound; Corrupt naming the copy."""
        return read(self._place(place), self.get(which, place=place).id)

    def verify(self, which: str | None = None, *, place: str | None = None, progress: Progress = quiet) -> Copy:
        """Read a copy back and compare every hash; without a name the newest. Raises Corrupt naming what differs."""
        there = self._place(place)
        copy = self._newest(there, which)
        return self._verify(there, read(there, copy.id), copy, progress)

    def test(self, which: str | None = None, *, place: str | None = None, progress: Progress = quiet) -> Tested:
        """Restore a copy into a temporary directory and check all invariants; by default the newest copy.

        Raises Corrupt naming the checks that failed.
        """
        there = self._place(place)
        copy = self._newest(there, which)
        found = read(there, copy.id)
        checks = check.test(found, there, progress)
        if error := check.refused(found, there, checks):
            raise error
        now_us = self._note(there, copy.id, "tested")
        return Tested(self._record(copy.replace(tested_us=now_us), "copy.tested"), checks)

    def plan(self, which: Sequence[str] = (), *, rule: str | None = None, place: str | None = None) -> keep.Plan:
        """What `forget` would remove: the copies named, or those that a rule (24h,14d,8w) does not keep."""
        there = self._place(place)
        copies = listed(there)
        if which:
            gone = {chosen(copies, one, there.shown).id for one in which}
            if needed := gone & keep.always(copies):
                raise Conflict(
                    f"{', '.join(sorted(needed))} is the newest copy or the newest verified one; it is always kept",
                    "take another one first: standfast backup",
                )
        else:
            stay = keep.kept(copies, rule or self.store.copies.keep)
            gone = {copy.id for copy in copies if copy.id not in stay and not copy.damage}
        return keep.Plan(there.shown, sorted(gone), sorted(copy.id for copy in copies if copy.id not in gone))

    @for_people("forgets copies")
    def forget(self, plan: keep.Plan, *, place: str | None = None) -> None:
        """Remove the copies of a plan. Raises Conflict if there are other copies now. A person has been asked."""
        there = self._place(place)
        if sorted(copy.id for copy in listed(there)) != sorted((*plan.forget, *plan.keep)):
            raise Conflict("the copies changed since the plan was made", "standfast backup forget")
        if self.store.memory is not None and self.store.copies.enabled:
            with suppress(StorageError):  # the disk may be full, and the newest verified copy is kept
                self.take(to=place, why="before backup forget")
        self._remove(there, plan.forget)

    def apply_rule(self) -> Sequence[str]:
        """Remove what `[copies] keep` does not keep: for the daemon, which does not ask."""
        plan = self.plan()
        if plan.forget:
            self._remove(self._place(None), plan.forget)
        return plan.forget

    @query
    def newest(self, tx: Tx) -> Newest:
        """When the newest copies were taken, as this store knows."""
        return newest(tx)

    def due(self, every: Duration) -> bool:
        """Whether the last copy is older than `every` and something happened since. Never for a fresh store."""
        every_us = duration_us(every, "every")

        def body(tx: Tx) -> bool:
            last = newest(tx)
            if last.taken_us is not None and tx.now_us() - last.taken_us < every_us:
                return False
            return tx.maybe(SQL.changed, seq=last.seq or 0) is not None

        return self._read(body)

    # -- private methods ----------------------------------------------------------------------------------

    def _source(self) -> Source:
        if self.store.shown == MEMORY:
            raise InvalidInput("a store in memory has no copies", "use a file: standfast.open(PATH)")
        engine = self.store.engine
        return Source(engine.name, engine.identity, self.store.pin[0])

    def _root(self, named: str | None) -> CopyPlace:
        return opened(named) if named is not None else configured(self.store.copies.to)

    def _place(self, named: str | None) -> CopyPlace:
        return self._root(named).of(self.store.pin[0])

    def _newest(self, place: CopyPlace, which: str | None) -> Copy:
        copies = listed(place)
        return chosen(copies, which if which is not None or not copies else copies[0].id, place.shown)

    def _verify(self, place: CopyPlace, found: Manifest, copy: Copy, progress: Progress) -> Copy:
        check.verify(found, place, progress)
        return self._record(copy.replace(verified_us=self._note(place, copy.id, "verified")), "copy.verified")

    def _note(self, place: CopyPlace, copy_id: str, state: str) -> int:
        return note(place, copy_id, state, self.store.caller.clock.now_us())

    def _record(self, copy: Copy, type: str) -> Copy:
        row = {name: getattr(copy, name) for name in ("id", "place", "why", "note", "seq", "size_bytes", "taken_us")}
        times = {"verified_us": copy.verified_us, "tested_us": copy.tested_us}

        def body(tx: Tx) -> Receipt:
            tx.run(SQL.put, **row, **times, actor=tx.caller.actor)
            return journal.append(tx, type, copy.id, summary=copy.place, data={"seq": copy.seq})

        return copy.replace(receipt=self.store.write(body))

    def _fit(self, place: Directory) -> None:
        """Remove local copies that use more than a tenth of the free disk. The newest one is kept."""
        copies = [copy for copy in listed(place) if not copy.damage]
        artifacts = sum(entry.size_bytes for entry in place.entries(ARTIFACTS))
        used = artifacts + sum(copy.size_bytes for copy in copies)
        budget = int(keep.FREE_SHARE * (place.free_bytes() + used))
        gone = keep.over_budget(copies, self.store.copies.keep, budget - artifacts)
        if gone:
            with suppress(Busy):  # another process takes a copy, and will do this afterwards
                self._remove(place, gone)

    def _remove(self, place: CopyPlace, ids: Sequence[str]) -> None:
        def body(tx: Tx) -> None:
            for copy_id in ids:
                tx.run(SQL.forget, id=copy_id, now_us=tx.now_us())
                journal.append(tx, "copy.forgotten", copy_id, summary=place.shown)

        try:
            with place.locked(alone=True):
                keep.remove(place, ids, self._remaining(place, ids), self.store.caller.clock.now_us())
        except OSError as error:
            raise StorageError(
                f"copies in {place.shown} cannot be removed: {reason(error)}", code="copy_failed"
            ) from error
        self.store.write(body)

    def _remaining(self, place: CopyPlace, ids: Sequence[str]) -> Sequence[set[str]] | None:
        """The artifacts of each remaining copy; None if a manifest cannot be read."""
        try:
            return [set(read(place, copy.id).artifacts) for copy in listed(place) if copy.id not in ids]
        except (StorageError, SchemaTooNew):
            return None
