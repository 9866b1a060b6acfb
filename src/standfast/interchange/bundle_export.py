"""`sf.export("fix-42", to="fix-42.zip")`: write sessions into one file for people and for another store.

Two exports without a change in between give the same bytes. With `hand_over`, the source ends its sessions before the
file gets its name, and then refuses to open them, because another store may continue them.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from hashlib import sha256
from typing import Any

from standfast import crash, serial
from standfast.clock import iso
from standfast.core import artifacts, digests, leases, repositories
from standfast.core.progress import Progress, each, quiet
from standfast.db import row_statements
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.db.store import Store, refused_inside
from standfast.errors import Conflict, InvalidInput, NotFound
from standfast.files import sync_directory
from standfast.interchange import bundle_pages, bundles
from standfast.models import Model
from standfast.record.sessions import ownership, queries
from standfast.serial.redaction import redacted

SQL = load(__name__)

HANDED_OVER = ownership.HANDED_OVER
_EPOCH = (1980, 1, 1, 0, 0, 0)


class Bundle(Model):
    """A bundle that an export wrote."""

    path: str
    sessions: list[str]
    rows: int
    size_bytes: int
    content: str
    """The hash of its rows and artifacts. A bundle of the same sessions from another store has the same hash."""
    handed_over: bool


def export(
    store: Store, keys: Sequence[str], path: str, *, hand_over: bool = False, progress: Progress = quiet
) -> Bundle:
    """Write the bundle to a temporary file and rename it. Raises NotFound for an unknown session."""
    refused_inside(store.held, "export")
    sessions, rows, events = store.read(lambda tx: _read(tx, keys))
    _refuse_parts(sessions, rows)
    members, bytes_of = _members(store, sessions, rows, events, progress)
    hashes = {name: sha256(content).hexdigest() for name, content in members.items()} | {
        f"artifacts/{digest}": digest for digest in bytes_of
    }
    manifest = _manifest(store, sessions, hashes, hand_over)
    temporary = f"{path}.{os.getpid()}.{os.urandom(4).hex()}.tmp"
    try:
        size = _write(temporary, {bundles.MANIFEST: manifest, **members}, bytes_of, store, progress)
        if hand_over:
            for one in sessions:
                store.write(partial(_hand_over, one["id"], os.path.basename(path)))
            crash.point("export.after_hand_over")
        os.replace(temporary, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    sync_directory(os.path.dirname(os.path.abspath(path)))
    count = sum(len(found) for found in rows.values())
    content = bundles.content_hash(hashes)
    return Bundle(path, [one["key"] for one in sessions], count, size, content, hand_over)


# -- reads ---------------------------------------------------------------------------------------------


def _read(tx: Tx, keys: Sequence[str]) -> tuple[list[Row], bundle_pages.Rows, list[Row]]:
    """The sessions, their rows by table and their journal entries, from one snapshot."""
    if not keys:
        raise InvalidInput("name at least one session", "standfast session list")
    sessions = {row["id"]: row for row in (_session(tx, key) for key in keys)}
    rows: bundle_pages.Rows = {table: [] for table in bundles.BY_SESSION}
    events: list[Row] = []
    for id in sorted(sessions):
        for table, by in bundles.BY_SESSION.items():
            wanted = (*bundles.columns(table), "expires_us") if table == "state" else bundles.columns(table)
            found = tx.all(row_statements.of_session(table, wanted, by), session=id)
            rows[table] += [_exported(table, row) for row in found if row.get("expires_us") is None]
        events += tx.all(SQL.events, session=id)
    for found in rows.values():
        found.sort(key=lambda row: str(row.get("id") or (row["namespace"], row["key"])))
    rows["artifact"] = [row for row in rows["artifact"] if row["kind"] != "bundle"]
    return [sessions[id] for id in sorted(sessions)], rows, sorted(events, key=lambda row: row["seq"])


def _session(tx: Tx, key: str) -> Row:
    row = tx.maybe(SQL.sessions, session=key, scope=tx.caller.scope)
    if row is None:
        raise NotFound(f"there is no session {serial.clean(key, 60)!r} here", "standfast session list")
    return row


def _exported(table: str, row: Row) -> Row:
    return {name: value for name, value in row.items() if name != "expires_us"} if table == "state" else row


def _refuse_parts(sessions: Sequence[Row], rows: bundle_pages.Rows) -> None:
    known = {one["id"] for one in sessions}
    for one in sessions:
        if one["parent_id"] is not None and one["parent_id"] not in known:
            raise InvalidInput(
                f"session {one['key']!r} is a fork and shares the messages of {one['parent_id']}",
                "export both: standfast export PARENT FORK --to FILE.zip",
            )
    if (count := sum(len(found) for found in rows.values())) > bundles.ROWS_MAX:
        raise InvalidInput(
            f"these sessions have {count:,} rows, and the limit of a bundle is {bundles.ROWS_MAX:,}",
            "export fewer sessions, or copy the store: standfast backup",
        )


# -- writes --------------------------------------------------------------------------------------------


def _members(
    store: Store, sessions: Sequence[Row], rows: bundle_pages.Rows, events: Sequence[Row], progress: Progress
) -> tuple[dict[str, bytes], dict[str, str]]:
    """All members except artifacts, and the ids of artifacts by the digest of their redacted bytes."""
    bytes_of: dict[str, str] = {}
    for row in each("reading artifacts", rows["artifact"], progress):
        data = redacted_bytes(artifacts.read(store, row["id"]))
        row |= {"digest": sha256(data).hexdigest(), "size_bytes": len(data)}
        bytes_of[row["digest"]] = row["id"]
    texts = {
        bundles.README: redacted(bundle_pages.readme(sessions, rows)),
        bundles.TIMELINE: redacted(bundle_pages.timeline(events)),
        bundles.SCHEMA: json.dumps(bundles.schema(), indent=1, sort_keys=True) + "\n",
    }
    texts |= {
        f"rows/{table}.jsonl": "".join(map(bundles.line, each(f"exporting {table}", found, progress)))
        for table, found in rows.items()
    }
    texts[bundles.EVENTS] = "".join(
        bundles.line(cloud_event(store.pin[0], row)) for row in each("exporting events", events, progress)
    )
    for n, text in enumerate(bundle_pages.diffs(rows["tool_call"]), start=1):
        if n <= bundle_pages.DIFFS_MAX:
            texts[f"diffs/{n:04d}.patch"] = redacted(text)
    return {name: text.encode() for name, text in texts.items()}, bytes_of


def redacted_bytes(data: bytes) -> bytes:
    """The bytes without known secrets."""
    try:
        return redacted(data.decode()).encode()
    except UnicodeDecodeError:
        # Latin-1 keeps every byte, so a secret between other bytes is found too.
        return redacted(data.decode("latin-1")).encode("latin-1")


def cloud_event(store_id: str, row: Row) -> dict[str, Any]:
    """A row of the journal as a CloudEvent 1.0."""
    data = {name: row[name] for name in ("actor", "source", "state", "summary")}
    return {
        "specversion": "1.0",
        "id": str(row["seq"]),
        "source": f"standfast:{store_id}",
        "type": f"standfast.{row['type']}",
        "subject": row["subject"],
        "time": iso(row["time_us"]),
        "datacontenttype": "application/json",
        "data": {**data, "session": row["session_id"], "data": serial.read(row["data"]) if row["data"] else None},
    }


def _manifest(store: Store, sessions: Sequence[Row], hashes: dict[str, str], handed_over: bool) -> bytes:
    named = [{name: one[name] for name in ("id", "key", "state", "reason")} for one in sessions]
    manifest = {
        "form": bundles.FORM,
        "store": store.pin[0],
        "digest": str(digests.extend(store)),
        "sessions": named,
        "handed_over": handed_over,
        "members": hashes,
        "content": bundles.content_hash(hashes),
    }
    return redacted(json.dumps(manifest, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()


def _write(path: str, members: dict[str, bytes], bytes_of: dict[str, str], store: Store, progress: Progress) -> int:
    """Write the members in a fixed order with a fixed time, and fsync the file. Returns its size."""
    with open(path, "xb") as file:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
            for name, data in _in_order(members, bytes_of, store, progress):
                info = zipfile.ZipInfo(name, _EPOCH)
                info.compress_type, info.external_attr = zipfile.ZIP_DEFLATED, 0o100644 << 16
                archive.writestr(info, data)
        file.flush()
        os.fsync(file.fileno())
        return file.tell()


def _in_order(
    members: dict[str, bytes], bytes_of: dict[str, str], store: Store, progress: Progress
) -> Iterator[tuple[str, bytes]]:
    yield from members.items()
    for digest, id in each("writing artifacts", sorted(bytes_of.items()), progress):
        yield f"artifacts/{digest}", redacted_bytes(artifacts.read(store, id))


def _hand_over(id: str, name: str, tx: Tx) -> None:
    row = tx.one(queries.SQL.by_id_for_update, id=id)
    if leases.judge(tx, row).live:
        raise Conflict(
            f"session {row['key']!r} is held by {leases.holder_text(row['holder'])}, so it cannot be handed over",
            "end the program that works in it, then export again",
        )
    reason = f"{HANDED_OVER}: {serial.clean(name, 120)}"
    if row["state"] == "completed" and (row["reason"] or "").startswith(HANDED_OVER):
        return
    ended = tx.one(SQL.hand_over, id=id, fence=row["fence"], reason=reason, now_us=tx.now_us())
    ownership.journal_change(tx, ended | repositories.labelled(row).as_dict(), "session.handed_over")
