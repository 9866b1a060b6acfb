"""A specification: TOML or JSON in four sections, read and checked without a store.

Every problem is collected with its place in the file, so that `--preflight` lists all of them: an unknown section or
field, a wrong type, a value that its resource would refuse, a duplicate entry, or tasks that wait for each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from standfast import serial
from standfast.clock import parse_duration
from standfast.config.scope import Keyspace
from standfast.errors import InvalidInput
from standfast.ledger import gates
from standfast.record.apply.models import Item
from standfast.record.loops.resource import wanted
from standfast.record.state import schemas
from standfast.record.state.models import VALUE_MAX_BYTES, Place, checked_term, command_text
from standfast.record.state.values import Wish
from standfast.record.tasks import sightings

SPEC_MAX_BYTES = 1024 * 1024
ITEMS_MAX = 300
"""The most entries of one file, because they are one transaction."""
NEEDS_MAX = 100

FIELDS: dict[str, dict[str, str]] = {
    "tasks": {
        **dict.fromkeys(("title", "name", "body", "kind", "source", "fingerprint", "branch", "assignee"), "text"),
        "parent": "text",
        "needs": "texts",
        "priority": "number",
        "labels": "texts",
        "cool_down": "duration",
        "due": "moment",
    },
    "loops": {
        **dict.fromkeys(("name", "every", "cron", "zone", "catch_up", "overlap", "cwd"), "text"),
        **dict.fromkeys(("catch_up_max", "retries_max", "failures_max"), "number"),
        "command": "texts",
        "at": "moment",
        "backoff": "duration",
        "timeout": "duration",
        "environment": "object",
    },
    "state": {
        "key": "text",
        "namespace": "text",
        "value": "anything",
        "for": "duration",
        "json_schema": "anything",
        "verify": "text",
    },
    "gates": {"pattern": "text", "need": "text", "why": "text", "global": "flag"},
}
REQUIRED = {"tasks": ("title",), "loops": ("name", "command"), "state": ("key", "value"), "gates": ("pattern",)}


class Spec(NamedTuple):
    """The entries of a file, its problems, and its hash."""

    items: tuple[Item, ...]
    problems: tuple[str, ...]
    hash: str

    def of(self, section: str) -> list[Item]:
        return [item for item in self.items if item.section == section]


class _Misfit(Exception):
    """One entry that cannot be used."""


def read_text(text: bytes, *, what: str, form: str | None = None) -> Spec:
    """Read TOML; or JSON, if the name ends with .json or the text begins with {. Raises InvalidInput with the line."""
    if len(text) > SPEC_MAX_BYTES:
        raise InvalidInput(f"{what}: {len(text):,} bytes, and the limit is {SPEC_MAX_BYTES:,}", "split it")
    form = form or ("json" if what.endswith(".json") or text.lstrip()[:1] == b"{" else "toml")
    if form == "json":
        return read(serial.loads(text, what=what))
    import tomllib

    try:
        return read(tomllib.loads(text.decode()))
    except UnicodeDecodeError as error:
        line = text[: error.start].count(b"\n") + 1
        raise InvalidInput(f"{what}: line {line} is not UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput(f"{what} is not TOML: {error}", "a file of JSON is named .json") from None


def read_file(path: str) -> Spec:
    """Read a file. Raises InvalidInput with the reason if that fails."""
    try:
        with open(path, "rb") as file:
            return read_text(file.read(SPEC_MAX_BYTES + 1), what=path)
    except OSError as error:
        raise InvalidInput(
            f"{path} cannot be read: {error.strerror}", "name a file, or - for stdin: standfast apply FILE"
        ) from None


def read(document: Any) -> Spec:
    """Check a parsed document. Raises InvalidInput if it is no object; other problems are in the result."""
    plain = serial.encode(document, what="spec")
    if not isinstance(plain, dict):
        raise InvalidInput(f"a specification is an object of sections, not {type(plain).__name__}", _sections())
    items: list[Item] = []
    problems: list[str] = []
    for section, entries in plain.items():
        if section not in FIELDS:
            problems.append(f"{serial.clean(section, 40)!r} is not a section; {_sections()}")
        elif not isinstance(entries, list):
            problems.append(f"{section} is a list of entries, not {_kind(entries)}: [[{section}]] in TOML")
        else:
            _collect(section, entries, items, problems)
    if len(items) > ITEMS_MAX:
        problems.append(f"{len(items)} entries, and the limit is {ITEMS_MAX}: split the file")
    problems += _twice(items)
    problems += _circles([item for item in items if item.section == "tasks"])
    return Spec(tuple(items), tuple(problems), serial.hash(plain, what="spec"))


def _collect(section: str, entries: list[Any], items: list[Item], problems: list[str]) -> None:
    for number, entry in enumerate(entries):
        place = f"{section}[{number}]"
        try:
            fields = _fields(section, entry)
            items.append(_READERS[section](place, fields))
        except (_Misfit, InvalidInput) as misfit:
            fact = misfit.message if isinstance(misfit, InvalidInput) else str(misfit)
            problems.append(f"{place}{_called(entry)}: {fact}")


def _sections() -> str:
    return f"there are: {', '.join(FIELDS)}"


def _called(entry: Any) -> str:
    """The title, name, key or pattern of an entry in parentheses, if it has one."""
    names = ("title", "name", "key", "pattern")
    found = next((entry[n] for n in names if isinstance(entry.get(n), str)), None) if isinstance(entry, dict) else None
    return f" ({serial.clean(found, 60)})" if found else ""


# -- fields ----------------------------------------------------------------------------------------------


def _fields(section: str, entry: Any) -> dict[str, Any]:
    if not isinstance(entry, dict):
        raise _Misfit(f"an entry is an object of fields, not {_kind(entry)}")
    known = FIELDS[section]
    for name in entry:
        if name not in known:
            raise _Misfit(f"there is no field {serial.clean(name, 40)!r}; there are: {', '.join(known)}")
    for name in REQUIRED[section]:
        if name not in entry:
            raise _Misfit(f"{name} is missing")
    return {name: _FORMS[known[name]](name, value) for name, value in entry.items()}


def _kind(value: Any) -> str:
    names: dict[type, str] = {dict: "an object", list: "a list", str: "text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


def _expect(fits: bool, name: str, wanted: str, value: Any) -> Any:
    if not fits:
        raise _Misfit(f"{name} is {wanted}, not {_kind(value)}")
    return value


def _duration(name: str, value: Any) -> int:
    try:
        return parse_duration(_expect(isinstance(value, str), name, 'a duration such as "30m"', value))
    except InvalidInput as error:
        raise _Misfit(f"{name}: {error.message}") from None


def _moment(name: str, value: Any) -> int:
    from datetime import datetime

    text = _expect(isinstance(value, str), name, "a moment", value)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise _Misfit(f"{name}: {serial.clean(text, 40)!r} is not a time such as 2026-11-20T09:00:00Z") from None
    if found.tzinfo is None:
        raise _Misfit(f"{name}: {serial.clean(text, 40)!r} has no time zone: end it with Z or +01:00")
    return round(found.timestamp() * 1_000_000)


_FORMS: dict[str, Callable[[str, Any], Any]] = {
    "text": lambda name, value: _expect(isinstance(value, str), name, "text", value),
    "number": lambda name, value: _expect(type(value) is int, name, "a whole number", value),
    "flag": lambda name, value: _expect(isinstance(value, bool), name, "true or false", value),
    "texts": lambda name, value: _expect(
        isinstance(value, list) and all(isinstance(one, str) for one in value), name, "a list of texts", value
    ),
    "object": lambda name, value: _expect(isinstance(value, dict), name, "an object", value),
    "anything": lambda name, value: value,
    "duration": _duration,
    "moment": _moment,
}


# -- entries, checked by their resources ---------------------------------------------------------------------


def _task(place: str, fields: dict[str, Any]) -> Item:
    renamed = {"cool_down": "cool_down_us", "due": "due_us"}
    told = {renamed.get(name, name): value for name, value in fields.items() if name not in ("name", "parent", "needs")}
    if len(fields.get("needs", ())) > NEEDS_MAX:
        raise _Misfit(f"needs names {len(fields['needs'])} others, and the limit is {NEEDS_MAX}")
    report = sightings.report(told.pop("title"), source=told.pop("source", ""), **told)
    return Item("tasks", place, report.title, report, fields)


def _loop(place: str, fields: dict[str, Any]) -> Item:
    renamed = {"at": "at_us", "backoff": "backoff_us", "timeout": "timeout_us"}
    told = {renamed.get(name, name): value for name, value in fields.items()}
    made = wanted(told.pop("name"), told.pop("command"), **told)
    return Item("loops", place, made.name, made, fields)


def _state(place: str, fields: dict[str, Any]) -> Item:
    key = fields["key"]
    Place(Keyspace(), fields.get("namespace", "")).named(key)
    serial.dumps(fields["value"], what="value", limit_bytes=VALUE_MAX_BYTES)
    wish: dict[str, Any] = {"for_us": checked_term(fields.get("for"))}
    if "json_schema" in fields:
        schemas.check(fields["value"], schemas.compiled(fields["json_schema"]), key)
        wish["json_schema"] = fields["json_schema"]
    if "verify" in fields:
        command_text(fields["verify"], None)
        wish["verify"] = fields["verify"]
    namespace = fields.get("namespace", "")
    return Item("state", place, f"{namespace}:{key}" if namespace else key, Wish(**wish), fields)


def _gate(place: str, fields: dict[str, Any]) -> Item:
    made = {
        "pattern": gates.checked_pattern(fields["pattern"]),
        "need": gates.checked_need(fields.get("need", "approval")),
        "why": gates.checked_why(fields.get("why")),
    }
    return Item("gates", place, made["pattern"] or "", made, fields)


_READERS: dict[str, Callable[[str, dict[str, Any]], Item]] = {
    "tasks": _task,
    "loops": _loop,
    "state": _state,
    "gates": _gate,
}


# -- relations between entries ---------------------------------------------------------------------------


def identity(item: Item) -> str:
    """The identity of an entry: two entries of a section may not have the same."""
    if item.section == "tasks":
        return str(item.wanted.fingerprint)
    return f"{item.name} global" if item.given.get("global") else item.name


def _twice(items: list[Item]) -> Iterator[str]:
    seen: dict[tuple[str, str], str] = {}
    named: dict[str, str] = {}
    for item in items:
        first = seen.setdefault((item.section, identity(item)), item.place)
        if first != item.place:
            yield f"{item.place} ({serial.clean(item.name, 60)}): it is {first} already"
        name = item.given.get("name") if item.section == "tasks" else None
        if name is not None and (other := named.setdefault(name, item.place)) != item.place:
            yield f"{item.place}: the name {serial.clean(name, 60)!r} is that of {other} already"


def local(tasks: list[Item]) -> dict[str, Item]:
    """The tasks of this file by the names it gives them."""
    return {str(item.given["name"]): item for item in tasks if "name" in item.given}


def waits_for(item: Item) -> list[str]:
    """The tasks that an entry waits for. Its parent waits for it, not the other way round."""
    return list(item.given.get("needs", ()))


def _circles(tasks: list[Item]) -> Iterator[str]:
    names = local(tasks)
    edges: dict[str, set[str]] = {item.place: set() for item in tasks}
    for item in tasks:
        edges[item.place] |= {names[name].place for name in waits_for(item) if name in names}
        parent = names.get(item.given.get("parent", ""))
        if parent is not None:
            edges[parent.place].add(item.place)
    settled: set[str] = set()
    while ready := [place for place, others in edges.items() if place not in settled and others <= settled]:
        settled |= set(ready)
    if left := sorted(edges.keys() - settled):
        yield f"{', '.join(left[:5])}: each waits for another one of them"
