"""`db move`: every row and artifact of a store goes to another place, SQLite or PostgreSQL, and is compared there.

    mark the source (moving) ─▶ load the target ─▶ compare ─▶ commit of the target ─▶ seal the source (moved)
                                                                  ▲
                                        before it the source is the authority, after it the target

The mark stops every writer of the source. The target becomes visible in one step: the commit of one transaction on
PostgreSQL, a rename on SQLite. It has the tokens of this move and of all before it. A process that opens a source with
the mark of a dead process asks the target for that token: there, it seals the source; not there, it removes the mark.
The same command again does so too.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from standfast import crash, serial
from standfast.admin.copies.here import look, open_engine
from standfast.clock import SYSTEM
from standfast.config import Settings, parse_db_target
from standfast.config.files import write as write_file
from standfast.config.people import for_people
from standfast.config.target import Target, state_dir
from standfast.core import artifact_files, leases
from standfast.core.leases import is_gone, this_process
from standfast.core.progress import Progress
from standfast.db import moved
from standfast.db.contract import Caller, Engine, Tx
from standfast.db.moved import Moved
from standfast.db.sql import load
from standfast.db.sqlite.location import make_private
from standfast.db.sqlite.move_aside import left
from standfast.db.tables import OWN_META, Sum, Table, line
from standfast.errors import Busy, Conflict, Corrupt, InvalidInput, NotFound, StorageError
from standfast.models import Model

SQL = load(__name__)


class Plan(Model):
    """What `move` will do."""

    store: str
    source: str
    target: str
    rows: int
    artifacts: int
    seq: int
    aside: str
    """The new name of the store that moved away from the target before; empty if none is there."""

    @property
    def hash(self) -> str:
        said = {"store": self.store, "source": self.source, "target": self.target}
        return serial.hash_text(serial.canonical(said)).removeprefix("h1:")[:12]


def plan(settings: Settings, target: Target) -> Plan:
    """What `move` would do now. Raises Conflict if the target has another store, NotFound if there is none to move."""
    if settings.target.is_memory or target.is_memory:
        raise InvalidInput("a store in memory ends with its process", "standfast db move sqlite PATH")
    there = look(settings.target)
    if there is None:
        raise NotFound(f"there is no store at {settings.target.shown}", "standfast db")
    if "copy_of" in there.meta:
        raise Conflict(f"{settings.target.shown} is a read-only copy", "standfast restore promote")
    if there.moved is not None and there.moved.state == "moved":
        raise moved.moved_away(there.meta[moved.KEY])
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
    """Do what the plan says. A person has been asked. Raises Conflict while a live process sends or runs something."""
    there = look(settings.target)
    if there is not None and there.moved is not None:
        resolve(settings, there.meta[moved.KEY], target)
    mark = Moved("moving", target.shown, secrets.token_hex(16), this_process(SYSTEM))
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
            _load(source, settings.target, target, what, mark.token, progress)
    except BaseException:
        with suppress(StorageError):
            _settle(settings, target, mark)
        raise
    crash.point("move.after_commit")
    _change(settings, lambda tx: _sealed(tx, mark))
    crash.point("move.after_seal")
    _forget(mark.token)


# -- the mark of the source ---------------------------------------------------------------------------


def _change(settings: Settings, body: Callable[[Tx], None]) -> None:
    """Change the mark, in a transaction that no writer of the source overlaps."""
    caller = Caller(actor=settings.actor, holder=this_process(SYSTEM), scope="", clock=SYSTEM)
    engine = open_engine(settings, caller)
    try:
        engine.write(body, caller)
    finally:
        ended(engine)


def ended(engine: Engine) -> None:
    """Handles of this process on the engine open it again, and see the mark."""
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
    tx.run(SQL.set_mark, value=mark._replace(state="moved").dumps())


def _settle(settings: Settings, target: Target, mark: Moved) -> bool:
    """Ask the target: it has the token, so the source is sealed; or it has not, and the mark is removed."""
    there = look(settings.target)
    done = there is not None and complete(target, there.store_id, mark.token)
    _change(settings, lambda tx: _sealed(tx, mark) if done else tx.run(SQL.remove_mark))
    _forget(mark.token)
    return done


def complete(target: Target, store_id: str, token: str) -> bool:
    """Whether the store is at the target: it has the token, or is in use there and so was not moved away since.

    Waits until no transaction of the move can commit any more.
    """
    if target.engine == "postgres":
        from standfast.db.postgres import moving as server

        meta = server.meta(target.location)
    else:
        found = look(target)
        meta = found.meta if found is not None else {}
    return token in meta.get(moved.TOKEN, "").split(",") or (meta.get("store_id") == store_id and moved.KEY not in meta)


def resolve(settings: Settings, text: str, known: Target | None = None) -> None:
    """A store with a mark was opened: finish or undo the move of a dead process. Raises if the store moved, moves
    now, or its target cannot be asked. `known` is a place that may be its target."""
    mark = moved.loads(text)
    if mark.state == "moving" and is_gone(mark.holder, SYSTEM):
        target = _recorded(mark.token) or known
        if target is None or target.shown != mark.to:
            raise StorageError(
                f"a move of this store to {mark.to} was interrupted, and that place is not known here",
                "run the same command again, on the machine that moved it: standfast db move",
                code="store_moving",
            )
        if not _settle(settings, target, mark):
            return
        mark = mark._replace(state="moved")
    raise moved.moved_away(mark.dumps())


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
        from standfast.db.postgres import copying as server

        with server.snapshot(target.location) as found:
            yield found
    else:
        from standfast.db.sqlite import moving

        with moving.snapshot(target.location) as file:
            yield file


def _load(source: Any, old: Target, target: Target, what: Plan, token: str, progress: Progress) -> None:
    """Bring every row and artifact to the target, compare, and make them visible in one step."""
    sums: dict[str, Sum] = {}
    bounds = ",".join(part for part in (source.meta.get("settled_seq", ""), str(what.seq)) if part and part != "0")
    tokens = [*filter(None, source.meta.get(moved.TOKEN, "").split(",")), token]
    meta = {moved.TOKEN: ",".join(tokens), "settled_seq": bounds}
    rows = _counted(source, sums, what.rows, progress)
    schema = int(source.meta.get("schema_version") or source.schema)
    if target.engine == "postgres":
        from standfast.db.postgres import moving as server

        with server.loading(target.location, schema, rows, meta, what.aside) as made:
            for digest in source.artifacts:
                made.put_artifact(digest, _blocks(source, old, digest))
            _compare(sums, made)
            crash.point("move.before_commit")
        return
    from standfast.db.sqlite import moving

    root = artifact_files.directory(target.location)
    make_private(os.path.dirname(root))
    for digest, size_bytes in source.artifacts.items():
        if not artifact_files.is_sound(root, digest, size_bytes):
            artifact_files.keep(root, digest, _blocks(source, old, digest), SYSTEM.now_us())
    with moving.loading(target.location, schema, rows, meta, what.aside) as made:
        _compare(sums, made)
        crash.point("move.before_commit")


def _blocks(source: Any, old: Target, digest: str) -> Iterator[bytes]:
    """The bytes of an artifact: in rows on PostgreSQL, in files beside SQLite."""
    if old.engine == "postgres":
        yield from source.blocks(digest)
    else:
        yield from artifact_files.read(artifact_files.directory(old.location), digest, source.artifacts[digest])


def _counted(
    source: Any, sums: dict[str, Sum], total: int, progress: Progress
) -> Iterator[tuple[Table, Iterator[list[Any]]]]:
    done = 0

    def counted(table: Table) -> Iterator[list[Any]]:
        nonlocal done
        own = sums[table.name] = Sum()
        for row in source.rows(table):
            same = normal(table, row)
            if same is not None:
                own.add(line(same))
                yield same
            done += 1
            if done % 5000 == 0:
                progress("moving rows", done, total)

    for table in source.tables:
        yield table, counted(table)


def normal(table: Table, row: Any) -> list[Any] | None:
    """A row as both engines have it: no transaction number is 0, and facts of one engine alone are left out."""
    values = list(row)
    if table.name == "event":
        at = table.columns.index("xid")
        values[at] = int(values[at] or 0)
    if table.name == "meta" and values[0] in (*OWN_META, moved.KEY, moved.TOKEN):
        return None
    return values


def _compare(sums: dict[str, Sum], made: Any) -> None:
    """Read the target back. Raises Corrupt if a table differs; then nothing has moved."""
    for table in made.tables:
        found = Sum()
        for row in made.rows(table):
            same = normal(table, row)
            if same is not None:
                found.add(line(same))
        if (found.rows, found.hash) != (sums[table.name].rows, sums[table.name].hash):
            raise Corrupt(
                f"table {table.name} has {found.rows} rows in the target and {sums[table.name].rows} in the source, "
                "or other values: nothing was moved",
                "standfast doctor",
            )
