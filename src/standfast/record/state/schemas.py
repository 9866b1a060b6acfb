"""The part of JSON Schema that is checked at each write of a value.

Small on purpose: code inside a transaction has to end soon, and an unchecked value must not
look as if it were. A keyword that is not in the tables below is refused by its name when the
schema is given. `pattern` is among those: a regular expression can take permanently. Keywords that
say nothing about validity (`title`, `description`, `format` …) are kept and not checked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from standfast import hints, serial
from standfast.errors import InvalidInput

SCHEMA_MAX_BYTES = 64 * 1024
WORK_MAX = 20_000
"""Comparisons of one value at most: references can multiply."""
DEPTH_MAX = 200
"""Comparisons inside one another: a reference may lead back to itself."""

SAYS_NOTHING = frozenset(
    [
        "$schema",
        "$id",
        "$comment",
        "$defs",
        "definitions",
        "title",
        "description",
        "default",
        "examples",
        "deprecated",
        "readOnly",
        "writeOnly",
        "format",
        "discriminator",
    ]
)
TYPES: dict[str, Callable[[Any], bool]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: isinstance(value, (int, float)) and not isinstance(value, bool) and value == int(value),
    "number": lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
    "string": lambda value: isinstance(value, str),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}


class Schema(NamedTuple):
    """A schema that was read to its end: every keyword in it is one of ours."""

    root: Any
    defs: dict[str, Any]


class Misfit(Exception):
    """Where a value does not fit, and why."""

    def __init__(self, path: str, fact: str) -> None:
        super().__init__(f"{path or 'it'}: {fact}" if path else fact)
        self.path = path


def compiled(given: serial.Json) -> Schema:
    """A schema whose every keyword is checked here. Raises InvalidInput naming the first one that is not."""
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
    """One comparison of a value with a schema, with a bound on its work."""

    def __init__(self, schema: Schema) -> None:
        self._defs = schema.defs
        self._work = 0
        self._depth = 0

    def fit(self, value: Any, schema: Any, path: str) -> None:
        self._depth += 1
        try:
            self._fit(value, schema, path)
        finally:
            self._depth -= 1

    def _fit(self, value: Any, schema: Any, path: str) -> None:
        self._work += 1
        if self._work > WORK_MAX or self._depth > DEPTH_MAX:
            raise InvalidInput("this schema takes too many comparisons for this value", "use fewer alternatives")
        if schema is False:
            raise Misfit(path, "nothing may be here")
        for word, wanted in schema.items() if isinstance(schema, dict) else ():
            if word in KEYWORDS:
                KEYWORDS[word].check(self, value, wanted, path, schema)

    def fits(self, value: Any, schema: Any, path: str) -> bool:
        try:
            self.fit(value, schema, path)
        except Misfit:
            return False
        return True

    def ref(self, value: Any, name: str, path: str) -> None:
        self.fit(value, self._defs[name], path)


def _type(run: _Check, value: Any, wanted: Any, path: str, schema: Any) -> None:
    names = [wanted] if isinstance(wanted, str) else wanted
    if not any(TYPES[name](value) for name in names):
        raise Misfit(path, f"{' or '.join(names)} is wanted, found {_type_of(value)}")


def _type_of(value: Any) -> str:
    return next(name for name, fits in TYPES.items() if fits(value))


def _enum(run: _Check, value: Any, wanted: Any, path: str, schema: Any) -> None:
    if not any(_same(value, one) for one in wanted):
        raise Misfit(path, f"{_shown(value)} is not one of {', '.join(_shown(one) for one in wanted[:20])}")


def _const(run: _Check, value: Any, wanted: Any, path: str, schema: Any) -> None:
    if not _same(value, wanted):
        raise Misfit(path, f"{_shown(wanted)} is wanted, found {_shown(value)}")


def _bound(words: str, of: Callable[[Any], Any], fits: Callable[[Any, Any], bool], kind: str) -> Callable[..., None]:
    def check(run: _Check, value: Any, wanted: Any, path: str, schema: Any) -> None:
        if TYPES[kind](value) and not fits(of(value), wanted):
            raise Misfit(path, f"{words} {wanted} is wanted, found {of(value)}")

    return check


def _unique(run: _Check, value: Any, wanted: Any, path: str, schema: Any) -> None:
    if wanted and isinstance(value, list) and len({_text(one) for one in value}) < len(value):
        raise Misfit(path, "two items are the same")


def _items(run: _Check, value: Any, wanted: Any, path: str, schema: Any) -> None:
    if isinstance(value, list):
        for number in range(len(schema.get("prefixItems", ())), len(value)):
            run.fit(value[number], wanted, f"{path}[{number}]")


def _prefix_items(run: _Check, value: Any, wanted: Any, path: str, schema: Any) -> None:
    if isinstance(value, list):
        for number, (one, inner) in enumerate(zip(value, wanted, strict=False)):
            run.fit(one, inner, f"{path}[{number}]")


def _properties(run: _Check, value: Any, wanted: Any, path: str, schema: Any) -> None:
    if isinstance(value, dict):
        for name in wanted:
            if name in value:
                run.fit(value[name], wanted[name], _at(path, name))


def _additional(run: _Check, value: Any, wanted: Any, path: str, schema: Any) -> None:
    if isinstance(value, dict):
        for name in value.keys() - schema.get("properties", {}).keys():
            if wanted is False:
                raise Misfit(_at(path, name), "the schema has no such field")
            run.fit(value[name], wanted, _at(path, name))


def _required(run: _Check, value: Any, wanted: Any, path: str, schema: Any) -> None:
    if isinstance(value, dict):
        for name in wanted:
            if name not in value:
                raise Misfit(_at(path, name), "it is required, and not there")


def _ref(run: _Check, value: Any, wanted: Any, path: str, schema: Any) -> None:
    run.ref(value, wanted, path)


def _all_of(run: _Check, value: Any, wanted: Any, path: str, schema: Any) -> None:
    for inner in wanted:
        run.fit(value, inner, path)


def _any_of(run: _Check, value: Any, wanted: Any, path: str, schema: Any) -> None:
    if not any(run.fits(value, inner, path) for inner in wanted):
        raise Misfit(path, f"{_shown(value)} fits none of the {len(wanted)} alternatives")


def _one_of(run: _Check, value: Any, wanted: Any, path: str, schema: Any) -> None:
    found = sum(run.fits(value, inner, path) for inner in wanted)
    if found != 1:
        raise Misfit(path, f"{_shown(value)} fits {found} of the {len(wanted)} alternatives, and one is wanted")


def _not(run: _Check, value: Any, wanted: Any, path: str, schema: Any) -> None:
    if run.fits(value, wanted, path):
        raise Misfit(path, f"{_shown(value)} is not allowed here")


# -- a schema --------------------------------------------------------------------------------------------


class Keyword(NamedTuple):
    """How a keyword is written, and how a value is compared with it."""

    form: str
    """type, any, list, count, number, flag, names, ref, schema, schemas (a list) or fields (an object)."""
    check: Callable[..., None]


KEYWORDS: dict[str, Keyword] = {
    "type": Keyword("type", _type),
    "enum": Keyword("list", _enum),
    "const": Keyword("any", _const),
    "minimum": Keyword("number", _bound("at least", lambda n: n, lambda n, m: bool(n >= m), "number")),
    "maximum": Keyword("number", _bound("at most", lambda n: n, lambda n, m: bool(n <= m), "number")),
    "exclusiveMinimum": Keyword("number", _bound("more than", lambda n: n, lambda n, m: bool(n > m), "number")),
    "exclusiveMaximum": Keyword("number", _bound("less than", lambda n: n, lambda n, m: bool(n < m), "number")),
    "minLength": Keyword("count", _bound("a length of at least", len, lambda n, m: bool(n >= m), "string")),
    "maxLength": Keyword("count", _bound("a length of at most", len, lambda n, m: bool(n <= m), "string")),
    "minItems": Keyword("count", _bound("a length of at least", len, lambda n, m: bool(n >= m), "array")),
    "maxItems": Keyword("count", _bound("a length of at most", len, lambda n, m: bool(n <= m), "array")),
    "minProperties": Keyword("count", _bound("a size of at least", len, lambda n, m: bool(n >= m), "object")),
    "maxProperties": Keyword("count", _bound("a size of at most", len, lambda n, m: bool(n <= m), "object")),
    "uniqueItems": Keyword("flag", _unique),
    "items": Keyword("schema", _items),
    "prefixItems": Keyword("schemas", _prefix_items),
    "properties": Keyword("fields", _properties),
    "additionalProperties": Keyword("schema", _additional),
    "required": Keyword("names", _required),
    "$ref": Keyword("ref", _ref),
    "allOf": Keyword("schemas", _all_of),
    "anyOf": Keyword("schemas", _any_of),
    "oneOf": Keyword("schemas", _one_of),
    "not": Keyword("schema", _not),
}


def _read(schema: Any, path: str, root: Schema) -> None:
    """Every keyword is known and well formed, all the way down."""
    if isinstance(schema, bool):
        return
    if not isinstance(schema, dict):
        raise _refused(path, "is a schema: an object, or true or false")
    for word, wanted in schema.items():
        if word in SAYS_NOTHING:
            continue
        if word not in KEYWORDS:
            raise InvalidInput(
                f"json_schema {path}: the keyword {serial.clean(word, 40)!r} is not checked here",
                f"use: {', '.join(KEYWORDS)}",
            )
        _read_keyword(KEYWORDS[word].form, wanted, f"{path}/{word}", root)


def _read_keyword(form: str, wanted: Any, path: str, root: Schema) -> None:
    fact = _misformed(form, wanted, root)
    if fact is not None:
        raise _refused(path, fact)
    inner = [wanted] if form == "schema" else wanted if form == "schemas" else ()
    for number, one in enumerate(inner):
        _read(one, path if form == "schema" else f"{path}/{number}", root)
    for name, one in wanted.items() if form == "fields" else ():
        _read(one, f"{path}/{name}", root)


def _misformed(form: str, wanted: Any, root: Schema) -> str | None:
    match form:
        case "type":
            names = wanted if isinstance(wanted, list) else [wanted]
            fits, words = bool(names) and all(n in TYPES for n in names if isinstance(n, str)), ", ".join(TYPES)
            return None if fits and all(isinstance(n, str) for n in names) else f"is one or some of {words}"
        case "list" | "schemas":
            return None if isinstance(wanted, list) and wanted else "is a list, and not an empty one"
        case "count":
            return None if isinstance(wanted, int) and not isinstance(wanted, bool) and wanted >= 0 else "is a count"
        case "number":
            return None if TYPES["number"](wanted) else "is a number"
        case "flag":
            return None if isinstance(wanted, bool) else "is true or false"
        case "names":
            return (
                None if isinstance(wanted, list) and all(isinstance(n, str) for n in wanted) else "is a list of names"
            )
        case "fields":
            return None if isinstance(wanted, dict) else "is an object of schemas"
        case "ref":
            known = isinstance(wanted, str) and wanted in root.defs
            return None if known else 'points to "#" or into "#/$defs/", to something that is there'
        case _:
            return None


def _refused(path: str, fact: str) -> InvalidInput:
    return InvalidInput(f"json_schema {serial.clean(path, 120)} {fact}")


# -- small parts -------------------------------------------------------------------------------------


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


def _same(one: Any, other: Any) -> bool:
    return _text(one) == _text(other)


def _shown(value: Any) -> str:
    return serial.clean(serial.canonical(value), 60)
