"""The pages of a bundle for people: README.md, timeline.md and the diffs of tool calls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from difflib import unified_diff
from typing import Any

from standfast import serial
from standfast.clock import iso
from standfast.db.contract import Row
from standfast.ids import short

Rows = dict[str, list[Row]]
LISTED_MAX = 200
DIFFS_MAX = 2_000
_ESCAPED = str.maketrans({letter: f"\\{letter}" for letter in "\\`*_[]<>#|"})
_OPEN = ("planned", "dispatched")


def readme(sessions: Sequence[Row], rows: Rows) -> str:
    """Facts, decisions, effects and open ends of each session."""
    lines = ["# Bundle of standfast sessions", ""]
    for one in sessions:
        own = {table: [row for row in found if row.get("session_id") == one["id"]] for table, found in rows.items()}
        lines += [f"## {plain(one['key'])}", "", *_facts(one, own), ""]
        lines += _section("Decisions", (_decision(row) for row in own["decision"]))
        lines += _section("Effects", (_effect(row) for row in own["effect"]))
        lines += _section("Open ends", _open_ends(one, own))
    lines += ["## Read and import", "", _HOW]
    return "\n".join(lines)


_HOW = """\
`rows/` has the rows by table, `schema.json` their JSON Schema, `events.jsonl` the journal as CloudEvents, `diffs/` the
changes of files. Known forms of secrets are replaced by `[redacted:KIND]`.

    standfast import bundle FILE.zip           # as history
    standfast import bundle FILE.zip --take    # to continue the sessions
"""


def _facts(one: Row, own: Rows) -> Iterator[str]:
    state = plain(f"{one['state']}: {one['reason']}" if one["reason"] else one["state"])
    yield f"- state: {state}"
    yield f"- agent: {plain(one['agent'] or '–')}"
    yield f"- from {iso(one['created_us'])} to {iso(one['updated_us'])}"
    counted = ("message", "step", "effect", "decision", "tool_call", "artifact")
    yield "- " + ", ".join(f"{len(own[table]):,} {table.replace('_', ' ')} rows" for table in counted)


def _section(title: str, found: Iterable[str]) -> list[str]:
    lines = list(found)
    more = [f"- … and {len(lines) - LISTED_MAX:,} more in `rows/`"] if len(lines) > LISTED_MAX else []
    return [f"### {title}", "", *lines[:LISTED_MAX], *more, ""] if lines else []


def _decision(row: Row) -> str:
    why = f", because {plain(row['why'])}" if row.get("why") else ""
    outcome = f": {plain(row['outcome'])}" if row.get("outcome") else ""
    return f"- {plain(row['what'])}{why} ({row['state']}{outcome}, {short(row['id'])})"


def _effect(row: Row) -> str:
    state = "in doubt or running" if row["state"] == "dispatched" else row["state"]
    ref = f", {plain(row['external_ref'])}" if row.get("external_ref") else ""
    return f"- {plain(row['tool'])} {plain(row['key'])}: {state}{ref} ({short(row['id'])})"


def _open_ends(one: Row, own: Rows) -> Iterator[str]:
    if one["state"] in ("active", "waiting"):
        yield f"- the session is {one['state']}"
    yield from (f"- effect {short(row['id'])} is {row['state']}" for row in own["effect"] if row["state"] in _OPEN)
    yield from (f"- decision {short(row['id'])} is open" for row in own["decision"] if row["state"] == "open")


def timeline(events: Iterable[Row]) -> str:
    lines = ["# Timeline", ""]
    for row in events:
        summary = f": {plain(row['summary'])}" if row["summary"] else ""
        lines.append(f"- {iso(row['time_us'])} {plain(row['actor'])} {row['type']} ({row['source']}){summary}")
    return "\n".join(lines) + "\n"


def plain(text: str) -> str:
    """The text as one line, with Markdown escaped."""
    return serial.clean(text, 300).translate(_ESCAPED)


def diffs(calls: Iterable[Row]) -> Iterator[str]:
    """The changes of files by tool calls, as diffs: edits, new files and patches."""
    for row in calls:
        made = serial.read(row["input"]) if row.get("input") else None
        if row["status"] != "error" and isinstance(made, dict) and (text := _diff(made)):
            yield text if text.endswith("\n") else text + "\n"


def _diff(made: dict[str, Any]) -> str:
    path = made.get("file_path") or made.get("path") or made.get("filePath")
    new = made.get("new_string", made.get("newString", made.get("content")))
    if isinstance(path, str) and isinstance(new, str):
        old = made.get("old_string", made.get("oldString", ""))
        before, after = (str(text).splitlines() for text in (old, new))
        name = serial.clean(path, 500)
        return "\n".join(unified_diff(before, after, f"a/{name}", f"b/{name}", lineterm=""))
    for value in made.values():
        if isinstance(value, str) and value.lstrip().startswith(("*** Begin Patch", "diff --git ", "--- ")):
            return value
    return ""
