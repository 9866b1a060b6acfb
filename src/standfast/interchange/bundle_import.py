"""`sf.imports.bundle(FILE)`: import sessions of another store from a bundle.

The import checks the whole file before its first write: the names, sizes and hashes of members, then each row by its
schema. It writes all rows in one transaction, then the bytes of artifacts, and finishes the sessions last. Until then
their reason says that the import is not finished. If the import is killed, run it again and it continues.

Without `take`, sessions are history. Their effects, decisions and artifacts are in a scope of their own
(`history_scope`) that no caller can choose. So no key or name of a bundle answers a call of this store.

With `take`, the sessions can be opened here, and their rows move into the caller's scope. The source must have handed
the sessions over, or be lost.
"""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from hashlib import sha256
from typing import Any, BinaryIO, NamedTuple, cast

from standfast import crash, serial
from standfast.config.scope import OUTSIDE
from standfast.core import artifacts, journal
from standfast.core.artifact_sources import checked_kind, checked_name
from standfast.core.progress import Progress, each, quiet
from standfast.db import row_statements
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.db.store import Store, refused_inside
from standfast.errors import Conflict, InvalidInput, KeyConflict, NotFound, StandfastError
from standfast.ids import PREFIXES, is_id, prefix_of
from standfast.interchange import bundles
from standfast.models import Model
from standfast.record.state import schemas

SQL = load(__name__)

LINE_MAX_BYTES = 16 << 20
UNFINISHED = "the import of its bundle is not finished"
_LINK = 0o120000
_READS = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError, OSError)
"""Exceptions of `zipfile` for a damaged file."""
_PREFIX_OF = {table: prefix for prefix, table in PREFIXES.items()}
_MAKE_AGAIN = "export it again at the source: standfast export SESSION --to FILE.zip"


class BundleImport(Model):
    """The result of importing a bundle."""

    path: str
    store: str
    """The id of the store that wrote the bundle."""
    sessions: list[str]
    rows: int
    added: int
    artifacts: int
    content: str
    taken: bool


class _Checked(NamedTuple):
    """A bundle that passed all checks."""

    archive: zipfile.ZipFile
    manifest: dict[str, Any]
    rows: dict[str, list[Row]]


def run(
    store: Store, path: str, *, take: bool = False, source_lost: bool = False, progress: Progress = quiet
) -> BundleImport:
    """Import the bundle. Raises InvalidInput for a damaged one, Conflict for sessions that cannot be taken."""
    refused_inside(store.held, "imports.bundle")
    if not os.path.isfile(path):
        raise NotFound(f"there is no file {path}", "standfast import bundle FILE.zip")
    with ExitStack() as stack:
        try:
            checked = _checked(stack.enter_context(zipfile.ZipFile(path)), progress)
        except StandfastError:
            raise
        except _READS as error:
            fact = serial.clean(str(error) or type(error).__name__, 160)
            raise InvalidInput(f"{path} is damaged or is no bundle: {fact}", _MAKE_AGAIN) from None
        return _imported(store, path, checked, take, source_lost, progress)


def _imported(
    store: Store, path: str, checked: _Checked, take: bool, source_lost: bool, progress: Progress
) -> BundleImport:
    manifest = checked.manifest
    if take and not (manifest["handed_over"] or source_lost):
        raise Conflict(
            "the source did not hand these sessions over, so both stores could continue them",
            "at the source: standfast export SESSION --to FILE.zip --hand-over; if the source is lost: --source-lost",
            code="not_handed_over",
        )
    added = store.write(lambda tx: _put_rows(tx, checked, take))
    crash.point("import.after_batch")
    stored = _put_artifacts(store, checked, progress)
    for one in manifest["sessions"]:
        store.write(partial(_finish, one, manifest, take))
    keys, rows = [one["key"] for one in manifest["sessions"]], sum(map(len, checked.rows.values()))
    return BundleImport(path, manifest["store"], keys, rows, added, stored, manifest["content"], take)


# -- reads and checks ----------------------------------------------------------------------------------


