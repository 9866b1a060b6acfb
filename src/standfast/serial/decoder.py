"""Decode plain JSON into the type that a function's annotation names.

Code changes while stored results stay, so the reader is tolerant. A missing dataclass field takes its default. A
renamed field (`field(metadata={"was": "old_name"})`) is also read from its old name. An unknown field is ignored, and
`kept` puts it back when the object is written again. The error for a value that does not fit names its path. Nothing is
guessed: text never becomes a number, and only the annotation decides the class, never the stored text.

Loaded on the first typed result; `typing` and `dataclasses` do their slow work here.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import pathlib
import types
import typing
from collections import abc
from collections.abc import Callable
from enum import Enum
from typing import Any

from standfast.errors import InvalidInput
from standfast.serial import Json, Misfit, canonical, encoded, refused

_NOTHING = (None, Any, object, types.NoneType)
_LISTS = (list, abc.Sequence, abc.MutableSequence, abc.Collection, abc.Iterable)
_DICTS = (dict, abc.Mapping, abc.MutableMapping)
_NAMES = {str: "text", int: "an integer", float: "a number", bool: "true or false", list: "a list", dict: "an object"}


def decode(value: Json, annotation: object, what: str) -> Any:
    try:
        return _decode(value, annotation)
    except Misfit as misfit:
        misfit.hint = misfit.hint or "change the value, or the annotation or returns= that it has to fit"
        raise refused(misfit, what) from None


def return_annotation(function: Callable[..., object]) -> Any:
    while isinstance(function, functools.partial):
        function = function.func
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    try:
        hint = getattr(function, "__annotations__", {}).get("return")
        return _resolved(hint, function) if isinstance(hint, str) else hint
    except (NameError, AttributeError, SyntaxError, TypeError) as error:
        name = getattr(function, "__qualname__", repr(function))
        raise InvalidInput(
            f"{name}: its return annotation cannot be resolved: {error}", "name the type in returns="
        ) from None


def _resolved(hint: str, function: Any) -> Any:
    """Resolve only the return annotation. Other annotations may contain names that exist only for type checkers."""
    closure = zip(function.__code__.co_freevars, function.__closure__ or (), strict=False)
    local = {name: cell.cell_contents for name, cell in closure if _filled(cell)}
    holder = types.SimpleNamespace(__annotations__={"return": hint})
    found = typing.get_type_hints(holder, globalns=function.__globals__, localns=local)["return"]
    return None if found is types.NoneType else found


def _filled(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - asking is the only way to know
    except ValueError:
        return False
    return True


def _decode(value: Json, hint: Any) -> Any:
    if hint is types.NoneType:
        return _expect(value, value is None, "null")
    if hint in _NOTHING or isinstance(hint, typing.TypeVar):
        return value
    if isinstance(hint, (str, typing.ForwardRef)):
        raise Misfit(f"the annotation {hint!r} is not resolved", "give the type itself, not its name")
    if isinstance(hint, type) and (scalar := _SCALARS.get(hint)) is not None:
        return scalar(value)
    origin = typing.get_origin(hint)
    if origin is None:
        return _decode_plain_hint(value, hint)
    return _decode_generic(value, hint, origin, typing.get_args(hint))


def _decode_plain_hint(value: Json, hint: Any) -> Any:
    if hasattr(hint, "__supertype__"):  # NewType
        return _decode(value, hint.__supertype__)
    if hint in _LISTS or hint in _DICTS or hint is tuple:
        return _decode_generic(value, hint, hint, ())
    if typing.is_typeddict(hint):
        return _decode_typed_dict(value, hint)
    if isinstance(hint, type):
        return _decode_class(value, hint)
    if hasattr(hint, "__value__"):  # `type X = …`
        return _decode(value, hint.__value__)
    raise _cannot_rebuild(hint)


def _decode_generic(value: Json, hint: Any, origin: Any, args: tuple[Any, ...]) -> Any:
    if origin is typing.Annotated:
        return _decode(value, args[0])
    if origin in (typing.Union, types.UnionType):
        return _decode_union(value, hint, args)
    if origin is typing.Literal:
        return _decode_literal(value, args)
    if origin in _LISTS:
        return _decode_list(value, args[0] if args else Any)
    if origin is tuple:
        return _decode_tuple(value, args)
    if origin in _DICTS:
        return _decode_dict(value, args or (str, Any))
    if hasattr(origin, "__dataclass_fields__"):
        return _decode_dataclass(value, origin, dict(zip(origin.__parameters__, args, strict=False)))
    if hasattr(origin, "__value__"):  # `type X[T] = …`
        return _decode(value, origin.__value__[args])
    raise _cannot_rebuild(hint)


def _decode_class(value: Json, hint: type[Any]) -> Any:
    if issubclass(hint, Enum):
        return _decode_enum(value, hint)
    if callable(getattr(hint, "model_validate_json", None)):
        return _decode_pydantic(value, hint)
    if dataclasses.is_dataclass(hint):
        return _decode_dataclass(value, hint, {})
    if issubclass(hint, pathlib.PurePath):
        return hint(_expect(value, isinstance(value, str), "text"))
    if issubclass(hint, tuple) and hasattr(hint, "_fields"):
        return hint(*_decode_tuple(value, tuple(_hints(hint).get(name, Any) for name in hint._fields)))
    if (hint.__module__, hint.__name__) == ("uuid", "UUID"):  # imported only if it is used
        return _parsed(value, hint, "a UUID")
    for base in (str, int, float):
        if issubclass(hint, base):
            return hint(_SCALARS[base](value))
    raise _cannot_rebuild(hint)


# --- scalars ---------------------------------------------------------------------------------


def _expect(value: Json, fits: bool, wanted: str) -> Json:
    if fits:
        return value
    raise Misfit(f"{wanted} is wanted, found {_found(value)}")


def _found(value: Json) -> str:
    return "null" if value is None else _NAMES.get(type(value), type(value).__name__)


def _decode_float(value: Json) -> float:
    return float(_expect(value, type(value) in (float, int), "a number"))


def _parsed(value: Json, parse: Callable[[Any], Any], wanted: str) -> Any:
    try:
        return parse(_expect(value, isinstance(value, str), wanted))
    except (ValueError, OverflowError) as error:
        raise Misfit(f"{wanted} is wanted: {error}") from None


_SCALARS: dict[Any, Callable[[Json], Any]] = {
    str: lambda value: _expect(value, isinstance(value, str), "text"),
    int: lambda value: _expect(value, type(value) is int, "an integer"),
    bool: lambda value: _expect(value, type(value) is bool, "true or false"),
    float: _decode_float,
    datetime.datetime: lambda value: _parsed(value, datetime.datetime.fromisoformat, "a time in ISO format"),
    datetime.date: lambda value: _parsed(value, datetime.date.fromisoformat, "a date in ISO format"),
    datetime.time: lambda value: _parsed(value, datetime.time.fromisoformat, "a time of day in ISO format"),
    datetime.timedelta: lambda value: datetime.timedelta(seconds=_decode_float(value)),
}


def _decode_enum(value: Json, hint: type[Enum]) -> Enum:
    for member in hint:
        if _same(encoded(member.value), value):
            return member
    try:
        return hint(value)  # combined flags, and what _missing_ knows of old names
    except ValueError:
        wanted = ", ".join(repr(member.value) for member in hint)
        raise Misfit(f"{value!r} is not one of {hint.__name__}: {wanted}") from None


def _decode_literal(value: Json, args: tuple[Any, ...]) -> Any:
    for arg in args:
        if _same(encoded(arg), value):
            return arg
    raise Misfit(f"{value!r} is not one of {', '.join(map(repr, args))}")


def _same(one: Json, other: Json) -> bool:
    return type(one) is type(other) and bool(one == other)  # 1 is neither 1.0 nor true


# --- containers ------------------------------------------------------------------------------


def _decode_list(value: Json, item_hint: Any) -> list[Any]:
    _expect(value, isinstance(value, list), "a list")
    return [_item(value, index, item_hint) for index in range(len(value))]


def _decode_tuple(value: Json, args: tuple[Any, ...]) -> tuple[Any, ...]:
    _expect(value, isinstance(value, list), "a list")
    if not args or (len(args) == 2 and args[1] is Ellipsis):
        return tuple(_decode_list(value, args[0] if args else Any))
    if len(args) != len(value):
        raise Misfit(f"{len(args)} items are wanted, found {len(value)}")
    return tuple(_item(value, index, hint) for index, hint in enumerate(args))


def _decode_dict(value: Json, args: tuple[Any, ...]) -> dict[Any, Any]:
    _expect(value, isinstance(value, dict), "an object")
    key_hint, item_hint = args
    return {_key(key, key_hint): _item(value, key, item_hint) for key in value}


def _key(key: str, hint: Any) -> Any:
    try:
        return _decode(key, hint)
    except Misfit as misfit:
        raise misfit.at(key) from None


def _item(value: Any, place: str | int, hint: Any) -> Any:
    try:
        return _decode(value[place], hint)
    except Misfit as misfit:
        raise misfit.at(place) from None


def _decode_union(value: Json, hint: Any, args: tuple[Any, ...]) -> Any:
    """Try exact scalar types first, then the members of the union in order. For an object, try the class with the most
    similar fields first."""
    if value is None or type(value) in (int, float, bool):
        if type(value) in args:
            return value
    elif isinstance(value, dict):
        args = tuple(sorted(args, key=lambda arm: _distance(value, arm)))
    misfits = []
    for arm in args:
        try:
            return _decode(value, arm)
        except Misfit as misfit:
            misfits.append(misfit)
    # The object is probably of the most similar class, so report the error of that class.
    if isinstance(value, dict) and misfits[0].path:
        raise misfits[0]
    raise Misfit(f"{_found(value)} does not fit {_hint_name(hint)}")


def _distance(value: dict[str, Json], arm: Any) -> int:
    cls = typing.get_origin(arm) or arm
    fields = getattr(cls, "__dataclass_fields__", None) or getattr(cls, "model_fields", None)
    if fields is None and typing.is_typeddict(cls):
        fields = cls.__annotations__
    return 1_000_000 if fields is None else len(value.keys() ^ fields.keys())


# --- classes ---------------------------------------------------------------------------------


@functools.lru_cache(maxsize=512)
def _hints(cls: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(cls)
    except (NameError, SyntaxError, TypeError) as error:
        raise Misfit(
            f"an annotation of {cls.__qualname__} cannot be resolved: {error}", "define its types at module level"
        ) from None


def _decode_dataclass(value: Json, cls: Any, variables: dict[Any, Any]) -> Any:
    _expect(value, isinstance(value, dict), f"an object ({cls.__name__})")
    hints, given = _hints(cls), {}
    for field in dataclasses.fields(cls):
        if not field.init:
            continue
        if (name := _stored_name(field, value)) is not None:
            given[field.name] = _item(value, name, _bound(hints[field.name], variables))
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise Misfit(f"{cls.__name__} needs this field, and it is missing", "give the field a default").at(
                field.name
            )
    try:
        return cls(**given)
    except (TypeError, ValueError) as error:  # the __post_init__ of the class refuses the values
        raise Misfit(f"{cls.__name__} refuses it: {error}") from error


def _stored_name(field: dataclasses.Field[Any], value: dict[str, Json]) -> str | None:
    """The name of the field in the data: its own, or a former one."""
    return next((name for name in (field.name, *_former_names(field)) if name in value), None)


def _former_names(field: dataclasses.Field[Any]) -> tuple[str, ...]:
    was = field.metadata.get("was", ())
    return (was,) if isinstance(was, str) else tuple(was)


def kept(made: Any, stored: Json) -> Any:
    """`made` as plain values, with the fields of `stored` that its dataclass does not know."""
    if not dataclasses.is_dataclass(made) or isinstance(made, type) or not isinstance(stored, dict):
        return made
    fields = dataclasses.fields(made)
    known = {name for field in fields for name in (field.name, *_former_names(field))}
    plain = {name: item for name, item in stored.items() if name not in known}
    for field in fields:
        before = stored.get(_stored_name(field, stored) or field.name)
        plain[field.name] = kept(getattr(made, field.name), before)
    return plain


def _bound(hint: Any, variables: dict[Any, Any]) -> Any:
    """The hint with a generic class's type variables filled in."""
    if not variables:
        return hint
    if isinstance(hint, typing.TypeVar):
        return variables.get(hint, Any)
    parameters = getattr(hint, "__parameters__", ())
    return hint[tuple(variables.get(one, Any) for one in parameters)] if parameters else hint


