"""Models behave as frozen dataclasses, but importing standfast does not import `dataclasses`."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from standfast.models import Model


class Point(Model):
    x: int
    y: int = 2


@dataclasses.dataclass(frozen=True)
class Twin:
    x: int
    y: int = 2


@pytest.mark.parametrize(
    ("values", "named"),
    [((1,), {}), ((1, 3), {}), ((), {"x": 1}), ((), {"y": 5, "x": 1}), ((1,), {"y": 4})],
)
def test_a_model_is_made_and_compared_as_a_dataclass(values: tuple[Any, ...], named: dict[str, Any]) -> None:
    """000-34: fields, equality, hash and repr are those of a frozen dataclass with the same fields."""
    model, twin = Point(*values, **named), Twin(*values, **named)
    assert dataclasses.asdict(model) == dataclasses.asdict(twin) == model.as_dict()
    assert list(model.as_dict()) == ["x", "y"]
    assert repr(model) == repr(twin).replace("Twin", "Point")
    assert hash(model) == hash(twin)
    assert model == Point(model.x, model.y)
    assert model != Point(model.x, model.y + 1)
    assert model != twin
    assert model == copy.deepcopy(model) == pickle.loads(pickle.dumps(model))


@pytest.mark.parametrize(
    ("values", "named"),
    [((), {}), ((1, 2, 3), {}), ((1,), {"x": 1}), ((1,), {"z": 1}), ((), {"y": 1}), ((1, 2), {"y": 2})],
)
def test_wrong_arguments_are_refused(values: tuple[Any, ...], named: dict[str, Any]) -> None:
    """000-34: a wrong call raises TypeError, as it does for a dataclass."""
    for kind in (Point, Twin):
        with pytest.raises(TypeError):
            kind(*values, **named)


def test_a_model_is_frozen() -> None:
    """000-34: fields cannot be changed or deleted, and `dataclasses.replace` makes a copy."""
    point = Point(1)
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'x'"):
        point.x = 2  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'x'"):
        del point.x
    assert dataclasses.replace(point, x=7) == point.replace(x=7) == Point(7, 2)
    assert point == Point(1, 2)


class Timed(Model):
    due_us: int | None
    ready_us: int
    settle_us: int


def test_a_model_gives_its_times_as_datetimes() -> None:
    """002-20: in Python a time is a datetime. For a field that is no time, the error lists the fields that are."""
    timed = Timed(due_us=1_767_225_600_000_001, ready_us=0, settle_us=5)
    assert timed.time("due") == datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=UTC)
    assert timed.time("ready") is timed.replace(due_us=None).time("due") is None
    for name in ("settle", "due_us", "created"):
        with pytest.raises(AttributeError, match=f"no attribute '{name}': its times are: due, ready"):
            timed.time(name)


def test_a_model_gives_its_durations_as_timedeltas() -> None:
    """002-20: Python code gets a timedelta for a duration and a datetime for a time. No field in microseconds is
    left out.
    """
    timed = Timed(due_us=None, ready_us=0, settle_us=1_500_000)
    assert timed.duration("settle") == timedelta(seconds=1.5)
    with pytest.raises(AttributeError, match=r"no attribute 'due': its durations are: settle"):
        timed.duration("due")


def test_a_model_is_no_tuple() -> None:
    """000-34: a model cannot be unpacked, has no order and no length, and does not equal a tuple of its values."""
    point: Any = Point(1)
    assert point != (1, 2)
    for use in (iter, len, lambda one: one[0], lambda one: one < Point(2)):
        with pytest.raises(TypeError):
            use(point)


def test_a_model_is_known_to_dataclasses_and_match() -> None:
    """000-34: `is_dataclass`, `fields` with their defaults, and positional patterns in `match` work."""
    fields = dataclasses.fields(Point)  # type: ignore[arg-type]
    assert dataclasses.is_dataclass(Point)
    assert [(field.name, field.default) for field in fields] == [("x", dataclasses.MISSING), ("y", 2)]
    match Point(1, 3):
        case Point(x, y):
            assert (x, y) == (1, 3)


def test_models_do_not_import_dataclasses() -> None:
    """RULES §10: importing `dataclasses` takes 10 ms, and agents start hooks hundreds of times an hour."""
    code = (
        "import sys; from standfast.core.receipts import Receipt; from standfast.core.leases import Lease\n"
        "Lease(*range(9)).as_dict(); print({'dataclasses', 'inspect', 'difflib'} & set(sys.modules))"
    )
    assert subprocess.run([sys.executable, "-S", "-c", f"import sys; sys.path[:] = {sys.path!r}\n{code}"],
                          capture_output=True, text=True, check=True).stdout == "set()\n"  # fmt: skip
