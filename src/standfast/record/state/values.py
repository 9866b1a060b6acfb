"""One value inside a transaction: write, read, delete, expire, verify."""

from __future__ import annotations

from os import urandom
from typing import NamedTuple

from standfast import crash, serial
from standfast.core import journal
from standfast.core.checks import NOT_GIVEN
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.errors import InvalidInput, NotFound, StandfastError, VersionConflict
from standfast.record.state import schemas
from standfast.record.state.models import (
    EVIDENCE_MAX,
    VALUE_MAX_BYTES,
    VERDICTS,
    Entry,
    Place,
    checked_term,
    command_text,
    entry,
    stored,
)

SQL = load(__name__)

EXPIRED_SHOWN = 50


class Wish(NamedTuple):
    """The columns that are written with the value: its expiry, its schema, its command."""

    for_us: int | None = None
    keep_end: bool = False
    json_schema: serial.Json = NOT_GIVEN
    verify: str | None = NOT_GIVEN
    imported: bool = False
    """The command was imported: it is never run until a person stores it again."""


def put(
    tx: Tx, place: Place, key: str, value: serial.Json, wish: Wish | None = None, *, version: int | None = None
) -> Entry:
    """Write one value; with a `version`, only over that version (0: no value yet)."""
    wish = wish or Wish()
    if version is not None and not _is_version(version):
        raise InvalidInput("a version is a whole number: 0 for none yet, or the one that was read")
    if wish.json_schema is not NOT_GIVEN and wish.json_schema is not None:
        schemas.check(value, schemas.compiled(wish.json_schema), key)
    row = _row(tx, place, key, value, wish)
    crash.point("state.before_set")
    made = _write(tx, row, version)
    if made is None and row["keep_schema"]:
        # Most keys have no schema, so it is read only if the first write was refused. The row is locked meanwhile.
        found = tx.maybe(SQL.get_for_update, **place.named(key))
        if found is not None and found["json_schema"] is not None and _over(tx, found, version):
            schemas.check(value, schemas.compiled(serial.read(found["json_schema"])), key)
            made = _write(tx, row | {"checked": found["json_schema"]}, version)
    if made is None:
        raise _moved_on(tx, place, key, version)
    return _journal_change(tx, entry(made), "state.set", place)


def remove(tx: Tx, place: Place, key: str, *, version: int | None = None) -> Entry:
    crash.point("state.before_delete")
    asked: Row = {"version": version or 0, "actor": tx.caller.actor, "now_us": tx.now_us()}
    gone = tx.maybe(SQL.delete, **asked, **place.named(key))
    if gone is None:
        raise _moved_on(tx, place, key, version)
    return _journal_change(tx, entry(gone), "state.deleted", place)


def look(tx: Tx, place: Place, key: str) -> Entry | None:
    """The stored value; None if there is none or it has expired."""
    row = tx.maybe(SQL.get, **place.named(key))
    return entry(row) if row is not None and live(tx, row) else None


class ValueAtCut(NamedTuple):
    """The value of a key in the journal; None if it was deleted or has expired."""

    entry: Entry | None


def at_cut(tx: Tx, place: Place, key: str, cut_seq: int) -> ValueAtCut | None:
    """A value as it was at the cut of a fork; None if the journal has no entry for the key."""
    event = tx.maybe(SQL.at_cut, subject=place.subject(key), cut_seq=cut_seq)
    if event is None:
        return None
    data = serial.read(event["data"])
    over = data["expires_us"] is not None and data["expires_us"] <= tx.now_us()
    if event["type"] == "state.deleted" or over:
        return ValueAtCut(None)
    if "value" not in data:  # the journal has no copy of a value that expires: use the current row, if it is the same
        found = look(tx, place, key)
        return ValueAtCut(found if found is not None and found.version == data["version"] else None)
    value = stored(data["value"], place.namespace, key)
    return ValueAtCut(Entry(*place.keyspace, place.namespace, key, value, data["version"], "", 0, data["expires_us"]))


def expire(tx: Tx, limit: int) -> int:
    """Empty expired values in every scope. Reads skip them anyway."""
    crash.point("state.before_expire")
    gone = tx.all(SQL.expire, now_us=tx.now_us(), limit=limit)
    if gone:
        shown = [f"{row['namespace']}:{row['key']}" for row in gone[:EXPIRED_SHOWN]]
        words = f"{len(gone)} value{'s' * (len(gone) > 1)} whose time is over"
        journal.append(tx, "state.expired", "state", summary=words, data={"count": len(gone), "keys": shown})
    return len(gone)


