"""The codec of all values that are written to the store or read from it.

A value is stored as plain JSON text in one canonical form: keys sorted by code point, no spaces, UTF-8, no Unicode
normalisation. So equal values have equal text and equal hashes, in this release and in every later one. A value that
JSON cannot represent exactly is refused. The error names its path: `intent.items[3].price: NaN is not JSON`.

Three directions. `encode` turns dataclasses, pydantic models, enums, dates and paths into plain JSON without class
names; `decode` (in `decoder.py`, loaded on first use) follows an annotation back. `loads` reads text from outside
strictly. `read` reads our own stored text and never raises.

A class such as `datetime` is only recognised if its module is loaded. Otherwise no value can have that class.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from standfast.errors import InvalidInput

if TYPE_CHECKING:
    from json import JSONDecoder

# A recursive union would be the true type, but then neither `body["pr"]` nor passing a
# dict[str, str] type-checks; the codec checks at run time what the alias does not.
Json: TypeAlias = Any

DEPTH_MAX: Final = 64
INT_MIN: Final = -(2**63)
INT_MAX: Final = 2**63 - 1
PAYLOAD_MAX_BYTES: Final = 8 * 1024 * 1024

# The columns with the content of messages, results and values. The audit test denies these columns to every view that
# must work with summaries alone.
PAYLOAD_COLUMNS: Final[tuple[str, ...]] = (
    "message.content",
    "effect.intent",
    "effect.result",
    "approval.question",
    "step.result",
    "mail.body",
    "checkpoint.data",
    "event.data",
    "tool_call.input",
    "tool_call.output",
    "thread_value.data",
    "thread_write.data",
    "item.value",
    "item_vector.vector",
    "knowledge.text",
    "knowledge.words",
    "knowledge.vector",
)

_ATOMS = frozenset({str, bool, float, type(None)})
_SURROGATE = "[\ud800-\udfff]"  # patterns are compiled on first use: starting is often all a process does


@cache
def _writer() -> Callable[[object], str]:
    """`_plain` limits the depth first, so no cyclic value gets here."""
    from json import JSONEncoder

    return JSONEncoder(
        ensure_ascii=False, check_circular=False, allow_nan=False, sort_keys=True, separators=(",", ":")
    ).encode


class Misfit(Exception):
    """A value that cannot be encoded or decoded. Each container adds its key or index while the exception passes.
    Callers never see it: `refused` makes an InvalidInput of it."""

    def __init__(self, fact: str, hint: str = "") -> None:
        self.fact = fact
        self.hint = hint
        self.path: list[str | int] = []

    def at(self, place: str | int) -> Misfit:
        self.path.append(place)
        return self


def refused(misfit: Misfit, what: str) -> InvalidInput:
    """The error a caller sees: `what` and the path, then the fact."""
    path = what
    for place in reversed(misfit.path):
        if isinstance(place, str) and place.isidentifier():
            path += f".{place}"
        else:
            path += f"[{place!r}]" if isinstance(place, int) else f"[{clean(place, 60)!r}]"
    return InvalidInput(f"{path}: {misfit.fact}", misfit.hint)


# --- values to text --------------------------------------------------------------------------


def canonical(value: object, *, what: str = "value") -> str:
    """The one text of `value`. Equal text means equal value: 1 and 1.0 differ.

    Raises InvalidInput naming the path of what cannot be stored.
    """
    plain = value if _plain(value, DEPTH_MAX) else _walk(value, what)
    try:
        text = _writer()(plain)
    except ValueError:  # NaN or an infinity: the walk raises with its path
        _walk(plain, what)
        raise
    if "\\u0000" in text or (not text.isascii() and re.search(_SURROGATE, text)):
        _walk(plain, what)  # the text may also have a backslash before u0000: then the walk raises nothing
    return text


def dumps(value: object, *, what: str = "value", limit_bytes: int = PAYLOAD_MAX_BYTES) -> str:
    """The text to store: canonical, and no longer than `limit_bytes` of UTF-8."""
    text = canonical(value, what=what)
    if len(text) * 4 > limit_bytes:
        _check_size(len(text) if text.isascii() else len(text.encode()), what, limit_bytes)
    return text


def hash(value: object, *, what: str = "value") -> str:
    """The hash by which values are compared: `h1:` and the SHA-256 of the canonical text."""
    return hash_text(canonical(value, what=what))


def hash_text(text: str) -> str:
    """`h1:` and the SHA-256 of this text."""
    from standfast.serial.digests import sha256

    return "h1:" + sha256(text.encode()).hexdigest()


def encode(value: object, *, what: str = "value") -> Json:
    """`value` as plain JSON values. It may be the same object, so do not change either.

    Raises InvalidInput, with the path and the type, for a value without a plain form.
    """
    return value if _plain(value, DEPTH_MAX) else _walk(value, what)


def _plain(value: object, resource: int) -> bool:
    """Whether the JSON encoder takes the value unchanged. Strings and NaN are checked later, in the encoded text."""
    kind = type(value)
    if kind in _ATOMS:
        return True
    if kind is int:
        return INT_MIN <= value <= INT_MAX  # type: ignore[operator]
    if kind is dict:
        for key, item in value.items():  # type: ignore[attr-defined]
            if type(key) is not str or (type(item) not in _ATOMS and not (resource > 0 and _plain(item, resource - 1))):
                return False
        return resource > 0
    if kind is list:
        for item in value:  # type: ignore[attr-defined]
            if type(item) not in _ATOMS and not (resource > 0 and _plain(item, resource - 1)):
                return False
        return resource > 0
    return False


def _walk(value: object, what: str) -> Json:
    try:
        return encoded(value, DEPTH_MAX)
    except Misfit as misfit:
        raise refused(misfit, what) from None


def encoded(value: object, resource: int = DEPTH_MAX) -> Json:
    """Convert a value part by part.

    Slower than `_plain`. Raises Misfit with the path of a part without a plain form.
    """
    kind = type(value)
    if value is None or kind is bool:
        return value
    if isinstance(value, Enum):
        return encoded(value.value, resource)
    if isinstance(value, str):
        return _encoded_str(str.__str__(value))
    if isinstance(value, int):
        return _encoded_int(int.__index__(value))
    if isinstance(value, float):
        return _encoded_float(float.__float__(value))
    if resource == 0:
        raise Misfit(f"nested deeper than {DEPTH_MAX} levels")
    if isinstance(value, dict):
        return _encoded_dict(value, resource - 1)
    if isinstance(value, (list, tuple)):
        return _encoded_list(value, resource - 1)
    return _encoded_object(value, kind, resource)


def _encoded_str(text: str) -> str:
    if "\x00" in text:
        raise Misfit("a NUL character cannot be stored", "store binary data as an artifact")
    if not text.isascii() and (lone := re.search(_SURROGATE, text)):
        raise Misfit(f"a lone surrogate (U+{ord(lone[0]):04X}) is not Unicode text")
    return text


def _encoded_int(number: int) -> int:
    if not INT_MIN <= number <= INT_MAX:
        raise Misfit("an integer must be at least -2^63 and less than 2^63", "store larger numbers as text")
    return number


def _encoded_float(number: float) -> float:
    if number != number:
        raise Misfit("NaN is not JSON", "store None")
    if number in (float("inf"), float("-inf")):
        raise Misfit(f"{'-' if number < 0 else ''}Infinity is not JSON", "store None")
    return number


def _encoded_dict(value: dict[Any, Any], resource: int) -> dict[str, Json]:
    plain: dict[str, Json] = {}
    for key, item in value.items():
        name = key.value if isinstance(key, Enum) else key
        if not isinstance(name, str):
            raise Misfit(f"key {clean(repr(key), 60)} is {_type_name(type(key))}, not a string", "write str(key)")
        try:
            plain[_encoded_str(str.__str__(name))] = encoded(item, resource)
        except Misfit as misfit:
            raise misfit.at(str.__str__(name)) from None
    return plain


def _encoded_list(value: list[Any] | tuple[Any, ...], resource: int) -> list[Json]:
    plain: list[Json] = []
    for index, item in enumerate(value):
        try:
            plain.append(encoded(item, resource))
        except Misfit as misfit:
            raise misfit.at(index) from None
    return plain


def _encoded_object(value: Any, kind: type[Any], resource: int) -> Json:
    if callable(getattr(kind, "model_dump", None)):
        # Aliases and no computed fields: model_validate_json accepts the output.
        return encoded(value.model_dump(mode="json", by_alias=True, round_trip=True), resource)
    if hasattr(kind, "__dataclass_fields__"):
        from dataclasses import fields

        return _encoded_dict({field.name: getattr(value, field.name) for field in fields(value)}, resource - 1)
    if (text := _as_text(value)) is not None:
        return encoded(text, resource)
    raise _no_plain_form(value, kind)


def _as_text(value: Any) -> str | float | None:
    loaded = sys.modules.get
    if (datetime := loaded("datetime")) is not None:
        if isinstance(value, (datetime.date, datetime.time)):  # a datetime is a date
            return str(value.isoformat())
        if isinstance(value, datetime.timedelta):
            return float(value.total_seconds())
    if (pathlib := loaded("pathlib")) is not None and isinstance(value, pathlib.PurePath):
        return str(value)
    if (uuid := loaded("uuid")) is not None and isinstance(value, uuid.UUID):
        return str(value)
    return None


def _no_plain_form(value: object, kind: type[object]) -> Misfit:
    hint = "give a JSON value, dataclass, pydantic model, enum, date, path or UUID"
    if isinstance(value, (bytes, bytearray, memoryview)):
        hint = "store binary data as an artifact, or decode it to text"
    elif isinstance(value, (set, frozenset)):
        hint = "a set has no order: write sorted(value)"
    elif hasattr(kind, "__next__"):
        hint = "an iterator can be read once: write list(value)"
    elif hasattr(kind, "__await__"):
        hint = "it was not awaited: use standfast.aopen() for async functions"
    elif isinstance(value, type):
        return Misfit(f"the class {_type_name(value)} is not a value", hint)
    return Misfit(f"{_type_name(kind)} is not a value that can be stored", hint)


def _type_name(kind: type[object]) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


# --- text to values --------------------------------------------------------------------------


def loads(text: str | bytes, *, what: str = "value", limit_bytes: int = PAYLOAD_MAX_BYTES) -> Json:
    """The value of JSON text from outside. Raises InvalidInput with the place of the error.

    Refuses values that `canonical` could not write, and duplicate keys, which readers treat differently.
    """
    from json import JSONDecodeError

    text = _bounded_text(text, what, limit_bytes)
    try:
        value = _strict().decode(text)
    except Misfit as misfit:
        raise refused(misfit, what) from None
    except JSONDecodeError as error:
        fact = f"line {error.lineno} column {error.colno}: {error.msg}"
        raise InvalidInput(f"{what}: {fact}", "the input must be one JSON value") from None
    except RecursionError:
        raise InvalidInput(f"{what}: nested deeper than {DEPTH_MAX} levels") from None
    except ValueError:  # Python's own bound on the digits of an integer
        raise refused(Misfit("an integer must be at least -2^63 and less than 2^63"), what) from None
    # A NUL or a surrogate can come only from an escape; depth and large integers from anywhere.
    if "\\u" in text or not _plain(value, DEPTH_MAX):
        _walk(value, what)
    return value


def read(text: object) -> Json:
    """The value of our own stored text. Text that is not JSON is returned unchanged."""
    if not isinstance(text, str):
        return text
    try:
        return _total().decode(text)
    except (ValueError, RecursionError):
        return text


def decode(value: Json, annotation: object, *, what: str = "value") -> Any:
    """Decode `value` by `annotation`. With None or Any, return it unchanged.

    Raises InvalidInput naming the field where a stored value no longer fits.
    """
    if annotation is None or annotation is Any:
        return value
    from standfast.serial import decoder

    return decoder.decode(value, annotation, what)


def kept(made: object, stored: Json) -> Any:
    """`made` with the fields of `stored` that its dataclass does not know. So writing it back loses no field."""
    from standfast.serial import decoder

    return decoder.kept(made, stored)


def shape(annotation: object) -> str | None:
    """The shape of values of this annotation, as text to store. None if every value fits."""
    if annotation is None or annotation is Any:
        return None
    try:
        return _shape_text(annotation)
    except TypeError:  # an annotation that is not hashable is described each time
        return _shape_text.__wrapped__(annotation)


@cache
def _shape_text(annotation: Any) -> str | None:
    from standfast.serial import shapes

    found = shapes.shape_of(annotation)
    return None if found is None else canonical(found)


def return_annotation(function: Callable[..., object]) -> Any:
    """The return annotation of `function`, with its names resolved. None without an annotation.

    Raises InvalidInput if the annotation names something that cannot be found at run time.
    """
    from standfast.serial import decoder

    return decoder.return_annotation(function)


def _bounded_text(text: str | bytes, what: str, limit_bytes: int) -> str:
    if isinstance(text, bytes):
        _check_size(len(text), what, limit_bytes)
        try:
            return text.decode()
        except UnicodeDecodeError as error:
            raise InvalidInput(f"{what}: byte {error.start} is not UTF-8", "send UTF-8 text") from None
    if not isinstance(text, str):
        raise InvalidInput(f"{what}: JSON text is wanted, not {_type_name(type(text))}")
    try:
        _check_size(len(text) if text.isascii() else len(text.encode()), what, limit_bytes)
    except UnicodeEncodeError as error:
        raise InvalidInput(f"{what}: a lone surrogate at character {error.start} is not Unicode text") from None
    return text


def _check_size(size_bytes: int, what: str, limit_bytes: int) -> None:
    if size_bytes > limit_bytes:
        raise InvalidInput(
            f"{what}: {size_bytes:,} bytes, and the limit is {limit_bytes:,}", "store large data as an artifact"
        )


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise Misfit(f"key {clean(twice, 60)!r} appears twice in one object")
    return value


def _no_constant(name: str) -> Json:
    raise Misfit(f"{name} is not JSON")


def _finite(digits: str) -> float:
    return _encoded_float(float(digits))  # 1e999 is JSON, and Python reads it as Infinity


def _no_constant_in_store(name: str) -> Json:
    raise ValueError(name)


@cache
def _strict() -> JSONDecoder:
    from json import JSONDecoder

    return JSONDecoder(object_pairs_hook=_unique_keys, parse_constant=_no_constant, parse_float=_finite)


@cache
def _total() -> JSONDecoder:
    from json import JSONDecoder

    return JSONDecoder(parse_constant=_no_constant_in_store)


# --- text for people ---------------------------------------------------------------------------

_ESCAPES = r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-~])"
_SPACES = r"[\s\x1c-\x1f\x85\u2028\u2029]+"
# Control characters, direction marks, invisible characters and tags: with them, text is displayed as another text.
_UNSEEN = (
    "[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f"
    "\ud800-\udfff\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)


SUMMARY_READ_MAX = 8_000


def summary(text: str, limit: int = 200) -> str:
    """One clean line for a summary column, at most `limit` characters long, without secrets of a well-known shape.

    The text is cleaned before it is redacted, because an escape sequence may split a secret. It is cut afterwards,
    because half a secret has no recognisable shape. `redact = false` does not apply to summaries, because nothing
    restores the original text from them.
    """
    from standfast.serial.redaction import redacted

    line = redacted(clean(text[:SUMMARY_READ_MAX], SUMMARY_READ_MAX))
    return line if len(line) <= limit else line[: max(limit - 1, 0)].rstrip() + "…"


def clean(text: str, limit: int = 200) -> str:
    """One line for a summary, at most `limit` characters long, without characters that move the cursor or reverse the
    text."""
    head = text[: 16 * limit + 1024]  # a megabyte of output is not searched for 200 characters
    line = " ".join(head.split())
    if not line.isprintable():  # most text is, and then no pattern has to be compiled
        line = re.sub(_SPACES, " ", re.sub(_UNSEEN, "", re.sub(_ESCAPES, "", head))).strip()
    if len(line) <= limit and len(head) == len(text):
        return line
    return line[: max(limit - 1, 0)].rstrip() + "…"