def _checked(archive: zipfile.ZipFile, progress: Progress) -> _Checked:
    infos = _infos(archive)
    manifest = _manifest(archive, infos)
    for name, info in each("checking members", infos.items(), progress):
        if name != bundles.MANIFEST and _hash(archive, info) != manifest["members"][name]:
            raise _damaged(f"the hash of {name} differs from {bundles.MANIFEST}")
    tables = each("checking tables", bundles.BY_SESSION, progress)
    rows = {table: list(_rows(archive, infos, table)) for table in tables}
    if sum(map(len, rows.values())) > bundles.ROWS_MAX:
        raise _damaged(f"it has more than {bundles.ROWS_MAX:,} rows")
    _check_references(manifest, rows, infos)
    return _Checked(archive, manifest, rows)


def _damaged(fact: str) -> InvalidInput:
    return InvalidInput(f"the bundle is refused: {serial.clean(fact, 300)}", _MAKE_AGAIN)


def _infos(archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """The members by name. Checks the directory of the zip file before any member is read."""
    found: dict[str, zipfile.ZipInfo] = {}
    if len(archive.infolist()) > bundles.MEMBERS_MAX:
        raise _damaged(f"it has {len(archive.infolist()):,} members; the limit is {bundles.MEMBERS_MAX:,}")
    for info in archive.infolist():
        name = info.filename
        if not bundles.is_member(name):
            raise _damaged(f"unknown member {name!r}")
        if name in found:
            raise _damaged(f"the member {name} occurs twice")
        if info.external_attr >> 16 & 0o170000 == _LINK or info.flag_bits & 1:
            raise _damaged(f"{name} is a link, or is encrypted")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise _damaged(f"{name} is compressed by an unknown method")
        if info.file_size > max(1 << 20, bundles.RATIO_MAX * info.compress_size):
            raise _damaged(f"{name} would grow {info.file_size:,} bytes from {info.compress_size:,}")
        found[name] = info
    if sum(info.file_size for info in found.values()) > bundles.BYTES_MAX:
        raise _damaged(f"it would grow to more than {bundles.BYTES_MAX:,} bytes")
    return found


def _manifest(archive: zipfile.ZipFile, infos: dict[str, zipfile.ZipInfo]) -> dict[str, Any]:
    if bundles.MANIFEST not in infos:
        raise _damaged(f"{bundles.MANIFEST} is missing")
    if infos[bundles.MANIFEST].file_size > LINE_MAX_BYTES:
        raise _damaged(f"{bundles.MANIFEST} has more than {LINE_MAX_BYTES:,} bytes")
    found = serial.loads(archive.read(bundles.MANIFEST), what=bundles.MANIFEST, limit_bytes=LINE_MAX_BYTES)
    if not isinstance(found, dict) or found.get("form") != bundles.FORM:
        raise _damaged(f"its form is not {bundles.FORM}")
    _fit(found, _MANIFEST_SCHEMA, bundles.MANIFEST)
    members = found["members"]
    if members.keys() != infos.keys() - {bundles.MANIFEST}:
        differing = sorted(members.keys() ^ (infos.keys() - {bundles.MANIFEST}))
        raise _damaged(f"{bundles.MANIFEST} and the members differ: {differing[0]}")
    if found["content"] != bundles.content_hash(members):
        raise _damaged("the hash of its content differs from the manifest")
    return found


_TEXT = {"type": "string"}
_MANIFEST_SCHEMA = schemas.compiled(
    {
        "type": "object",
        "required": ["form", "store", "digest", "sessions", "handed_over", "members", "content"],
        "properties": {
            **dict.fromkeys(("form", "store", "digest", "content"), _TEXT),
            "handed_over": {"type": "boolean"},
            "members": {"type": "object", "additionalProperties": _TEXT},
            "sessions": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["id", "key", "state"],
                    "properties": {"id": _TEXT, "key": _TEXT, "state": _TEXT, "reason": {"type": ["string", "null"]}},
                },
            },
        },
    }
)


def _fit(value: Any, schema: schemas.Schema, what: str) -> None:
    try:
        schemas.check(value, schema, what)
    except InvalidInput as error:
        raise _damaged(error.message) from None


