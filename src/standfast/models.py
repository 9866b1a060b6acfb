"""`Model`: the base class of everything that methods return.

A model is a frozen dataclass. It does not unpack or compare as a tuple, so that a new field breaks no caller.

Python's `dataclasses` is imported when `fields`, `asdict` or `replace` of that module is first used on a model. Its
import takes 10 ms of CPU, because it imports `inspect`, and agents start hooks hundreds of times an hour.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Self, dataclass_transform

if TYPE_CHECKING:
    from datetime import datetime, timedelta

DURATIONS = frozenset(
    (
        *("backoff_us", "cool_down_us", "duration_us", "for_us", "idempotent_us", "lease_for_us", "lease_mono_us"),
        *("left_us", "settle_us", "timeout_us", "ttl_us", "wait_us"),
    )
)
"""Fields in microseconds that are durations, not times."""
YEAR_10000_US = 253_402_300_800_000_000


class _Fields:
    """`__dataclass_fields__` of a model, made on first use."""

    def __get__(self, model: Model | None, cls: type[Model]) -> dict[str, Any]:
        from dataclasses import MISSING, field, make_dataclass

        specs = [
            (name, cls.__annotations__[name], field(default=cls.__dict__.get(name, MISSING)))
            for name in cls.field_names()
        ]
        fields: dict[str, Any] = vars(make_dataclass(cls.__name__, specs))["__dataclass_fields__"]
        cls.__dataclass_fields__ = fields  # type: ignore[assignment]
        return fields


class _Signature:
    """`__signature__` of a model: its fields, for `help()`, `inspect` and editors."""

    def __get__(self, model: Model | None, cls: type[Model]) -> Any:
        from inspect import Parameter, Signature

        def parameter(name: str) -> Parameter:
            default = cls._defaults.get(name, Parameter.empty)
            annotation = cls.__annotations__[name]
            return Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=annotation)

        return Signature([parameter(name) for name in cls.field_names()])


@dataclass_transform(frozen_default=True)
class Model:
    """A subclass is a frozen dataclass of its annotated fields."""

    __dataclass_fields__ = _Fields()
    __signature__ = _Signature()
    __match_args__: tuple[str, ...] = ()

    _defaults: dict[str, Any] = {}  # noqa: RUF012  replaced in each subclass

    def __init_subclass__(cls) -> None:
        cls.__match_args__ = tuple(cls.__annotations__)  # type: ignore[misc]
        cls._defaults = {name: vars(cls)[name] for name in cls.__match_args__ if name in vars(cls)}

    def __init__(self, *values: Any, **named: Any) -> None:
        names = self.__match_args__
        given = dict(zip(names, values, strict=False))
        if len(values) != len(names) or named:
            given = {**self._defaults, **given, **named}
            twice = len(values) > len(names) or not named.keys().isdisjoint(names[: len(values)])
            if twice or given.keys() != set(names):
                raise _wrong_call(type(self), values, named)
            given = {name: given[name] for name in names}
        self.__dict__.update(given)

    @classmethod
    def field_names(cls) -> tuple[str, ...]:
        """The names of the fields, in the order of their declaration."""
        return cls.__match_args__

    @classmethod
    def column_names(cls) -> tuple[str, ...]:
        """The columns that the fields are read from. Python says `agent` for the column `actor`."""
        return tuple("actor" if name == "agent" else name for name in cls.field_names())

    @classmethod
    def from_row(cls, row: Mapping[str, Any], **derived: Any) -> Self:
        """The model of a row. `derived` has what the row lacks, or has in another form."""
        pairs = zip(cls.field_names(), cls.column_names(), strict=True)
        return cls(**{name: row[column] for name, column in pairs if column in row} | derived)

    @classmethod
    def from_values(cls, values: Iterable[Any]) -> Self:
        """The model with these values, in the order of its fields."""
        return cls(*values)

    def as_dict(self) -> dict[str, Any]:
        """The fields by name; nested models stay models."""
        return dict(self.__dict__)

    def time(self, name: str) -> datetime | None:
        """One of its times as a datetime in UTC: `task.time("due")` reads `task.due_us`. None if it is not set."""
        us = self._microseconds(name, "times", lambda field: field not in DURATIONS)
        if us is None or not 0 < us < YEAR_10000_US:
            return None
        from datetime import UTC, datetime, timedelta

        return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=us)

    def duration(self, name: str) -> timedelta | None:
        """One of its durations: `loop.duration("timeout")` reads `loop.timeout_us`. None if it is not set."""
        us = self._microseconds(name, "durations", lambda field: field in DURATIONS)
        if us is None:
            return None
        from datetime import timedelta

        return timedelta(microseconds=us)

    def _microseconds(self, name: str, kind: str, fits: Callable[[str], bool]) -> int | None:
        known = {one.removesuffix("_us"): one for one in self.field_names() if one.endswith("_us") and fits(one)}
        if name not in known:
            from standfast.errors import NoAttribute

            raise NoAttribute(
                f"{type(self).__name__!r} object", name, list(known), f"its {kind} are: {', '.join(known)}"
            )
        us: int | None = getattr(self, known[name])
        return us

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed."""
        return type(self)(**{**self.__dict__, **changes})

    def __setattr__(self, name: str, value: object) -> None:
        raise _frozen(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        raise _frozen(f"cannot delete field {name!r}")

    def __eq__(self, other: object) -> bool:
        return self.__dict__ == other.__dict__ if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self.__dict__.values()))

    def __repr__(self) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{name}={value!r}' for name, value in self.__dict__.items())})"


def _wrong_call(cls: type[Model], values: tuple[Any, ...], named: dict[str, Any]) -> TypeError:
    """The error that Python raises for a function that is called with the wrong arguments."""
    names, call = cls.field_names(), f"{cls.__qualname__}()"
    filled = names[: len(values)]
    if len(values) > len(names):
        return TypeError(f"{call} takes {len(names)} arguments but {len(values)} were given")
    for name in named:
        if name not in names or name in filled:
            fact = "multiple values for" if name in filled else "an unexpected keyword"
            return TypeError(f"{call} got {fact} argument {name!r}")
    missing = [name for name in names if name not in {*filled, *named, *cls._defaults}]
    return TypeError(f"{call} misses {len(missing)} arguments: {', '.join(missing)}")


def _frozen(words: str) -> AttributeError:
    from dataclasses import FrozenInstanceError

    return FrozenInstanceError(words)
