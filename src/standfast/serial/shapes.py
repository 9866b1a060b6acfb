"""The shape of a result. A person who enters a result needs it, because the function that returns it is not loaded
then.

`shape_of` turns a return annotation into a small part of JSON Schema, which is stored with the effect. `misfit` returns
the error of a value, and `template` a value of that shape to edit. A shape accepts more than the decoder. It cannot
express a validator or a range, so it does not check them. Loaded on use.
"""

from __future__ import annotations

import dataclasses
import datetime
import pathlib
import types
import typing
from enum import Enum
from typing import Any

from standfast.errors import InvalidInput
from standfast.serial import Json, Misfit, encoded
from standfast.serial.decoder import _DICTS, _LISTS, _former_names, _hints, _required_keys

_DEPTH_MAX = 6
_ANY: dict[str, Json] = {}
_TEXTS = {datetime.datetime: "date-time", datetime.date: "date", datetime.time: "time"}
_EXAMPLES = {"date-time": "2026-01-31T12:00:00", "date": "2026-01-31", "time": "12:00:00"}
_PLAIN: dict[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean", types.NoneType: "null"}
_NAMES = {
    "string": "text",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
    "array": "a list",
    "object": "an object",
}


def shape_of(annotation: object) -> dict[str, Json] | None:
    """The shape of values of this annotation. None if every value fits."""
    if annotation is None or annotation is types.NoneType:  # decoded as it is: a result may be there or not
        return None
    try:
        return _shape(annotation, _DEPTH_MAX) or None
    except (Misfit, InvalidInput, TypeError, AttributeError, NameError):
        return None  # what cannot be described cannot be asked for; decoding still decides


def misfit(value: Json, shape: dict[str, Any]) -> str | None:
    """The error of `value`, with its path. None if it fits."""
    return _misfit(value, shape, "")


def template(shape: dict[str, Any]) -> Json:
    """A value of this shape, to be edited by a person."""
    if "enum" in shape:
        return shape["enum"][0]
    if "anyOf" in shape:
        return template(next((arm for arm in shape["anyOf"] if arm.get("type") != "null"), _ANY))
    match shape.get("type"):
        case "object":
            return {name: template(shape["properties"][name]) for name in shape.get("required", ())}
        case "array":
            return [template(item) for item in shape.get("prefixItems", ())]
        case "string":
            return _EXAMPLES.get(shape.get("format", ""), "TEXT")
        case "integer" | "number":
            return 0
        case "boolean":
            return True
    return None


# -- shapes of annotations -----------------------------------------------------------------------------


def _shape(hint: Any, depth: int) -> dict[str, Json]:
    if depth == 0 or hint in (Any, object) or isinstance(hint, (str, typing.TypeVar, typing.ForwardRef)):
        return _ANY
    if isinstance(hint, type) and hint in _PLAIN:
        return {"type": _PLAIN[hint]}
    if isinstance(hint, type) and hint in _TEXTS:
        return {"type": "string", "format": _TEXTS[hint]}
    origin = typing.get_origin(hint)
    if origin is not None:
        return _generic(hint, origin, typing.get_args(hint), depth)
    if hasattr(hint, "__supertype__"):
        return _shape(hint.__supertype__, depth)
    if hint in _LISTS or hint is tuple:
        return {"type": "array"}
    if hint in _DICTS:
        return {"type": "object"}
    return _class(hint, depth) if isinstance(hint, type) or typing.is_typeddict(hint) else _ANY


def _generic(hint: Any, origin: Any, args: tuple[Any, ...], depth: int) -> dict[str, Json]:
    if origin is typing.Annotated:
        return _shape(args[0], depth)
    if origin in (typing.Union, types.UnionType):
        arms = [_shape(arm, depth) for arm in args]
        return _ANY if _ANY in arms else {"anyOf": arms}
    if origin is typing.Literal:
        return {"enum": [encoded(arg) for arg in args]}
    if origin in _LISTS or (origin is tuple and len(args) == 2 and args[1] is Ellipsis):
        return {"type": "array", "items": _shape(args[0], depth - 1)}
    if origin is tuple:
        return {"type": "array", "prefixItems": [_shape(arg, depth - 1) for arg in args]}
    if origin in _DICTS:
        return {"type": "object", "additionalProperties": _shape(args[1], depth - 1)}
    return {"type": "object"} if dataclasses.is_dataclass(origin) else _ANY


def _class(hint: Any, depth: int) -> dict[str, Json]:
    if typing.is_typeddict(hint):
        return _object(hint, {name: _shape(one, depth - 1) for name, one in _hints(hint).items()}, _required_keys(hint))
    if issubclass(hint, Enum):
        return {"enum": [encoded(member.value) for member in hint]}
    if callable(getattr(hint, "model_validate_json", None)):
        return _pydantic(hint)
    if dataclasses.is_dataclass(hint):
        return _dataclass(hint, depth)
    if issubclass(hint, tuple) and hasattr(hint, "_fields"):
        hints = _hints(hint)
        return {"type": "array", "prefixItems": [_shape(hints.get(name, Any), depth - 1) for name in hint._fields]}
    if issubclass(hint, pathlib.PurePath) or issubclass(hint, str) or hint.__name__ == "UUID":
        return {"type": "string"}
    return {"type": "number"} if hint is datetime.timedelta else _ANY


def _dataclass(hint: Any, depth: int) -> dict[str, Json]:
    fields = [field for field in dataclasses.fields(hint) if field.init and not _former_names(field)]
    hints = _hints(hint)
    missing = dataclasses.MISSING
    wanted = [one.name for one in fields if one.default is missing and one.default_factory is missing]
    return _object(hint, {one.name: _shape(hints[one.name], depth - 1) for one in fields}, wanted)


def _pydantic(hint: Any) -> dict[str, Json]:
    """The schema that pydantic gives, without the parts behind a reference."""
    own = hint.model_json_schema()
    properties = {
        name: {part: said[part] for part in ("type", "enum", "format") if part in said and "$ref" not in said}
        for name, said in own.get("properties", {}).items()
    }
    return _object(hint, properties, own.get("required", [])) if own.get("type") == "object" else _ANY


def _object(hint: Any, properties: dict[str, Any], required: list[str]) -> dict[str, Json]:
    return {"type": "object", "title": hint.__name__, "properties": properties, "required": list(required)}


# -- comparison ----------------------------------------------------------------------------------------


def _misfit(value: Json, shape: dict[str, Any], path: str) -> str | None:
    if "enum" in shape:
        fits = any(type(value) is type(one) and value == one for one in shape["enum"])
        return None if fits else _said(path, f"one of {', '.join(map(repr, shape['enum']))} is wanted", value)
    if "anyOf" in shape:
        said = [_misfit(value, arm, path) for arm in shape["anyOf"]]
        return None if None in said else said[0]
    kind = shape.get("type")
    if kind is not None and not _is(value, kind):
        title = f" ({shape['title']})" if "title" in shape else ""
        return _said(path, f"{_NAMES.get(kind, kind)}{title} is wanted", value)
    if kind == "object":
        return _object_misfit(value, shape, path)
    return _array_misfit(value, shape, path) if kind == "array" else None


def _object_misfit(value: Any, shape: dict[str, Any], path: str) -> str | None:
    for name in shape.get("required", ()):
        if name not in value:
            return f"{_at(path, name)} is missing"
    rest = shape.get("additionalProperties", _ANY)
    said = (_misfit(one, shape.get("properties", {}).get(name, rest), _at(path, name)) for name, one in value.items())
    return next((one for one in said if one is not None), None)


def _array_misfit(value: Any, shape: dict[str, Any], path: str) -> str | None:
    first = shape.get("prefixItems")
    if first is not None and len(first) != len(value):
        return _said(path, f"{len(first)} items are wanted", value)
    arms = first if first is not None else [shape.get("items", _ANY)] * len(value)
    said = (_misfit(one, arm, f"{path}[{n}]") for n, (one, arm) in enumerate(zip(value, arms, strict=True)))
    return next((one for one in said if one is not None), None)


def _is(value: Json, kind: str) -> bool:
    match kind:
        case "integer":
            return type(value) is int
        case "number":
            return type(value) in (int, float)
        case "boolean":
            return type(value) is bool
        case "null":
            return value is None
        case "string":
            return isinstance(value, str)
        case "array":
            return isinstance(value, list)
        case "object":
            return isinstance(value, dict)
    return True


def _at(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _said(path: str, wanted: str, value: Json) -> str:
    kinds = (kind for kind in ("boolean", "integer", "number", "null", "string", "array", "object") if _is(value, kind))
    found = _NAMES[next(kinds, "object")]
    return f"{path + ': ' if path else ''}{wanted}, found {found}"
