"""opencode: a SQLite database (since 1.2), and before that a tree of small JSON files. Both are read.

opencode changes rows and files in place: the part of a tool call goes from running to completed. So the number of rows
and the newest change identify a source, and the import compares changed rows with the stored ones. It reads only three
tables of the database, because other tables hold credentials.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from standfast.db.sqlite import foreign
from standfast.errors import InvalidInput
from standfast.interchange.hooks.payloads import word_set
from standfast.interchange.transcripts.files import (
    DOCUMENT_MAX_BYTES,
    FILE_MAX_S,
    Importer,
    Piece,
    Place,
    Reader,
    Record,
    document,
    in_pieces,
)
from standfast.interchange.transcripts.model import (
    Batch,
    Folded,
    Spot,
    Thread,
    Used,
    integer,
    mapping,
    mappings,
    moment,
    name_of,
    number,
    short_id,
    string,
    text_of,
)
from standfast.serial.redaction import redacted

STATUS = {"completed": "ok", "error": "error", "running": "unknown", "pending": "unknown"}
KNOWN = word_set("text reasoning tool step-start step-finish file patch compaction subtask snapshot agent retry")


class Opencode(Importer):
    agent = "opencode"
    in_place = True

    def roots(self, environ: Mapping[str, str]) -> list[str]:
        data = environ.get("XDG_DATA_HOME") or os.path.join(os.path.expanduser("~"), ".local", "share")
        return [os.path.join(data, "opencode")]

    def find(self, root: str) -> Iterator[str]:
        if os.path.isfile(root) or _is_tree(root):
            yield root
            return
        for directory, below, names in os.walk(root, followlinks=False):
            if "opencode.db" in names:
                yield os.path.join(directory, "opencode.db")
            for name in sorted(below):
                if _is_tree(os.path.join(directory, name)):
                    yield os.path.join(directory, name)
            below[:] = sorted(name for name in below if not _is_tree(os.path.join(directory, name)))

    def reader(self, path: str, carry: dict[str, Any], counts: dict[str, Any]) -> Reader:
        return _Reader(path, carry, counts)

    def again(self, carry: dict[str, Any]) -> dict[str, Any]:
        """After a complete import of a database, the next one reads only newer rows."""
        return {"since": carry.get("upto_ms", carry.get("since", 0)), "parents": carry.get("parents", {})}

    def look(self, path: str, head_bytes: int | None = None) -> Place:
        if os.path.isdir(path):
            return _look_at_tree(path)
        if not _is_database(path):
            found = super().look(path, head_bytes)
            with open(path, "rb") as file:
                return found._replace(head=f"0:{hashlib.sha256(file.read(DOCUMENT_MAX_BYTES)).hexdigest()}")
        found_stat = os.stat(path)
        with _opened(path) as database:
            (sums,) = database.rows(
                "SELECT (SELECT count(*) FROM message) AS messages, (SELECT count(*) FROM part) AS parts,"
                " max((SELECT coalesce(max(time_updated), 0) FROM message),"
                " (SELECT coalesce(max(time_updated), 0) FROM part),"
                " (SELECT coalesce(max(time_updated), 0) FROM session)) AS updated"
            )
        head = f"0:{sums['messages']}:{sums['parts']}:{sums['updated']}"
        size = max(found_stat.st_size, 2 * sums["messages"] + 10_000_000)
        return Place(f"{found_stat.st_dev}:{found_stat.st_ino}", head, size, found_stat.st_mtime_ns // 1000)

    def pieces(self, path: str, start: int, carry: Mapping[str, Any], *, redact: bool) -> Iterator[Piece]:
        total = self.look(path).size_bytes
        if os.path.isdir(path):
            values = _from_tree(path, redact=redact)
        elif _is_database(path):
            values = _from_database(path, int(carry.get("since", 0)), redact=redact)
        else:
            values = _from_export(path, redact=redact)
        yield from in_pieces(((n, value) for n, value in enumerate(values) if n >= start), total=total)


# -- sources of records ----------------------------------------------------------------------------------------


def _is_tree(path: str) -> bool:
    return os.path.isdir(os.path.join(path, "session")) and os.path.isdir(os.path.join(path, "message"))


def _is_database(path: str) -> bool:
    with open(path, "rb") as file:
        return file.read(16) == b"SQLite format 3\x00"


TABLES = ("session", "message", "part")


@contextmanager
def _opened(path: str) -> Iterator[foreign.ForeignDatabase]:
    """The database. Raises InvalidInput unless the three names are tables: a query of a view may never end."""
    with foreign.opened(path, within_s=FILE_MAX_S) as database:
        for table in TABLES:
            if not database.has(table):
                raise InvalidInput(f"{path} has no table {table!r}: it is not a database of opencode")
        yield database


def _look_at_tree(path: str) -> Place:
    count = size = newest = 0
    for name in ("session", "message", "part"):
        for directory, below, names in os.walk(os.path.join(path, name), followlinks=False):
            below.sort()
            for file in names:
                found = os.stat(os.path.join(directory, file))
                count, size, newest = count + 1, size + found.st_size, max(newest, found.st_mtime_ns)
    own = os.stat(path)
    return Place(f"{own.st_dev}:{own.st_ino}", f"0:{count}:{size}:{newest}", max(size, 10 * count), newest // 1000)


def _from_tree(path: str, *, redact: bool) -> Iterator[dict[str, Any]]:
    flat = _flat_parts(os.path.join(path, "part"), redact=redact)
    sessions = [value for value in _files(os.path.join(path, "session"), redact=redact) if value.get("id")]
    yield from ({"session": session} for session in sessions)
    folder = os.path.join(path, "message")
    for directory in sorted(os.listdir(folder)):
        for message in _files(os.path.join(folder, directory), redact=redact):
            id = message.get("id")
            own = os.path.join(path, "part", os.path.basename(str(id)))
            parts = list(_files(own, redact=redact)) if os.path.isdir(own) else flat.get(str(id), [])
            yield {"message": {"sessionID": directory, **message}, "parts": parts}


def _flat_parts(folder: str, *, redact: bool) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
        path = os.path.join(folder, name)
        if os.path.isfile(path):
            part = document(path, redact=redact)
            if isinstance(part, dict):
                found.setdefault(str(part.get("messageID")), []).append(part)
    return found


def _files(folder: str, *, redact: bool) -> Iterator[dict[str, Any]]:
    for directory, below, names in os.walk(folder, followlinks=False):
        below.sort()
        for name in sorted(names):
            path = os.path.join(directory, name)
            if name.endswith(".json") and not os.path.islink(path):
                value = document(path, redact=redact)
                if isinstance(value, dict):
                    yield value


def _from_export(path: str, *, redact: bool) -> Iterator[dict[str, Any]]:
    """The records of a file that `opencode export` wrote."""
    value = document(path, redact=redact)
    if not isinstance(value, dict) or not isinstance(value.get("messages"), list):
        raise InvalidInput(f"{path} is neither a database nor an export of opencode")
    if isinstance(value.get("info"), dict):
        yield {"session": value["info"]}
    for message in mappings(value["messages"]):
        if isinstance(message.get("info"), dict):
            yield {"message": message["info"], "parts": message.get("parts")}


def _from_database(path: str, since_ms: int, *, redact: bool) -> Iterator[dict[str, Any]]:
    with _opened(path) as database:
        newest = since_ms
        for row in database.rows(
            "SELECT id, parent_id, directory, title, version, time_created, time_updated FROM session ORDER BY id"
        ):
            newest = max(newest, row["time_updated"] or 0)
            time = {"created": row["time_created"]}
            session = {"id": row["id"], "parentID": row["parent_id"], "directory": row["directory"], "time": time}
            yield {"session": _clean(session | {"title": row["title"], "version": row["version"]}, redact=redact)}
        for row in database.rows(
            "SELECT m.id, m.session_id, m.time_created, m.data, max(m.time_updated,"
            " coalesce((SELECT max(p.time_updated) FROM part p WHERE p.message_id = m.id), 0)) AS updated"
            " FROM message m WHERE m.time_updated >= ?1 OR m.id IN"
            " (SELECT p.message_id FROM part p WHERE p.time_updated >= ?1) ORDER BY m.session_id, m.id",
            (since_ms,),
        ):
            newest = max(newest, row["updated"] or 0)
            message = _loaded(row["data"]) | {"id": row["id"], "sessionID": row["session_id"]}
            message.setdefault("time", {"created": row["time_created"]})
            parts = [
                _loaded(part["data"]) | {"id": part["id"]}
                for part in database.rows("SELECT id, data FROM part WHERE message_id = ? ORDER BY id", (row["id"],))
            ]
            yield _clean({"message": message, "parts": parts}, redact=redact)
        yield {"end": newest}


def _loaded(text: Any) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        return {}
    return mapping(value)


def _clean(value: dict[str, Any], *, redact: bool) -> dict[str, Any]:
    if not redact:
        return value
    found: dict[str, Any] = json.loads(redacted(json.dumps(value, ensure_ascii=False)))
    return found


# -- messages and calls ------------------------------------------------------------------------------------------


class _Reader(Reader):
    def __init__(self, path: str, carry: dict[str, Any], counts: dict[str, Any]) -> None:
        super().__init__(path, carry, counts)
        self.parents: dict[str, str] = carry.setdefault("parents", {})
        """The session of each sub-agent, and the session that started it."""

    @property
    def native_id(self) -> str | None:
        return None  # a database holds many conversations

    def _thread(self, session: str) -> Thread:
        root, seen = session, 0
        while root in self.parents and seen < 20:
            root, seen = self.parents[root], seen + 1
        return Thread(root) if root == session else Thread(root, name_of(session))

    def read(self, record: Record, batch: Batch) -> None:
        value = record.value
        if not isinstance(value, dict):
            return
        if isinstance(value.get("session"), dict):
            self._session(value["session"], batch)
        elif isinstance(value.get("message"), dict):
            self._message(record, value["message"], value["parts"], batch)
        elif "end" in value:
            self.carry["upto_ms"] = value["end"]

    def _session(self, session: dict[str, Any], batch: Batch) -> None:
        self.count("session", known=True)
        id = short_id(session.get("id"))
        parent = session.get("parentID")
        if isinstance(parent, str) and parent:
            self.parents[id] = short_id(parent)
        thread, title = self._thread(id), string(session.get("title"))
        batch.know(
            thread,
            cwd=string(session.get("directory")),
            started_us=moment(mapping(session.get("time")).get("created")),
            version=string(session.get("version")),
            title=title if thread.node else None,
        )
        if thread.node is None and title is not None:
            batch.titles.append((None, thread, title))

    def _message(self, record: Record, message: dict[str, Any], parts: Any, batch: Batch) -> None:
        self.count("message", known=True)
        thread = self._thread(short_id(message.get("sessionID")))
        at_us = moment(mapping(message.get("time")).get("created")) or self.carry.get("at", 0)
        self.carry["at"] = at_us
        batch.at(at_us)
        spot = Spot(thread, f"opencode:{thread.native}:{short_id(message.get('id'))}", at_us, record.offset)
        texts: list[str] = []
        tools: list[dict[str, Any]] = []
        folded = message.get("summary") is True
        for part in mappings(parts):
            kind = short_id(part.get("type"))
            self.count(f"part/{kind}", known=kind in KNOWN)
            folded |= kind == "compaction"
            if kind == "text" and isinstance(part.get("text"), str):
                texts.append(part["text"])
            elif kind == "tool":
                tools.append(self._tool(part, spot, batch))
        text = "\n".join(texts) or text_of(message.get("content"))
        role = short_id(message.get("role") or "user")
        if text or not tools:
            batch.say(spot, role, text, shown=bool(text) and role in ("user", "assistant"))
        else:
            batch.refer(spot, {"tools": tools})
        if folded:
            batch.folded.append(Folded(thread, spot.native, text or None, None))
        self._usage(message, spot, batch)

    def _tool(self, part: dict[str, Any], spot: Spot, batch: Batch) -> dict[str, Any]:
        state = mapping(part.get("state"))
        time = mapping(state.get("time"))
        call_id = short_id(part.get("callID") or part.get("id"))
        # A call id is unique within its own session, and a sub-agent's session is a node of its parent's.
        call_id = call_id if spot.thread.node is None else f"{spot.thread.node}/{call_id}"
        begun = spot._replace(at_us=moment(time.get("start")) or spot.at_us)
        made = batch.call(begun, call_id, part.get("tool"), state.get("input"))
        status = STATUS.get(state.get("status", ""), "unknown")
        if status != "unknown":
            ended = spot._replace(at_us=moment(time.get("end")) or spot.at_us)
            output = text_of(state.get("output") if status == "ok" else state.get("error"))
            code = integer(mapping(state.get("metadata")).get("exit"))
            batch.answer(ended, call_id, status, output, exit_code=code)
        return made

    def _usage(self, message: dict[str, Any], spot: Spot, batch: Batch) -> None:
        tokens = message.get("tokens")
        if not isinstance(tokens, dict):
            return
        cache = mapping(tokens.get("cache"))
        cost, model = message.get("cost"), message.get("modelID")
        batch.use(
            Used(
                spot.thread,
                spot.native,
                short_id(model) if isinstance(model, str) else None,
                number(tokens.get("input")),
                number(cache.get("read")),
                number(cache.get("write")),
                number(tokens.get("output")),
                number(tokens.get("reasoning")),
                round(cost * 1e6) if isinstance(cost, int | float) and 0 <= cost < 1e9 else None,
                spot.at_us,
                last_wins=True,
            )
        )
