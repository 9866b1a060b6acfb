"""Group commits: the transactions of the writer thread, from BEGIN to the answer.

    file lock ─▶ BEGIN IMMEDIATE ─▶ bodies ─▶ COMMIT ─▶ release the lock ─▶ fsync ─▶ identity check ─▶ answer

A batch runs without savepoints first. If a body fails, the batch is rolled back and runs again with a savepoint
around each body: the failing one fails alone.

After a failed fsync, a replaced file or a damaged page `dead` has the reason, and nothing is acknowledged any more.
Every method runs in the writer thread.
"""

from __future__ import annotations

import time
from contextlib import suppress

import apsw

from standfast import crash, log, modules
from standfast.db.contract import Caller, Numbered, OnRemoved
from standfast.db.move_mark import moved_away
from standfast.db.sqlite import library, migrate
from standfast.db.sqlite.checkpoints import Checkpoints
from standfast.db.sqlite.open_store import OpenStore
from standfast.db.sqlite.operations import Body, Hold
from standfast.db.sqlite.readers import Readers
from standfast.db.sqlite.tx import SqliteTx
from standfast.db.sqlite.writer import Writer
from standfast.db.store_memory import refuse_lost, replaced
from standfast.errors import CommitUnknown, Corrupt, InvalidInput, SchemaTooNew, StandfastError, StorageError

SLOW_BATCH_S = 0.05
"""After this time the rest of a batch waits for the next commit, so that no process holds the lock for long."""
_CARE_EVERY = 512
"""Commits between two checks of the size of the WAL."""