def _hash(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> str:
    hash, size = sha256(), 0
    with archive.open(info) as member:
        while block := member.read(1 << 20):
            size += len(block)
            if size > info.file_size:
                raise _damaged(f"{info.filename} is longer than it says")
            hash.update(block)
    return hash.hexdigest()


def _rows(archive: zipfile.ZipFile, infos: dict[str, zipfile.ZipInfo], table: str) -> Iterator[Row]:
    name = f"rows/{table}.jsonl"
    if name not in infos:
        raise _damaged(f"{name} is missing")
    schema = schemas.compiled(bundles.schema()["$defs"][table])
    own = bundles.columns(table)
    with archive.open(infos[name]) as member:
        for number in range(1, bundles.ROWS_MAX + 2):
            line = member.readline(LINE_MAX_BYTES + 1)
            if not line:
                return
            where = f"{name}:{number}"
            fields = serial.loads(line, what=where, limit_bytes=LINE_MAX_BYTES)
            _fit(fields, schema, where)
            assert isinstance(fields, dict)
            yield {column: fields.get(column) for column in own}


def _check_references(manifest: dict[str, Any], rows: dict[str, list[Row]], infos: dict[str, zipfile.ZipInfo]) -> None:
    """Check what the schema of a row cannot express: ids, keys and references."""
    sessions = {row["id"]: row["key"] for row in rows["session"]}
    nodes = {row["id"]: row["session_id"] for row in rows["node"]}
    if sessions != {one["id"]: one["key"] for one in manifest["sessions"]} or not sessions:
        raise _damaged("the sessions of the manifest and of the rows differ")
    if any(row["parent_id"] not in (None, *sessions) for row in rows["session"]):
        raise _damaged("the parent of a forked session is not in the bundle")
    for table, found in rows.items():
        for row in found:
            by = row[bundles.BY_SESSION[table]]
            if "id" in row and not (is_id(row["id"]) and prefix_of(row["id"]) == _PREFIX_OF[table]):
                raise _damaged(f"{row['id']!r} is not the id of a {table}")
            if row.get("state") == "standing":
                raise _damaged("a decision of a session cannot be a standing order")
            if by not in sessions or nodes.get(row.get("node_id") or "", by) != by:
                raise _damaged(f"a row of {table} belongs to no session of the bundle")
        _check_unique(table, found)
    if any(row["node_id"] not in nodes for row in (*rows["message"], *rows["checkpoint"])):
        raise _damaged("a message or checkpoint belongs to no node of the bundle")
    roots = [row["session_id"] for row in rows["node"] if row["parent_id"] == "" and row["name"] == ""]
    if sorted(roots) != sorted(sessions):
        raise _damaged("a session has no root node")
    for row in rows["artifact"]:
        checked_name(row["name"])
        checked_kind(row["kind"])
        info = infos.get(f"artifacts/{row['digest']}")
        if info is None or info.file_size != row["size_bytes"] or manifest["members"][info.filename] != row["digest"]:
            raise _damaged(f"the bytes of artifact {row['name']!r} are missing or do not match its row")


def _check_unique(table: str, found: list[Row]) -> None:
    for names in bundles.UNIQUE[table]:
        seen = [tuple(row[name] for name in names) for row in found if all(row[name] is not None for name in names)]
        if len(set(seen)) != len(seen):
            raise _damaged(f"two rows of {table} have the same {', '.join(names)}")


# -- writes --------------------------------------------------------------------------------------------


def history_scope(session_id: str) -> str:
    """The scope of an imported session that was not taken. No caller can name it, because it begins with a space."""
    return f" {session_id}"


def _put_rows(tx: Tx, checked: _Checked, take: bool) -> int:
    """Insert all rows. A session that is stored already must have every row of the bundle."""
    known = {row["id"] for row in checked.rows["session"] if tx.maybe(SQL.found, id=row["id"]) is not None}
    added = 0
    for table, found in checked.rows.items():
        by = bundles.BY_SESSION[table]
        for row in found:
            if table == "artifact":
                _refuse_other_artifact(tx, row)
            elif row[by] in known:
                _refuse_other(tx, table, row)
            else:
                _refuse_taken(tx, table, row, take)
        new = [row | _own(tx, table, row[by]) for row in found if row[by] not in known and table != "artifact"]
        added += len(new)
        if new:
            tx.many(row_statements.insert(table, tuple(new[0])), new)
    return added


def _own(tx: Tx, table: str, session_id: str) -> Row:
    """The values of columns that the import sets."""
    here: Row = {"scope": tx.caller.scope, **tx.caller.labelled()}
    match table:
        case "session":
            state: Row = {"state": "completed", "reason": UNFINISHED, "openings": 1, "actor": tx.caller.actor}
            return here | state | {"fence": 0, "updated_us": tx.now_us(), "ended_us": tx.now_us()}
        case "effect":
            return here | {"scope": history_scope(session_id)}
        case "decision":
            return here | {"scope": history_scope(session_id), "repository": tx.caller.keyspace.repository}
        case "state":
            return {"scope": tx.caller.scope, **OUTSIDE.as_dict(), "repository": ""}
    return {}


def _refuse_other(tx: Tx, table: str, row: Row) -> None:
    """Raise KeyConflict if the session is stored already, without this row of the bundle."""
    if table == "state":
        return  # a session that continued here may have changed its values
    if tx.maybe(row_statements.get(table, ("id",)), id=row["id"]) is None:
        raise KeyConflict(
            f"the session of {row['id']} is in this store without this {table} of the bundle",
            "import into another scope: standfast --scope NAME import bundle FILE.zip",
        )


def _refuse_other_artifact(tx: Tx, row: Row) -> None:
    """Raise KeyConflict if a different artifact has this id. Bytes may differ: those of the bundle are redacted."""
    found = _artifact(row["id"], tx)
    if found is not None and any(found[name] != row[name] for name in ("session_id", "name", "kind")):
        raise _taken_here("artifact", "id", row["id"])


def _refuse_taken(tx: Tx, table: str, row: Row, take: bool) -> None:
    """Raise KeyConflict if another row has a value that is unique in the whole store."""
    for names in bundles.UNIQUE[table]:
        if names not in (("id",), ("key",), ("native",), ("response",)) or row[names[0]] is None:
            continue
        if table == "effect" and names == ("key",) and not take:
            continue  # the keys of history are in a scope of their own
        asked = {names[0]: row[names[0]]}
        if names == ("key",):
            asked["scope"] = tx.caller.scope
        if tx.maybe(row_statements.get(table, tuple(asked)), **asked) is not None:
            raise _taken_here(table, names[0], row[names[0]])


def _taken_here(table: str, name: str, value: Any) -> KeyConflict:
    return KeyConflict(
        f"this store has another {table} with the {name} {serial.clean(str(value), 80)!r}",
        "import into another scope: standfast --scope NAME import bundle FILE.zip",
    )


def _artifact(id: str, tx: Tx) -> Row | None:
    return tx.maybe(SQL.artifact, id=id)


def _put_artifacts(store: Store, checked: _Checked, progress: Progress) -> int:
    for row in each("storing artifacts", checked.rows["artifact"], progress):
        if store.read(partial(_artifact, row["id"])) is not None:
            continue  # an earlier import of this bundle stored it
        with checked.archive.open(f"artifacts/{row['digest']}") as member:
            same = {name: row[name] for name in ("name", "kind", "session_id", "retention", "id")}
            artifacts.put(store, cast("BinaryIO", member), scope=history_scope(row["session_id"]), **same)
    return len(checked.rows["artifact"])


def _finish(one: Row, manifest: dict[str, Any], take: bool, tx: Tx) -> None:
    found = tx.one(SQL.found, id=one["id"])
    if found["reason"] != UNFINISHED and not (take and (found["reason"] or "").startswith("imported from")):
        return  # an earlier import finished it
    if take:
        _move_rows(tx, one["id"])
    state, reason = ("waiting", "taken over") if take else ("completed", "imported")
    reason = f"{reason} from {manifest['store']}"
    now_us = tx.now_us()
    row = tx.one(SQL.finish, id=one["id"], state=state, reason=reason, now_us=now_us, ended_us=None if take else now_us)
    data = {"store": manifest["store"], "content": manifest["content"], "was": one["state"]}
    said: dict[str, Any] = {"summary": f"{row['key']}: {reason}", "state": state, "data": data}
    journal.append(tx, "session.imported", row["id"], session_id=row["id"], **said)


def _move_rows(tx: Tx, session_id: str) -> None:
    """Move the rows of a taken session into the caller's scope, so that its keys answer calls."""
    where: Row = {"session_id": session_id, "history": history_scope(session_id), "scope": tx.caller.scope}
    if (taken := tx.maybe(SQL.effect_taken, **where)) is not None:
        raise _taken_here("effect", "key", taken["key"])
    for statement in (SQL.take_effects, SQL.take_decisions, SQL.take_artifacts):
        tx.run(statement, **where)
