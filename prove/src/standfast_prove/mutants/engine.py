"""Bugs of `db` and the core: syncs, commits, the guard of the log, migrations, leases, the journal.

A campaign finds each of them, with its children patched. Bugs that need a disk that loses writes also need a C
compiler. The bug of the cursor needs a PostgreSQL server.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

from standfast import crash
from standfast.core import journal, leases
from standfast.db.contract import Tx
from standfast.db.migrations import MIGRATIONS, ddl
from standfast.db.sqlite import forks, migrate, open_store, wal
from standfast.db.sqlite.group_commit import GroupCommit
from standfast.db.sqlite.lock import FileLock
from standfast.db.sqlite.open_store import OpenStore
from standfast.db.sqlite.tx import SqliteTx
from standfast.db.sqlite.writer import Writer
from standfast_prove.mutants.patching import Mutant, Setter, both, reworded, swapped, without

_FEW = {"losses": 6}
_SECONDS = {"seconds": 2}


def committed_by_the_next(m: Setter) -> None:
    """The last rows are not committed, so only this process sees them."""

    def begin(self: Any) -> None:
        connection = self._store.connection
        if connection.in_transaction:
            connection.execute("COMMIT")
        connection.execute("BEGIN IMMEDIATE")

    m.setattr(GroupCommit, "begin", begin)
    m.setattr(GroupCommit, "finish", lambda self: crash.point("commit.before_commit"))


def committed_instead(self: Any) -> None:
    if self._store.connection.in_transaction:
        self._store.connection.execute("COMMIT")


def not_taken_back(self: Any, batch: Any) -> Any:
    """Savepoints are always released and never rolled back."""
    self.begin()
    for body in batch:
        try:
            body.result = body.function(SqliteTx(self._store.cursor, body.caller))
        except Exception as error:  # noqa: BLE001  as the engine does
            body.error = error
    self.finish()
    return batch


def asked_again(sync: Any) -> Any:
    """The kernel reports a failed write once, so a second fsync succeeds."""

    def patched(fd: int) -> None:
        try:
            sync(fd)
        except OSError:
            sync(fd)

    return patched


def deletes_the_log(close: Any) -> Any:
    def patched(self: Any, *args: Any) -> Any:
        done = close(self, *args)
        with suppress(FileNotFoundError):
            os.unlink(self.path + "-wal")
        return done

    return patched


def migrated_unlocked(m: Setter) -> None:
    """The pending migrations are read before the lock is taken, and not read again."""

    def decided_before(connection: Any, caller: Any, migrations: Any = MIGRATIONS) -> None:
        found = migrate.version(connection)
        pending = [one for one in migrations if one.version > found]
        for one in pending:
            crash.point("migrate.before_step")
            connection.execute("BEGIN IMMEDIATE")
            migrate.apply_step(connection, caller, one)
            connection.execute("COMMIT")
            crash.point("migrate.after_step")
        migrate.protect(connection)

    m.setattr(migrate, "migrate", decided_before)
    m.setattr(OpenStore, "_open_under_lock", lambda self: self._open())


def in_two(apply: Any) -> Any:
    """The tables are created in one transaction, and the schema version is stored in the next."""

    def patched(connection: Any, caller: Any, migration: Any) -> None:
        connection.execute(ddl(migration, "sqlite")).fetchall()
        connection.execute("COMMIT")
        crash.point("migrate.after_step")
        connection.execute("BEGIN IMMEDIATE")
        apply(connection, caller, migration._replace(text="SELECT 1;"))

    return patched


def told_afterwards(append: Any) -> Any:
    """The change is committed first, and its journal row in a second commit."""

    def patched(tx: Any, *args: Any, **more: Any) -> Any:
        tx._cursor.execute("COMMIT")
        crash.point("commit.after_commit")
        tx._cursor.execute("BEGIN IMMEDIATE")
        return append(tx, *args, **more)

    return patched


def by_the_wall(m: Setter) -> None:
    """Leases end by the wall clock: the monotonic columns hold the wall clock too."""
    new_lease, lease_clock = leases.new_lease, Tx.lease_clock

    def term(tx: Any, *args: Any, **more: Any) -> Any:
        made = new_lease(tx, *args, **more)
        return made | {"lease_mono_us": made["lease_until_us"]}

    m.setattr(leases, "new_lease", term)
    m.setattr(leases, "_ran_out", lambda tx, row: bool(row["lease_until_us"] <= tx.now_us()))
    m.setattr(Tx, "lease_clock", lambda self: lease_clock(self) | {"mono_us": self.now_us()})


unnamed = (without(wal.Files, "check_index"), without(wal.Files, "_check_names"))
"""The engine does not check that the open files are still the files with these names."""

MUTANTS: dict[str, Mutant] = {
    "no sync": Mutant("a write is acknowledged before its fsync", "campaign power", without(wal, "_sync"), _FEW),
    "synchronous off": Mutant(
        "SQLite does not sync the database at a checkpoint",
        "campaign power",
        swapped(open_store, "_PRAGMAS", lambda text: text.replace("synchronous=NORMAL", "synchronous=OFF")),
        _FEW,
    ),
    "a failed sync is retried": Mutant(
        "the second fsync succeeds and is believed", "campaign power-failing", swapped(wal, "_sync", asked_again), _FEW
    ),
    "the WAL is not rewritten after a failed sync": Mutant(
        "the next process reads a WAL that is not on disk",
        "campaign power-failing",
        without(OpenStore, "_heal"),
        _FEW,
    ),
    "acknowledged before COMMIT": Mutant("COMMIT runs with the next write", "sweep core:Writes", committed_by_the_next),
    "a failed write is committed": Mutant(
        "ROLLBACK is replaced by COMMIT",
        "campaign torture",
        swapped(GroupCommit, "rollback", lambda _: committed_instead),
        _SECONDS,
    ),
    "a failed write stays in its group commit": Mutant(
        "its rows are committed with the writes of other callers",
        "campaign torture",
        swapped(GroupCommit, "_run_apart", lambda _: not_taken_back),
        _SECONDS,
    ),
    "no guard of the locks": Mutant(
        "closing the file in the same process drops SQLite's locks",
        "campaign torture",
        without(wal, "_share"),
        {"seconds": 4},
    ),
    "no guard and no identity check": Mutant(
        "and no check notices that the WAL was replaced",
        "campaign torture",
        both(without(wal, "_share"), *unnamed, swapped(wal.Files, "_is_whole", lambda _: lambda *args: True)),
        {"seconds": 4},
    ),
    "no identity check": Mutant(
        "writes to a removed or overwritten file are acknowledged",
        "campaign damage",
        both(*unnamed, without(wal.Files, "_check_contents")),
        {"acts": 30},
    ),
    "contents are not checked": Mutant(
        "a file that was truncated in place is not noticed",
        "campaign damage",
        without(wal.Files, "_check_contents"),
        {"acts": 60},
    ),
    "a header without a checkpoint is believed": Mutant(
        "the file of another store counts as a later checkpoint of this one",
        "check foreign_header",
        swapped(wal.Files, "_was_checkpointed", lambda _: lambda *args: True),
    ),
    "the change counter of a checkpoint is not noted": Mutant(
        "a process that did not see the checkpoint accepts an older copy of the file",
        "check older_copy",
        swapped(FileLock, "changes", lambda _: lambda self: 0),
    ),
    "no check for another process's files": Mutant(
        "a store opens beside a process that uses another -shm file",
        "campaign damage",
        swapped(wal, "_is_marked", lambda _: lambda fd: False),
        {"acts": 40},
    ),
    "a forked child uses its parent's transaction": Mutant(
        "statements and COMMIT of an inherited transaction are not refused",
        "campaign damage",
        swapped(forks, "count", lambda _: lambda: 0),
        {"acts": 60},
    ),
    "an interrupted write stays in the queue": Mutant(
        "a write that raised is made later",
        "check waiting_write",
        without(Writer, "_leave"),
    ),
    "the WAL is deleted at close": Mutant(
        "rows that no checkpoint has copied are lost",
        "sweep core:Writes",
        swapped(OpenStore, "close", deletes_the_log),
    ),
    "migrated without a lock": Mutant(
        "two processes run the same migration", "campaign boot-old", migrated_unlocked, {"rounds": 5}
    ),
    "a migration in two transactions": Mutant(
        "a kill between them leaves half of it", "sweep core:Migrations", swapped(migrate, "apply_step", in_two)
    ),
    "the journal row is a second commit": Mutant(
        "a kill between them leaves a change without its event",
        "sweep core:Locks",
        swapped(journal, "append", told_afterwards),
    ),
    "a fencing token is reused": Mutant(
        "the second holder gets the first one's token",
        "sweep core:Locks",
        reworded(leases.SQL, "take", "fence = fence + 1", "fence = 1"),
    ),
    "leases by the wall clock": Mutant("a change of the date ends leases", "soak", by_the_wall),
    "a cursor skips late commits": Mutant(
        "events are read in the order of their sequence numbers",
        "campaign tail",
        both(
            reworded(journal.SQL, "tail", "(xid, seq) > (CAST(:xid AS xid8), :seq)", "seq > :seq"),
            reworded(journal.SQL, "tail", "AND xid < pg_snapshot_xmin(pg_current_snapshot())", ""),
            reworded(journal.SQL, "tail", "ORDER BY event.xid, event.seq", "ORDER BY event.seq"),
        ),
        engine="postgres",
    ),
}
