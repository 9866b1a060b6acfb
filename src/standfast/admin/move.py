"""`db move`: every row and artifact of a store goes to another place, SQLite or PostgreSQL, and is compared there.

    mark the source (moving) ─▶ load the target ─▶ compare ─▶ commit of the target ─▶ seal the source (moved)
                                                                  ▲
                                        before it the source is the authority, after it the target

The mark stops every writer of the source. The target becomes visible in one step: the commit of one transaction on
PostgreSQL, a rename on SQLite. It has the tokens of this move and of all before it.

The mover holds a lock in the source, which ends with its process. A process that opens a marked source and gets the
lock asks the target for the token of the mark. If the target has it, the process seals the source. If not, it removes
the mark.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import zip_longest
from typing import Any

from standfast import crash
from standfast.admin.copies.restore_here import look, open_engine
from standfast.admin.plans import plan_hash
from standfast.clock import SYSTEM
from standfast.config import Settings, parse_db_target
from standfast.config.files import write as write_file
from standfast.config.people import for_people
from standfast.config.target import Target, state_dir
from standfast.core import artifact_files, leases
from standfast.core.leases import parse_process, this_process
from standfast.core.progress import Progress
from standfast.db import move_mark
from standfast.db.contract import Caller, Engine, Tx
from standfast.db.move_mark import Moved
from standfast.db.sql import load
from standfast.db.sqlite.location import make_private
from standfast.db.sqlite.move_aside import left
from standfast.db.tables import OWN_META, Table
from standfast.errors import Busy, Conflict, Corrupt, InvalidInput, NotFound, StorageError
from standfast.models import Model

SQL = load(__name__)
REPORT_ROWS = 5000


class Plan(Model):
    """The plan of `move`."""

    store: str
    source: str
    target: str
    rows: int
    artifacts: int
    seq: int
    aside: str
    """The new name of a sealed store at the target, which moved away before; empty if there is none."""

    @property
    def hash(self) -> str:
        return plan_hash({"store": self.store, "source": self.source, "target": self.target})


def plan(settings: Settings, target: Target) -> Plan:
    """The plan that `move` would follow now. An interrupted move of this store is finished or undone first.

    Raises Conflict if the target has another store, NotFound if there is none to move.
    """
    if settings.target.is_memory or target.is_memory:
        raise InvalidInput("a store in memory ends with its process", "standfast db move sqlite PATH")
    there = look(settings.target)
    if there is None:
        raise NotFound(f"there is no store at {settings.target.shown}", "standfast db")
    if "copy_of" in there.meta:
        raise Conflict(f"{settings.target.shown} is a read-only copy", "standfast restore promote")
    if move_mark.KEY in there.meta:
        resolve(settings, there.meta[move_mark.KEY], target)
    if target.location == settings.target.location:
        raise InvalidInput(f"the store is at {target.shown} already", "standfast db")
    stamp = str(SYSTEM.now_us())
    with _reading(settings.target) as source:
        rows = sum(source.count(table) for table in source.tables)
        artifacts = len(source.artifacts)
    aside = _aside(there.store_id, target, stamp)
    return Plan(there.store_id, settings.target.shown, target.shown, rows, artifacts, there.seq, aside)


def _aside(store_id: str, target: Target, stamp: str) -> str:
    found = look(target)
    if found is None:
        there = left(target.location) if target.engine == "sqlite" else []
        if there:
            raise Conflict(f"there is a file {there[0]} that is no store", "standfast db move sqlite PATH")
        return ""
    if found.store_id != store_id or found.moved is None or found.moved.state != "moved":
        raise Conflict(f"{target.shown} has the store {found.store_id}", "move to an empty file or database")
    return f"standfast_moved_{stamp}" if target.engine == "postgres" else f"{target.location}.moved-{stamp}"


@for_people("moves the store")
def move(settings: Settings, target: Target, what: Plan, progress: Progress) -> None:
    """Carry out the plan. The caller has asked a person.

    Raises Conflict while a live process sends an effect or performs a run.
    """
    mark = Moved("moving", target.shown, secrets.token_hex(16), this_process(SYSTEM))
    with _mover(settings.target) as check:
        _record(mark.token, target)
        crash.point("move.before_mark")
        try:
            _change(settings, lambda tx: _marked(tx, mark))
        except (Busy, Conflict):  # nothing was written
            _forget(mark.token)
            raise
        crash.point("move.after_mark")
        try:
            with _reading(settings.target) as source:
                _load(source, settings.target, target, what, mark.token, check, progress)
        except BaseException:
            with suppress(StorageError):
                _settle(settings, target, mark)
            raise
        crash.point("move.after_commit")
        _change(settings, lambda tx: _sealed(tx, mark))
        crash.point("move.after_seal")
        _forget(mark.token)


# -- the mark of the source ---------------------------------------------------------------------------


def _mover(target: Target) -> AbstractContextManager[Callable[[], None]]:
    """The lock that the process which moves this store holds. Raises Busy if that is another process, which lives.

    Call the yielded function right before the target is committed. It raises StorageError if the lock was lost.
    """
    if target.engine == "postgres":
        from standfast.db.postgres import move as server

        return server.mover(target.location)
    from standfast.db.sqlite import move as local

    return local.mover(target.location)


def _change(settings: Settings, body: Callable[[Tx], None]) -> None:
    """Change the mark in a transaction of the source."""
    caller = Caller(actor=settings.actor, holder=this_process(SYSTEM), scope="", clock=SYSTEM)
    engine = open_engine(settings, caller)
    try:
        engine.write(body, caller)
    finally:
        ended(engine)


def ended(engine: Engine) -> None:
    """Close the engine. Handles of this process then open it again and read the mark."""
    engine.dead = engine.dead or StorageError("the mark of this store has changed", code="store_moving")
    engine.release()


def _marked(tx: Tx, mark: Moved) -> None:
    tx.run(SQL.alone)
    if tx.maybe(SQL.mark) is not None:
        raise Busy("another process moves this store", "wait for it: standfast db", code="store_moving")
    held = [f"effect {row['id']}" for row in tx.all(SQL.sending) if leases.judge(tx, row).live]
    held += [f"run {row['id']}" for row in tx.all(SQL.running) if leases.judge(tx, row).live]
    if held:
        more = f" and {len(held) - 1} more" if len(held) > 1 else ""
        raise Conflict(f"{held[0]}{more} is under way in a live process", "wait for it: --wait 5m", code="under_way")
    tx.run(SQL.set_mark, value=mark.dumps())


def _sealed(tx: Tx, mark: Moved) -> None:
    tx.run(SQL.seal, mark=mark.dumps(), value=mark._replace(state="moved").dumps())


def _settle(settings: Settings, target: Target, mark: Moved) -> bool:
    """Seal the source if the target has the token, else remove the mark. Returns whether the source was sealed."""
    there = look(settings.target)
    done = there is not None and complete(target, there.store_id, mark.token)
    _change(settings, lambda tx: _sealed(tx, mark) if done else tx.run(SQL.remove_mark, mark=mark.dumps()))
    _forget(mark.token)
    return done


def complete(target: Target, store_id: str, token: str) -> bool:
    """Whether the move was completed: the target has the token, or is this store and not moved away.

    When it returns False, no process can complete the move any more.
    """
    if target.engine == "postgres":
        from standfast.db.postgres import move as server

        meta = server.meta(target.location)
    else:
        from standfast.db.sqlite import move as local

        local.forget(target.location)
        found = look(target)
        meta = found.meta if found is not None else {}
    has_token = token in meta.get(move_mark.TOKEN, "").split(",")
    return has_token or (meta.get("store_id") == store_id and move_mark.KEY not in meta)


def resolve(settings: Settings, text: str, known: Target | None = None) -> None:
    """Finish or undo the move of a dead process, after its mark was found.

    Raises StorageError if the store moved, if a live process moves it, or if the target cannot be asked. `known` is a
    place that may be the target.
    """
    mark = move_mark.loads(text)
    if mark.state == "moved":
        raise move_mark.moved_away(text)
    try:
        with _mover(settings.target):
            done = _settle(settings, _target_of(mark, known), mark)
    except Busy as error:
        raise (move_mark.moved_away(text) if error.code == "store_moving" else error) from None
    if done:
        raise move_mark.moved_away(mark._replace(state="moved").dumps())


def _target_of(mark: Moved, known: Target | None) -> Target:
    """The target of a move whose process died. Raises StorageError if this process cannot ask it."""
    target = _recorded(mark.token) or known
    if target is None or target.shown != mark.to:
        hint = "run the same command again: standfast db move"
        fact = "that place is not known here"
    elif target.engine == "sqlite" and not _is_this_machine(mark.holder):
        hint = "run the same command there; if that machine is lost: standfast restore --here"
        fact = f"that is a file of another machine ({leases.holder_text(mark.holder)} made it)"
    else:
        return target
    raise StorageError(f"a move of this store to {mark.to} was interrupted, and {fact}", hint, code="store_moving")


def _is_this_machine(holder: str) -> bool:
    """The host name changes when a container is replaced, and the boot id when the machine restarts."""
    there, here = parse_process(holder), parse_process(this_process(SYSTEM))
    return there is not None and here is not None and (there.host == here.host or there.boot == here.boot)


def _path(token: str) -> str:
    return os.path.join(state_dir(os.environ), "moves", f"{token}.json")


def _record(token: str, target: Target) -> None:
    """Keep the address of the target, which may have a password, for the process that settles a killed move."""
    make_private(os.path.dirname(_path(token)))
    url = target.location if target.engine == "postgres" else f"sqlite:{target.location}"
    write_file(_path(token), json.dumps({"target": url}) + "\n")


def _recorded(token: str) -> Target | None:
    try:
        with open(_path(token), encoding="utf-8") as file:
            return parse_db_target(json.load(file)["target"], default_path="")
    except (OSError, ValueError, KeyError):
        return None


def _forget(token: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(_path(token))


# -- rows ---------------------------------------------------------------------------------------------


@contextmanager
def _reading(target: Target) -> Iterator[Any]:
    """One snapshot of a store: `meta`, `tables`, `rows(table)`, `count(table)`, `artifacts`."""
    if target.engine == "postgres":
        from standfast.db.postgres import copies as server

        with server.snapshot(target.location) as found:
            yield found
    else:
        from standfast.db.sqlite import move as local

        with local.snapshot(target.location) as file:
            yield file


def _load(
    source: Any, old: Target, target: Target, what: Plan, token: str, check: Callable[[], None], progress: Progress
) -> None:
    """Copy every row and artifact to the target, compare them, and make them visible in one step."""
    bounds = ",".join(part for part in (source.meta.get("settled_seq", ""), str(what.seq)) if part and part != "0")
    tokens = [*filter(None, source.meta.get(move_mark.TOKEN, "").split(",")), token]
    meta = {move_mark.TOKEN: ",".join(tokens), "settled_seq": bounds}
    loaded = _counted("moving rows", what.rows, progress)
    rows = ((table, loaded(carried(source, table))) for table in source.tables)
    schema = int(source.meta.get("schema_version") or source.schema)
    if target.engine == "postgres":
        from standfast.db.postgres import move as server

        with server.loading(target.location, schema, rows, meta, what.aside) as made:
            for digest in source.artifacts:
                made.put_artifact(digest, _blocks(source, old, digest))
            _compare(source, made, _counted("comparing rows", what.rows, progress))
            check()
            crash.point("move.before_commit")
        return
    from standfast.db.sqlite import move as local

    root = artifact_files.directory(target.location)
    make_private(os.path.dirname(root))
    for digest, size_bytes in source.artifacts.items():
        if not artifact_files.is_sound(root, digest, size_bytes):
            artifact_files.keep(root, digest, _blocks(source, old, digest), SYSTEM.now_us())
    with local.loading(target.location, schema, rows, meta, what.aside) as made:
        _compare(source, made, _counted("comparing rows", what.rows, progress))
        check()
        crash.point("move.before_commit")


def _blocks(source: Any, old: Target, digest: str) -> Iterator[bytes]:
    """The bytes of an artifact: in rows on PostgreSQL, in files beside SQLite."""
    if old.engine == "postgres":
        yield from source.blocks(digest)
    else:
        yield from artifact_files.read(artifact_files.directory(old.location), digest, source.artifacts[digest])


def carried(store: Any, table: Table) -> Iterator[Any]:
    """The rows of a table that a move copies: all but the rows of `meta` about one engine or about moves."""
    rows: Iterator[Any] = store.rows(table)
    if table.name == "meta":
        return (row for row in rows if row[0] not in (*OWN_META, move_mark.KEY, move_mark.TOKEN))
    return rows


def _counted(doing: str, total: int, progress: Progress) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Report the progress every REPORT_ROWS rows, over all tables."""
    done = 0

    def counted(rows: Iterator[Any]) -> Iterator[Any]:
        nonlocal done
        for row in rows:
            yield row
            done += 1
            if done % REPORT_ROWS == 0:
                progress(doing, done, total)

    return counted


def _compare(source: Any, made: Any, counted: Callable[[Iterator[Any]], Iterator[Any]]) -> None:
    """Read every row of the source and of the target again, both in the order of the key, and compare all values.

    Raises Corrupt naming the first row that differs; then nothing has moved.
    """
    for table in made.tables:
        pairs = zip_longest(counted(carried(source, table)), carried(made, table))
        for n, (wanted, found) in enumerate(pairs, start=1):
            if wanted != found:
                raise Corrupt(
                    f"row {n} of table {table.name} differs between the source and the target: nothing was moved",
                    "standfast doctor",
                )
