"""`restore --here` and `restore promote`: a copy takes the place of the store and becomes the store to work in.

    plan ─▶ the copy has the place, read only, epoch + 1 ─▶ promote: the gap is open, and work continues
                     │
                     └── the old store is kept aside; its ledger is carried over if it can be read

A restore does not restore the outside system. A program that runs again would repeat the effects that were sent after
the copy was taken. So standfast opens the gap (`admin/restore_gap.py`) before any other write. If the process dies
before that, the store is a read-only copy; `restore promote` or the same command completes the restore. If it dies
after moving the old SQLite file aside, the next process renames the new file.
"""

from __future__ import annotations

import os
import shutil
import time
from typing import Any, NamedTuple

from standfast import crash
from standfast.admin import restore_gap
from standfast.admin.copies.automatic import before_command
from standfast.admin.copies.manifest import Manifest
from standfast.admin.copies.places import CopyPlace, sync
from standfast.admin.copies.restore import DATABASE, Restoring
from standfast.admin.copies.take import ARTIFACTS
from standfast.admin.plans import plan_hash
from standfast.admin.restore_gap import Epochs
from standfast.clock import SYSTEM
from standfast.config import Settings
from standfast.config.people import for_people
from standfast.config.target import Target
from standfast.core import artifact_files
from standfast.core import gap as gaps
from standfast.core.gap import Gap
from standfast.core.leases import this_process
from standfast.core.progress import Progress
from standfast.db import store_memory, tables
from standfast.db.contract import Caller, Engine, Tx
from standfast.db.move_mark import KEY, Moved, loads
from standfast.db.sqlite.location import make_private
from standfast.db.sqlite.move_aside import left
from standfast.errors import Conflict, InvalidInput
from standfast.models import Model


class Plan(Model):
    """The plan of `restore --here`."""

    copy: str
    place: str
    epoch: int
    gap: dict[str, Any]
    """The range that the copy lacks: from its last row to the highest sequence number that this host has seen."""
    to: str
    """The new name of the old store, or of its WAL alone; empty if the place is empty."""
    moved: str = ""
    """The target of `db move`, if the old store was moved."""
    last: int = 0
    """The last known row of the journal: of the old store, of the memory of stores, or of the copy."""

    @property
    def hash(self) -> str:
        return plan_hash({"copy": self.copy, "place": self.place, "epoch": self.epoch, "seen": self.gap["seen"]})


class There(NamedTuple):
    """The store at a place."""

    store_id: str
    epoch: int
    seq: int
    """The copy's last sequence number."""
    meta: dict[str, str]

    @property
    def moved(self) -> Moved | None:
        """The mark of `db move`."""
        return loads(self.meta[KEY]) if KEY in self.meta else None