class GroupCommit:
    def __init__(
        self,
        store: OpenStore,
        readers: Readers,
        checkpoints: Checkpoints,
        caller: Caller,
        *,
        schema: int,
        on_removed: OnRemoved,
    ) -> None:
        self._store = store
        self._readers = readers
        self._checkpoints = checkpoints
        self._caller = caller
        self._schema = schema
        self._on_removed = on_removed
        self._saved_in: str | None = None
        """The copy that was saved after the files were removed."""
        self._fenced_at = -1
        """The `data_version` at which we last checked the fence."""
        self.dead: BaseException | None = None
        self.newest: tuple[int, int, Numbered] | None = None
        """Sequence number, time and row of the newest journal row that was made durable here."""
        self.batches = self.slow_batches = 0
        self.writer = Writer(self, store.lock)

    # -- a batch of bodies ------------------------------------------------------------------------

    def commit(self, batch: list[Body]) -> None:
        """Commit the batch, make it durable, answer. The thread holds the file lock."""
        try:
            served = self._transact(batch)
        finally:
            self._store.lock.release()
        if not served:  # a foreign program holds the database lock; the batch is back in the queue
            log.info("retry: another program has locked the database")
            library.pause(0.05)
            return
        committed = [body for body in served if body.error is None]
        if committed:
            self.batches += 1
            durable = any(body.durable for body in committed)
            error = self._confirm(durable)
            if error is None and durable:
                self.newest = next((body.newest for body in reversed(committed) if body.newest), self.newest)
            elif error is not None:
                _fail(committed, error)
        if len(committed) < len(served):
            self._explain(served)
        for body in served:
            body.answer()
        if committed:
            self._store.bell.ring()
            if self.batches % _CARE_EVERY == 0:
                self._checkpoints.truncate_large()
        self._close_after_alarm()

    def _explain(self, served: list[Body]) -> None:
        """If the files were replaced, a body reads pages of another store and may fail in any way. Then its caller gets
        the error of the identity check instead."""
        with suppress(OSError):
            try:
                self._store.files.check()
            except CommitUnknown as error:
                self.dead = self._rescued(error)
                for body in served:
                    body.error = error

    def _transact(self, batch: list[Body]) -> list[Body]:
        """Run the bodies in one transaction. Returns the bodies that have an outcome; the deque has the others
        again."""
        if self.dead is not None:
            return _fail(batch, self.dead)
        try:
            crash.point("commit.before_begin")
            self._store.files.check_index()
            self._checkpoints.run_if_due()
            return self._run(batch)
        except library.RETRYABLE:
            self.rollback()
            self.writer.put_back(batch)
            return []
        except BaseException as error:  # noqa: BLE001  # every caller of the batch gets an answer
            ours = self.translated(error)
            self.rollback()
            return _fail(batch, ours)

    def _run(self, batch: list[Body]) -> list[Body]:
        self.begin()
        started = time.monotonic() if len(batch) > 1 else 0.0
        for served, body in enumerate(batch, 1):
            try:
                body.run(self._store.cursor)
            except library.RETRYABLE:
                if len(batch) == 1:
                    raise
                self.rollback()
                return self._run_apart(batch)
            except BaseException as error:  # noqa: BLE001  # a body may raise anything, and its caller gets it
                self.rollback()
                if len(batch) == 1:
                    return _fail(batch, self.translated(error))
                return self._run_apart(batch)
            if served < len(batch) and time.monotonic() - started > SLOW_BATCH_S:
                self.slow_batches += 1
                self.writer.put_back(batch[served:])
                del batch[served:]
                break
        self.finish()
        return batch

    def _run_apart(self, batch: list[Body]) -> list[Body]:
        """Run each body in a savepoint, so that a failing body does not undo the others."""
        self.begin()
        connection = self._store.connection
        again: list[Body] = []
        for body in batch:
            connection.execute("SAVEPOINT op")
            try:
                body.run(self._store.cursor)
                connection.execute("RELEASE op")
            except BaseException as error:
                if not connection.in_transaction:  # a full disk ends the whole transaction
                    raise
                connection.execute("ROLLBACK TO op; RELEASE op").fetchall()
                if isinstance(error, library.RETRYABLE):
                    again.append(body)
                else:
                    body.error = self.translated(error)
        self.finish()
        self.writer.put_back(again)
        return [body for body in batch if body not in again]

    # -- a transaction that a caller holds --------------------------------------------------------

    def lend(self, hold: Hold) -> None:
        """Lend the connection to a caller, take it back, then commit or roll back. The thread holds the file lock."""
        committed = put_back = False
        try:
            if self._begin_hold(hold):
                hold.lend(self._store.connection.cursor())
                hold.take_back()
                committed = self._end_hold(hold)
            else:
                put_back = hold.error is None
        finally:
            self._store.lock.release()
        if put_back:
            self.writer.put_back([hold])
            library.pause(0.05)
            return
        if committed:
            self.batches += 1
            hold.error = self._confirm(True)
            if hold.error is None:
                self.newest = hold.result.newest or self.newest
        hold.answer()
        if committed:
            self._store.bell.ring()
        self._close_after_alarm()

    def _begin_hold(self, hold: Hold) -> bool:
        try:
            if self.dead is not None:
                raise self.dead
            self._store.files.check_index()
            self._checkpoints.run_if_due()
            self.begin()
        except library.RETRYABLE:
            self.rollback()
            return False
        except BaseException as error:  # noqa: BLE001  # it belongs to the caller
            hold.error = self.translated(error)
            self.rollback()
            return False
        return True

    def _end_hold(self, hold: Hold) -> bool:
        try:
            if hold.commits:
                self.finish()
                return True
        except BaseException as error:  # noqa: BLE001  # it belongs to the caller
            hold.error = self.translated(error)
        self.rollback()
        return False

    # -- one transaction --------------------------------------------------------------------------

    def begin(self) -> None:
        self._store.refuse_in_child()
        self._store.cursor.execute("BEGIN IMMEDIATE")
        crash.point("commit.after_begin")
        if self._store.connection.data_version() != self._fenced_at:
            self._check_fence()

    def finish(self) -> None:
        self._store.refuse_in_child()
        crash.point("commit.before_commit")
        self._store.cursor.execute("COMMIT")
        self._fenced_at = self._store.connection.data_version()

    def rollback(self) -> None:
        self._store.refuse_in_child()
        try:
            if self._store.connection.in_transaction:
                self._store.connection.execute("ROLLBACK")
        except apsw.Error as error:
            self.dead = self.translated(error)

    def _check_fence(self) -> None:
        """Another connection committed since our last commit: check that it is still our store and that we may
        write.
        """
        store = self._store
        store_id, epoch, min_writer, _, moved = migrate.identity(store.connection)
        mine, there = (store.store_id, store.epoch), (store_id, epoch)
        try:
            if there != mine:
                raise replaced(store.path, mine, there)
            if moved and not store.moved:
                raise moved_away(moved)
            refuse_lost(SqliteTx(store.cursor, self._caller), store.path, self.newest)
        except StorageError as error:
            self.dead = error
            raise
        if min_writer > self._schema:
            raise SchemaTooNew(
                f"the store was upgraded to schema {migrate.version(store.connection)} while this process ran with "
                f"schema {self._schema}",
                modules.UPGRADE,
            )

    # -- durability -------------------------------------------------------------------------------

    def _confirm(self, durable: bool) -> BaseException | None:
        """Make durable what was committed; an error means that its outcome is unknown."""
        try:
            crash.point("commit.after_commit")
            error = self._make_durable(durable)
            crash.point("commit.after_sync")
        except BaseException as raised:  # noqa: BLE001  # a crash point of a test raises here
            return raised
        return error

    def _make_durable(self, durable: bool) -> BaseException | None:
        """The kernel reports a failed write to one fsync only, so after a failure nothing is acknowledged here."""
        if isinstance(self.dead, CommitUnknown):
            return self.dead
        try:
            self._store.files.settle(durable=durable)
            return None
        except CommitUnknown as error:
            self.dead = self._rescued(error)
        except OSError as error:
            self._store.mark_unsynced()
            self.dead = _sync_failed(self._store.path, error)
        return self.dead

    def sync(self) -> None:
        error = self._make_durable(True)
        if error is not None:
            raise error

    # -- failure and close ------------------------------------------------------------------------

    def translated(self, error: BaseException) -> BaseException:
        """Our error for an error of SQLite. Sets `dead` if the connection cannot be used any more."""
        if isinstance(error, CommitUnknown):  # the WAL index has lost its name: nothing was written
            self.dead = self.dead or self._rescued(error)
        if not isinstance(error, apsw.Error):
            return error
        ours = library.translated(error, self._store.path)
        ours.__cause__ = error
        # If SQLite cannot open a file for writing, even once (too many open files), it opens the file for reading and
        # keeps it read-only. The next call opens all of them again.
        if isinstance(ours, Corrupt) or isinstance(error, (apsw.IOError, apsw.ReadOnlyError)):
            self.dead = ours
        return ours

    def failed(self, error: BaseException) -> None:
        """The writer thread ended because of a defect. Refuse every caller; the handle then opens a new engine."""
        lost = CommitUnknown(f"the writer thread failed: {error!r}", "look the write up by its key before repeating it")
        lost.__cause__ = error
        self.dead = self.dead or lost

    def _close_after_alarm(self) -> None:
        """Close after an alarm: other processes cannot open the store before this one closes the replaced files."""
        if isinstance(self.dead, CommitUnknown):
            self.close(0.0, None)

    def close(self, timeout_s: float, why: BaseException | None) -> None:
        """Close the files, unless a reader is still in use after `timeout_s`."""
        if not self._store.is_open():
            return
        before = self.dead
        self.dead = self.dead or why or closed()  # set first, so that a new reader gets the reason
        if not self._readers.close(timeout_s):
            self.dead = before
            return
        self._rescue()
        try:
            self._store.close()
        finally:
            self.writer.stop()

    def _rescued(self, alarm: CommitUnknown) -> CommitUnknown:
        """Add the copy that was saved from removed files to the hint of the error."""
        copy = self._rescue()
        if copy:
            alarm.hint = f"the store is saved in the copy {copy}: standfast restore --here"
        return alarm

    def _rescue(self) -> str:
        """Save removed files in a copy: they disappear when the last process closes them.

        This happens once, before any caller is answered. Returns the id of the copy, if one was taken.
        """
        store = self._store
        if self._saved_in is None and not store.copy_of and store.files.removed():
            from standfast.db.sqlite import copies

            self._saved_in = ""
            try:
                self._saved_in = self._on_removed(store.store_id, lambda path: copies.save(store.connection, path))
            except (StandfastError, OSError) as error:
                log.warning(f"the files of the store at {store.path} were removed, and no copy could be saved: {error}")
        return self._saved_in or ""


def _fail(batch: list[Body], error: BaseException) -> list[Body]:
    for body in batch:
        body.error = body.error or error
    return batch


def closed() -> InvalidInput:
    return InvalidInput("this store is closed", "open it again: standfast.open()")


def _sync_failed(path: str, error: OSError) -> CommitUnknown:
    return CommitUnknown(
        f"the disk did not confirm a write to {path}: {error.strerror}",
        "look the write up by its key before repeating it; then: standfast doctor",
        code="sync_failed",
    )
