"""The part of JSON Schema that standfast checks at each write of a value.

It is small on purpose, because the check runs inside a transaction. `compiled` refuses every keyword that is not in
KEYWORDS, so that no unchecked value looks checked. `pattern` is refused too: matching a regular expression may take
forever. Keywords that only describe (`title`, `format` …) are stored and not checked.
"""

from __future__ import annotations

from operator import ge, gt, le, lt
from typing import Any, NamedTuple

from standfast import hints, serial
from standfast.errors import InvalidInput

SCHEMA_MAX_BYTES = 64 * 1024
WORK_MAX = 20_000
"""Comparisons for one value: references can multiply them."""
DEPTH_MAX = 200
"""Nested comparisons: a reference may lead back to itself."""

DESCRIBING = frozenset(
    (
        *("$schema", "$id", "$comment", "$defs", "definitions", "title", "description", "default", "examples"),
        *("deprecated", "readOnly", "writeOnly", "format", "discriminator"),
    )
)
"""Keywords that are stored and not checked."""
TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")
_BOUNDS = {
    "minimum": ("number", "at least", ge),
    "maximum": ("number", "at most", le),
    "exclusiveMinimum": ("number", "more than", gt),
    "exclusiveMaximum": ("number", "less than", lt),
    "minLength": ("string", "a length of at least", ge),
    "maxLength": ("string", "a length of at most", le),
    "minItems": ("array", "a length of at least", ge),
    "maxItems": ("array", "a length of at most", le),
    "minProperties": ("object", "a size of at least", ge),
    "maxProperties": ("object", "a size of at most", le),
}
"""Each bound: the type of value that it applies to, its words, and the comparison."""
KEYWORDS = {
    **{word: "number" if kind == "number" else "count" for word, (kind, _, _) in _BOUNDS.items()},
    "type": "type",
    "enum": "list",
    "const": "any",
    "uniqueItems": "flag",
    "items": "schema",
    "prefixItems": "schemas",
    "properties": "fields",
    "additionalProperties": "schema",
    "required": "names",
    "$ref": "ref",
    "allOf": "schemas",
    "anyOf": "schemas",
    "oneOf": "schemas",
    "not": "schema",
}
"""Each keyword that is checked, and the form of its value; `fields` is an object of schemas."""


class Schema(NamedTuple):
    """A schema whose keywords are all known."""

    root: Any
    defs: dict[str, Any]


class Misfit(Exception):
    """Which part of a value does not fit, and why."""

    def __init__(self, path: str, fact: str) -> None:
        super().__init__(f"{path}: {fact}" if path else fact)


def compiled(given: serial.Json) -> Schema:
    """Read a schema. Raises InvalidInput that names the first keyword which is unknown or has a wrong form."""
    if not isinstance(given, (dict, bool)):
        raise InvalidInput("a JSON schema is an object, or true or false")
    serial.dumps(given, what="json_schema", limit_bytes=SCHEMA_MAX_BYTES)
    defs: dict[str, Any] = {"#": given}
    for home in ("$defs", "definitions"):
        named = given.get(home, {}) if isinstance(given, dict) else {}
        if not isinstance(named, dict):
            raise _refused(home, "is an object of schemas")
        defs |= {f"#/{home}/{name}": one for name, one in named.items()}
    schema = Schema(given, defs)
    for place, one in defs.items():
        _read(one, place, schema)
    return schema


def check(value: serial.Json, schema: Schema, key: str) -> None:
    """Raises InvalidInput naming the field of `value` that does not fit."""
    try:
        _Check(schema).fit(serial.encode(value), schema.root, "")
    except Misfit as misfit:
        raise InvalidInput(
            f"state {key!r} does not fit its schema: {misfit}",
            f"{hints.command('state', 'get', key, '--json')} shows the schema",
        ) from None


# -- a value ---------------------------------------------------------------------------------------------