def verified(tx: Tx, place: Place, key: str, *, version: int, verdict: str, evidence: str | None) -> Entry:
    """Record the verdict of a command about one version. Raises VersionConflict if the version has changed."""
    if verdict not in VERDICTS:
        raise InvalidInput(f"a verdict is {', '.join(VERDICTS)}, not {serial.clean(str(verdict), 40)!r}")
    words = serial.clean(evidence, EVIDENCE_MAX) if evidence else ""
    crash.point("state.before_verdict")
    asked: Row = {"version": version, "now_us": tx.now_us(), "verdict": f"{verdict}: {words}" if words else verdict}
    row = tx.maybe(SQL.verified, **asked, **place.named(key))
    if row is None:
        raise _moved_on(tx, place, key, version)
    found = entry(row)
    receipt = journal.append(
        tx,
        "state.verified",
        place.subject(key),
        session_id=place.session_id,
        state=verdict,
        summary=f"{key} version {version} is {verdict}",
        data={"version": version, "verdict": verdict, "evidence": words or None, "command": found.verify},
        scope=place.keyspace.scope,
        label=place.label,
    )
    return found.replace(receipt=receipt)


def live(tx: Tx, row: Row) -> bool:
    return bool(row["expires_us"] is None or row["expires_us"] > tx.now_us())


def unknown(place: Place, key: str) -> NotFound:
    where = f" in {place.namespace}" if place.namespace else ""
    return NotFound(f"there is no state {key!r}{where} in this scope", "standfast state list")


# -- private functions -------------------------------------------------------------------------------


def _row(tx: Tx, place: Place, key: str, value: serial.Json, wish: Wish) -> Row:
    for_us = checked_term(wish.for_us)
    given = None if wish.json_schema is NOT_GIVEN or wish.json_schema is None else serial.canonical(wish.json_schema)
    giver = None if wish.imported else tx.caller.actor
    return {
        **place.named(key),
        **(tx.caller.label if place.label is None else place.label).as_dict(),
        "value": serial.dumps(value, what="value", limit_bytes=VALUE_MAX_BYTES),
        "actor": tx.caller.actor,
        "now_us": tx.now_us(),
        "expires_us": None if for_us is None else tx.now_us() + for_us,
        "keep_end": int(wish.keep_end),
        "json_schema": given,
        "keep_schema": int(wish.json_schema is NOT_GIVEN),
        "checked": "",
        "verify": None if wish.verify is NOT_GIVEN else command_text(wish.verify, giver),
        "keep_verify": int(wish.verify is NOT_GIVEN),
    }


def _write(tx: Tx, row: Row, version: int | None) -> Row | None:
    if version:
        return tx.maybe(SQL.swap, version=version, **row)
    return tx.maybe(SQL.set, create=int(version == 0), **row)


def _is_version(version: object) -> bool:
    return isinstance(version, int) and not isinstance(version, bool) and 0 <= version <= serial.INT_MAX


def _over(tx: Tx, row: Row, version: int | None) -> bool:
    """Whether a write with this `version` may replace this row."""
    if version is None:
        return True
    return row["version"] == version if live(tx, row) else version == 0


def _journal_change(tx: Tx, made: Entry, type: str, place: Place) -> Entry:
    receipt = journal.append(
        tx,
        type,
        place.subject(made.key),
        session_id=place.session_id,
        summary=f"{made.key} version {made.version}",
        data=_journal_data(made),
        scope=place.keyspace.scope,
        label=place.label,
    )
    return made.replace(receipt=receipt)


def _journal_data(made: Entry) -> dict[str, serial.Json]:
    """The data of the journal entry. It has only a salted hash of a value that expires: the journal stays forever."""
    said: dict[str, serial.Json] = {"version": made.version, "expires_us": made.expires_us}
    if not made.expires_us:
        return {**said, "value": made.value}
    salt = urandom(16).hex()
    return {**said, "salt": salt, "hash": serial.hash([salt, made.value])}


def _moved_on(tx: Tx, place: Place, key: str, version: int | None) -> StandfastError:
    found = look(tx, place, key)
    if found is None:
        return unknown(place, key)
    return VersionConflict(
        f"state {key!r} is at version {found.version} (by {found.agent}), not {version}",
        f"read it again, then swap over version {found.version}",
    )