def plan(settings: Settings, manifest: Manifest) -> Plan:
    """The plan that `here` would follow now. Raises Conflict if the place has another store."""
    target = settings.target
    if target.is_memory:
        raise InvalidInput("a store in memory ends with its process", "standfast restore --to DIR")
    there = look(target)
    if there is not None and there.store_id != manifest.store_id:
        other = f"{target.shown} has {there.store_id}, and {manifest.id} is a copy of {manifest.store_id}"
        raise Conflict(other, "--to DIR")
    known = store_memory.read(store_memory.path_of(manifest.store_id))
    epoch = max(manifest.epoch, there.epoch if there else 0, known.epoch if known else 0) + 1
    now_us = SYSTEM.now_us()  # a part of the name, because two restores may run in one second
    last = max(manifest.seq, known.seq if known else 0, there.seq if there else 0)
    # Without a store to read, processes can have seen later rows: the memory of stores lacks the newest.
    gap = Gap(manifest.id, manifest.seq, last if there else last + gaps.UNSEEN, manifest.taken_us, now_us)
    before = there.meta.get(gaps.KEY) if there is not None else None
    if before is not None:  # the store has an open gap: join both
        seen, from_us = max(gap.seen, gaps.loads(before).seen), min(gap.from_us, gaps.loads(before).from_us)
        gap = gap._replace(seen=seen, from_us=from_us)
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(now_us // 1_000_000)) + f".{now_us % 1_000_000:06}Z"
    aside = (
        f"standfast_before_{stamp.lower().replace('.', '_')}"
        if target.engine == "postgres"
        else f"{target.location}.before-{stamp}"
    )
    taken = there is not None or (target.engine == "sqlite" and bool(left(target.location)))
    away = there.moved.to if there is not None and there.moved is not None else ""
    return Plan(manifest.id, target.shown, epoch, gap._asdict(), aside if taken else "", away, last)


def look(target: Target) -> There | None:
    """The store at a place; None if there is none, or if it cannot be read."""
    if target.engine == "postgres":
        from standfast.db.postgres import copies as server
        from standfast.db.postgres.move_aside import store_id

        if not store_id(target.location):
            return None
        with server.snapshot(target.location) as found:
            return There(found.meta["store_id"], int(found.meta.get("epoch", "1")), found.seq, dict(found.meta))
    from standfast.db.sqlite import copies

    identity = copies.identified(target.location) if os.path.exists(target.location) else None
    return None if identity is None else There(*identity, copies.meta(target.location))


@for_people("restores the store")
def here(settings: Settings, manifest: Manifest, place: CopyPlace, what: Plan, progress: Progress) -> None:
    """Carry out the plan. The caller has asked a person, or the place is empty."""
    if what.to and (settings.target.engine == "postgres" or os.path.lexists(settings.target.location)):
        before_command(settings, manifest.store_id, "restore --here")
    gap = Gap(**what.gap)
    known = store_memory.read(store_memory.path_of(manifest.store_id))

    def carried(last: int | None) -> dict[str, str]:
        """The final gap. No process writes into the old store any more."""
        whole = last is not None and last >= (known.seq if known else 0)
        seen = max(gap.seen, last) if last is not None else gap.seen + gaps.UNSEEN
        return {gaps.KEY: gap._replace(seen=seen, carried=whole).dumps()}

    meta = {"epoch": str(what.epoch), gaps.KEY: gap.dumps()}
    restoring = Restoring(manifest, place, progress)
    if settings.target.engine == "postgres":
        restoring.into_server(settings.target.location, meta, what.to, carried)
    else:
        from standfast.db.sqlite import copies, integrity
        from standfast.db.sqlite.move_aside import swap

        path = settings.target.location
        incoming = f"{path}.restoring"
        new = os.path.join(incoming, DATABASE)
        shutil.rmtree(incoming, ignore_errors=True)  # a restore that was killed

        def carry() -> None:
            lacking, texts = (
                tables.lacking("old", manifest.seq),
                tables.carrying_over(manifest.schema, "old", manifest.seq),
            )
            last = copies.carry_over(new, path, lacking, texts) if sound else None
            copies.put_meta(new, carried(last))

        sound = os.path.lexists(path) and not integrity.check(path, quick=True, progress=progress)
        try:
            restoring.into_directory(incoming, meta)
            _merge(os.path.join(incoming, ARTIFACTS), artifact_files.directory(path))
            swap(path, new, what.to, carry, sound=sound)
        finally:
            shutil.rmtree(incoming, ignore_errors=True)  # on a full disk the store needs the space
    crash.point("restore.before_promote")
    promote(settings)


def _merge(source: str, target: str) -> None:
    """Move artifacts into place. The name of an artifact is its hash, so those of the copy may replace others."""
    for parent, _, names in os.walk(source):
        into = os.path.normpath(os.path.join(target, os.path.relpath(parent, source)))
        make_private(into)
        for name in names:
            os.replace(os.path.join(parent, name), os.path.join(into, name))
        sync(into)
        sync(os.path.dirname(into))


# -- promotion ----------------------------------------------------------------------------------------


def copied(settings: Settings) -> There:
    """The configured store, which must be a restored copy. Raises Conflict if it is not."""
    there = None if settings.target.is_memory else look(settings.target)
    if there is None or "copy_of" not in there.meta:
        raise Conflict(f"{settings.target.shown} is no restored copy", "standfast restore --to DIR")
    return there


@for_people("restores the store")
def promote(settings: Settings) -> Gap:
    """Make the restored copy the store to work in, with its gap open. The caller has asked a person."""
    there = copied(settings)
    known = store_memory.read(store_memory.path_of(there.store_id))
    own = there.meta.get(gaps.KEY)
    # `restore --here` has set the epoch and the gap. `restore --to` keeps those of the time when the copy was taken.
    highest = max(there.epoch, known.epoch if known else 0)
    epochs = Epochs(there.epoch, there.epoch if own else highest + 1)
    seen = max(there.seq, known.seq if known else 0) + gaps.UNSEEN
    salt = restore_gap.salt()

    def opened(tx: Tx) -> Gap:
        gap = gaps.loads(own) if own else restore_gap.of_store(tx, there.meta["copy_of"], seen)
        if not restore_gap.open_gap(tx, gap, epochs, salt):
            raise Conflict(f"{settings.target.shown} is no restored copy any more", "standfast store list")
        return gap

    caller = Caller(actor=settings.actor, holder=this_process(SYSTEM), scope="", clock=SYSTEM)
    engine = open_engine(settings, caller)
    try:
        engine.copy_of = ""
        return engine.write(opened, caller)
    finally:
        engine.dead = engine.dead or store_memory.replaced(settings.target.shown, ("", 0), ("", 0))
        engine.release()


def open_engine(settings: Settings, caller: Caller) -> Engine:
    """Open the engine of the configured store without the checks that a handle makes."""
    unsafe = settings.options.unsafe_storage
    if settings.target.engine == "postgres":
        from standfast.db.postgres.registry import open_engine as open_postgres

        return open_postgres(settings.target.location, caller, allow_unsafe=unsafe)
    from standfast.db.sqlite.registry import open_engine as open_sqlite

    return open_sqlite(settings.target.location, caller, allow_unsafe=unsafe)
