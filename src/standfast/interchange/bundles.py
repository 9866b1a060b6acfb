"""The format of a bundle: its rows of a session, their JSON Schema, and the names of its members.

    bundle.json            manifest: form, origin, sessions, digest of the journal, hash of each member
    README.md timeline.md  for people
    schema.json            JSON Schema of a row of each table
    rows/TABLE.jsonl       rows by the table catalogue, one object a line, keys sorted
    events.jsonl           the journal of the sessions, as CloudEvents 1.0
    diffs/0001.patch       changes of files by tool calls
    artifacts/SHA256       the bytes of an artifact

A bundle leaves out columns that are valid in one store only: sequence numbers, leases, scope and repository, paths,
stored commands and approvals. So a grant is never exported.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from typing import Any

from standfast.db import tables
from standfast.db.columns import LEASE
from standfast.serial.redaction import redacted

FORM = "standfast.bundle/1"
MANIFEST, README, TIMELINE, SCHEMA, EVENTS = "bundle.json", "README.md", "timeline.md", "schema.json", "events.jsonl"
MEMBERS_MAX = 10_000
BYTES_MAX = 1 << 30
RATIO_MAX = 100
ROWS_MAX = 20_000
"""The most rows of one bundle, because an import writes them in one transaction."""

BY_SESSION = {
    "session": "id",
    "node": "session_id",
    "message": "session_id",
    "step": "session_id",
    "effect": "session_id",
    "decision": "session_id",
    "state": "namespace",
    "checkpoint": "session_id",
    "tool_call": "session_id",
    "usage": "session_id",
    "artifact": "session_id",
}
"""The tables of a bundle and their column with the session's id. A row refers only to rows of earlier tables."""
_LOCAL = {
    *(set(LEASE.split()) - {"actor"}),
    *("seq", "fence", "scope", "repository", "git_dir", "origin", "import_seq", "import_offset", "uri", "verify"),
    *("verified_us", "verdict", "expires_us", "command", "cwd", "approval_id", "task_id", "retry_at_us", "gave_up_us"),
}
_OF_STORE = {
    "session": {"state", "reason", "openings", "actor", "updated_us", "ended_us"},
    "artifact": {"created_us", "actor"},
}
"""More columns that are left out, because the import sets them."""
UNIQUE = {
    "session": (("id",), ("key",)),
    "node": (("id",), ("session_id", "parent_id", "name")),
    "message": (("id",), ("node_id", "position"), ("node_id", "key"), ("native",)),
    "step": (("id",), ("session_id", "name", "arguments_hash", "n")),
    "effect": (("id",), ("key",)),
    "decision": (("id",), ("session_id", "identity", "n")),
    "state": (("namespace", "key"),),
    "checkpoint": (("id",),),
    "tool_call": (("id",), ("session_id", "call_id")),
    "usage": (("id",), ("response",)),
    "artifact": (("id",), ("digest", "name", "kind")),
}
"""The columns that are unique across rows."""
_NAME = re.compile(rf"rows/(?:{'|'.join(BY_SESSION)})\.jsonl|diffs/\d{{4}}\.patch|artifacts/[0-9a-f]{{64}}")
_JSON_TYPES = {"TEXT": "string", "BIGINT": "integer"}


@cache
def columns(table: str) -> tuple[str, ...]:
    """The columns of a table that are in a bundle."""
    own = next(one.columns for one in tables.tables() if one.name == table)
    return tuple(name for name in own if name not in _LOCAL | _OF_STORE.get(table, set()))


def is_member(name: str) -> bool:
    return name in (MANIFEST, README, TIMELINE, SCHEMA, EVENTS) or _NAME.fullmatch(name) is not None


@cache
def schema() -> dict[str, Any]:
    """The JSON Schema of the rows of each table, generated from the schema of the store. Other fields are ignored."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": FORM,
        "title": "Rows of a standfast bundle: rows/TABLE.jsonl has objects of $defs/TABLE",
        "$defs": {table: _table(table) for table in BY_SESSION},
    }


def _table(table: str) -> dict[str, Any]:
    rules = tables.rules(table)
    properties: dict[str, Any] = {}
    for name in columns(table):
        type = _JSON_TYPES[rules[name].type]
        properties[name] = {"type": type if rules[name].required else [type, "null"]}
        if rules[name].choices:
            properties[name]["enum"] = list(rules[name].choices)
    required = [name for name in properties if rules[name].required]
    return {"type": "object", "properties": properties, "required": required}


def line(fields: Mapping[str, Any]) -> str:
    """A row as one line of JSON: sorted keys, no empty fields, redacted."""
    said = {name: value for name, value in fields.items() if value is not None}
    return redacted(json.dumps(said, sort_keys=True, ensure_ascii=False)) + "\n"


def content_hash(members: Mapping[str, str]) -> str:
    """The hash of rows and artifacts. It is the same in every store."""
    own = {name: hash for name, hash in members.items() if name.startswith(("rows/", "artifacts/"))}
    return sha256(json.dumps(own, sort_keys=True).encode()).hexdigest()