class _Check:
    """One comparison of a value with a schema. Its work and its depth are bounded."""

    def __init__(self, schema: Schema) -> None:
        self._defs = schema.defs
        self._work = 0
        self._depth = 0

    def fit(self, value: Any, schema: Any, path: str) -> None:
        """Raises Misfit."""
        self._work += 1
        self._depth += 1
        try:
            if self._work > WORK_MAX or self._depth > DEPTH_MAX:
                raise InvalidInput("this schema takes too many comparisons for this value", "use fewer alternatives")
            if schema is False:
                raise Misfit(path, "no value is allowed here")
            for word, wanted in schema.items() if isinstance(schema, dict) else ():
                self._keyword(word, value, wanted, path, schema)
        finally:
            self._depth -= 1

    def _fits(self, value: Any, schema: Any, path: str) -> bool:
        try:
            self.fit(value, schema, path)
        except Misfit:
            return False
        return True

    def _keyword(self, word: str, value: Any, wanted: Any, path: str, schema: Any) -> None:
        if word in _BOUNDS:
            _check_bound(word, value, wanted, path)
        elif word in ("items", "prefixItems", "uniqueItems"):
            if isinstance(value, list):
                self._array(word, value, wanted, path, schema)
        elif word in ("properties", "additionalProperties", "required"):
            if isinstance(value, dict):
                self._object(word, value, wanted, path, schema)
        else:
            self._any(word, value, wanted, path)

    def _array(self, word: str, value: list[Any], wanted: Any, path: str, schema: Any) -> None:
        if word == "items":
            for number in range(len(schema.get("prefixItems", ())), len(value)):
                self.fit(value[number], wanted, f"{path}[{number}]")
        elif word == "prefixItems":
            for number, (one, inner) in enumerate(zip(value, wanted, strict=False)):
                self.fit(one, inner, f"{path}[{number}]")
        elif wanted and len({_text(one) for one in value}) < len(value):
            raise Misfit(path, "two items are the same")

    def _object(self, word: str, value: dict[str, Any], wanted: Any, path: str, schema: Any) -> None:
        if word == "required":
            for name in wanted:
                if name not in value:
                    raise Misfit(_at(path, name), "the field is required")
        elif word == "properties":
            for name in wanted:
                if name in value:
                    self.fit(value[name], wanted[name], _at(path, name))
        else:
            for name in value.keys() - schema.get("properties", {}).keys():
                if wanted is False:
                    raise Misfit(_at(path, name), "the schema has no such field")
                self.fit(value[name], wanted, _at(path, name))

    def _any(self, word: str, value: Any, wanted: Any, path: str) -> None:
        match word:
            case "type":
                names = [wanted] if isinstance(wanted, str) else wanted
                if not any(_is(value, name) for name in names):
                    found = next(name for name in TYPES if _is(value, name))
                    raise Misfit(path, f"{' or '.join(names)} is wanted, found {found}")
            case "enum":
                if not any(_text(value) == _text(one) for one in wanted):
                    raise Misfit(path, f"{_shown(value)} is not one of {', '.join(_shown(one) for one in wanted[:20])}")
            case "const":
                if _text(value) != _text(wanted):
                    raise Misfit(path, f"{_shown(wanted)} is wanted, found {_shown(value)}")
            case "$ref":
                self.fit(value, self._defs[wanted], path)
            case "allOf":
                for inner in wanted:
                    self.fit(value, inner, path)
            case "anyOf":
                if not any(self._fits(value, inner, path) for inner in wanted):
                    raise Misfit(path, f"{_shown(value)} fits none of the {len(wanted)} alternatives")
            case "oneOf":
                n = sum(self._fits(value, inner, path) for inner in wanted)
                if n != 1:
                    fact = f"{_shown(value)} fits {n} of the {len(wanted)} alternatives, expected one"
                    raise Misfit(path, fact)
            case "not":
                if self._fits(value, wanted, path):
                    raise Misfit(path, f"{_shown(value)} is not allowed here")


def _check_bound(word: str, value: Any, wanted: Any, path: str) -> None:
    kind, words, fits = _BOUNDS[word]
    if not _is(value, kind):
        return
    found = value if kind == "number" else len(value)
    if not fits(found, wanted):
        raise Misfit(path, f"{words} {wanted} is wanted, found {found}")


def _is(value: Any, name: str) -> bool:
    """Whether a value has a type of JSON Schema. An integer may be written 1.0."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    kinds = {"null": type(None), "boolean": bool, "string": str, "array": list, "object": dict}
    match name:
        case "number":
            return number
        case "integer":
            return number and value == int(value)
    return isinstance(value, kinds[name])


# -- a schema --------------------------------------------------------------------------------------------


def _read(schema: Any, path: str, root: Schema) -> None:
    """Check that every keyword is known and well formed, at every depth."""
    if isinstance(schema, bool):
        return
    if not isinstance(schema, dict):
        raise _refused(path, "is a schema: an object, or true or false")
    for word, wanted in schema.items():
        if word in DESCRIBING:
            continue
        if word not in KEYWORDS:
            raise InvalidInput(
                f"json_schema {path}: the keyword {serial.clean(word, 40)!r} is not checked here",
                f"use: {', '.join(KEYWORDS)}",
            )
        _read_keyword(KEYWORDS[word], wanted, f"{path}/{word}", root)


def _read_keyword(form: str, wanted: Any, path: str, root: Schema) -> None:
    fits, words = _formed(form, wanted, root)
    if not fits:
        raise _refused(path, words)
    if form == "schema":
        _read(wanted, path, root)
    elif form in ("schemas", "fields"):
        for name, one in enumerate(wanted) if form == "schemas" else wanted.items():
            _read(one, f"{path}/{name}", root)


def _formed(form: str, wanted: Any, root: Schema) -> tuple[bool, str]:
    """Whether the value of a keyword has the required form, and a description of that form."""
    match form:
        case "type":
            names = wanted if isinstance(wanted, list) else [wanted]
            return bool(names) and all(name in TYPES for name in names), f"is one or some of {', '.join(TYPES)}"
        case "list" | "schemas":
            return isinstance(wanted, list) and bool(wanted), "is a list, and not an empty one"
        case "count":
            return _is(wanted, "number") and isinstance(wanted, int) and wanted >= 0, "is a count"
        case "number":
            return _is(wanted, "number"), "is a number"
        case "flag":
            return isinstance(wanted, bool), "is true or false"
        case "names":
            return isinstance(wanted, list) and all(isinstance(n, str) for n in wanted), "is a list of names"
        case "fields":
            return isinstance(wanted, dict), "is an object of schemas"
        case "ref":
            known = isinstance(wanted, str) and wanted in root.defs
            return known, 'points to "#" or into "#/$defs/", to a schema that is there'
    return True, ""


def _refused(path: str, fact: str) -> InvalidInput:
    return InvalidInput(f"json_schema {serial.clean(path, 120)} {fact}")


# -- private functions -------------------------------------------------------------------------------


def _at(path: str, name: str) -> str:
    return f"{path}.{serial.clean(name, 40)}" if path else serial.clean(name, 40)


def _text(value: Any) -> str:
    """Equal values have equal text; in a schema 1 and 1.0 are the same number."""
    return serial.canonical(_whole(value))


def _whole(value: Any) -> Any:
    if isinstance(value, float) and value == int(value):
        return int(value)
    if isinstance(value, list):
        return [_whole(one) for one in value]
    return {name: _whole(one) for name, one in value.items()} if isinstance(value, dict) else value


def _shown(value: Any) -> str:
    return serial.clean(serial.canonical(value), 60)