def _decode_typed_dict(value: Json, cls: Any) -> dict[str, Any]:
    _expect(value, isinstance(value, dict), f"an object ({cls.__name__})")
    hints = _hints(cls)
    for name in _required_keys(cls):
        if name not in value:
            raise Misfit(f"{cls.__name__} needs this field, and it is missing", "mark it NotRequired").at(name)
    return {key: _item(value, key, hints[key]) if key in hints else value[key] for key in value}


@functools.lru_cache(maxsize=512)
def _required_keys(cls: Any) -> list[str]:
    # Postponed annotations hide NotRequired from __required_keys__ (Python's own footnote).
    marks = {name: typing.get_origin(hint) for name, hint in typing.get_type_hints(cls, include_extras=True).items()}
    return sorted(
        name
        for name, mark in marks.items()
        if mark is typing.Required or (name in cls.__required_keys__ and mark is not typing.NotRequired)
    )


def _decode_pydantic(value: Json, cls: Any) -> Any:
    # Through JSON text: only there a strict model accepts text for a date.
    try:
        return cls.model_validate_json(canonical(value))
    except ValueError as error:  # pydantic's ValidationError is one
        raise _pydantic_misfit(error, cls) from None


def _pydantic_misfit(error: Any, cls: type[Any]) -> Misfit:
    if not callable(getattr(error, "errors", None)):
        return Misfit(f"{cls.__name__} refuses it: {error}")
    first = error.errors(include_url=False)[0]
    misfit = Misfit(f"{cls.__name__} refuses it: {first['msg']}")
    misfit.path = list(reversed(first["loc"]))
    return misfit


def _cannot_rebuild(hint: Any) -> Misfit:
    return Misfit(
        f"{_hint_name(hint)} cannot be rebuilt from JSON",
        "annotate a JSON type, dataclass, pydantic model, enum, date, path or UUID",
    )


def _hint_name(hint: Any) -> str:
    return hint.__qualname__ if isinstance(hint, type) else str(hint)
