"""Resolving a doubt: a result that fits, a template to edit, and a correction. On both engines."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from enum import Enum
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypedDict
from uuid import UUID

import pytest
from pydantic import BaseModel

import standfast
from standfast import config, handle, serial
from standfast.serial import shapes
from standfast_prove.scenes import only, orphan, told


@dataclass
class Charge:
    id: str
    cents: int
    note: str = ""


class Lost(Exception):
    """The answer did not arrive."""


@standfast.effect("bank.charge", by=("order",))
def charge(order: str) -> Charge:
    raise Lost(order)


def in_doubt(sf: standfast.Standfast) -> str:
    with sf.session("s"), pytest.raises(Lost):
        charge(order="1")
    return only(sf).id


# -- typed results -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (None, r"an object \(Charge\) is wanted, found null"),
        ({"cents": 1}, "id is missing"),
        ({"id": "x", "cents": "1"}, "cents: an integer is wanted, found text"),
        ([], "found a list"),
    ],
)
def test_a_result_that_the_function_could_not_return_is_refused_with_a_template(
    sf: standfast.Standfast, result: Any, said: str
) -> None:
    """000-18, R18: the program that called an effect must be able to use the resolved result."""
    id = in_doubt(sf)
    with pytest.raises(standfast.InvalidInput, match=said) as refused:
        sf.effects.resolve(id, "applied", evidence="seen", result=result)
    words = shlex.split(refused.value.hint)
    assert words[:4] == ["standfast", "effect", "resolve", id[-6:]]
    assert json.loads(words[words.index("--result") + 1]) == {"id": "TEXT", "cents": 0}
    assert sf.effects.get(id).in_doubt


def test_a_result_that_fits_is_returned_to_the_program(sf: standfast.Standfast) -> None:
    id = in_doubt(sf)
    sf.effects.resolve(id, "applied", evidence="seen", result={"id": "ch_1", "cents": 5})
    with sf.session("s"):
        assert charge(order="1") == Charge("ch_1", 5)


def test_not_applied_needs_no_result_and_an_untyped_effect_takes_any(sf: standfast.Standfast) -> None:
    sf.effects.resolve(in_doubt(sf), "not_applied", evidence="nothing there")
    with sf.session("t") as s, pytest.raises(Lost):
        s.effect("post", do=lambda call: charge.plain("1"))
    (doubt,) = sf.effects.in_doubt()
    assert sf.effects.resolve(doubt.id, "applied", evidence="seen").result is None


def test_the_split_form_keeps_the_shape_from_the_first_dispatch(sf: standfast.Standfast) -> None:
    """A planned or failed effect that is dispatched explicitly still returns the result of its function."""
    id = in_doubt(sf)
    sf.effects.resolve(id, "not_applied", evidence="nothing there")
    sf.effects.dispatch(id)
    orphan(sf, id)
    with pytest.raises(standfast.InvalidInput, match="Charge"):
        sf.effects.resolve(id, "applied", evidence="seen")


# -- correcting ----------------------------------------------------------------------------------------------


def test_a_second_resolve_corrects_the_result_and_is_journalled(sf: standfast.Standfast) -> None:
    id = in_doubt(sf)
    sf.effects.resolve(id, "applied", evidence="seen", result={"id": "ch_1", "cents": 5})
    corrected = sf.effects.resolve(id, "applied", evidence="looked again", result={"id": "ch_2", "cents": 5})
    assert (corrected.state, corrected.result["id"], corrected.evidence) == ("acknowledged", "ch_2", "looked again")
    assert corrected.receipt is not None
    assert told(sf, id)[-2:] == ["resolved", "resolved"]
    with sf.session("s"):
        assert charge(order="1").id == "ch_2"
    with pytest.raises(standfast.InvalidInput):
        sf.effects.resolve(id, "applied", evidence="worse", result=None)


def test_a_second_resolve_does_not_change_the_state(sf: standfast.Standfast) -> None:
    id = in_doubt(sf)
    sf.effects.resolve(id, "applied", evidence="seen", result={"id": "ch_1", "cents": 5})
    with pytest.raises(standfast.IllegalTransition):
        sf.effects.resolve(id, "not_applied", evidence="changed my mind")
    assert sf.effects.get(id).state == "acknowledged"


def test_what_the_function_returned_cannot_be_corrected(sf: standfast.Standfast) -> None:
    with sf.session("s") as s:
        s.effect("post", key="k", do=lambda call: 1)
    with pytest.raises(standfast.IllegalTransition, match="only an effect in doubt can be resolved"):
        sf.effects.resolve("k", "applied", evidence="I know better", result=2)
    assert sf.effects.get("k").result == 1


def test_a_result_of_a_later_attempt_cannot_be_corrected(sf: standfast.Standfast) -> None:
    """A person resolved attempt 1, but the result is that of attempt 2."""
    sf.effects.begin("post", key="k")
    orphan(sf, "k")
    sf.effects.resolve("k", "not_applied", evidence="nothing there")
    with sf.session("s") as s:
        s.effect("post", key="k", do=lambda call: 1)
    with pytest.raises(standfast.IllegalTransition):
        sf.effects.resolve("k", "applied", evidence="I know better", result=2)
    assert sf.effects.get("k").result == 1


# -- shapes --------------------------------------------------------------------------------------------------


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Pair(NamedTuple):
    left: int
    right: str


class Row(TypedDict):
    name: str
    when: datetime


class Model(BaseModel):
    number: int
    title: str = ""


@dataclass
class Nested:
    charge: Charge
    tags: list[str] = field(default_factory=list)


SHAPED: list[tuple[Any, Any]] = [
    (str, "a"),
    (int, 1),
    (float, 1.5),
    (bool, True),
    (list[int], [1, 2]),
    (tuple[int, str], (1, "a")),
    (tuple[int, ...], (1, 2, 3)),
    (dict[str, int], {"a": 1}),
    (int | None, None),
    (Charge | None, Charge("a", 1)),
    (Literal["a", "b"], "b"),
    (Color, Color.BLUE),
    (Pair, Pair(1, "a")),
    (Row, {"name": "a", "when": datetime(2026, 1, 1, tzinfo=UTC)}),
    (Model, Model(number=1)),
    (Nested, Nested(Charge("a", 1), ["x"])),
    (date, date(2026, 1, 1)),
    (Path, Path("x/y")),
    (UUID, UUID(int=1)),
]


@pytest.mark.parametrize(("annotation", "value"), SHAPED, ids=lambda one: str(one)[:40])
def test_what_a_function_returns_fits_its_shape_and_so_does_the_template(annotation: Any, value: Any) -> None:
    text = serial.shape(annotation)
    assert text is not None
    shape = serial.read(text)
    assert shapes.misfit(serial.encode(value), shape) is None
    assert shapes.misfit(shapes.template(shape), shape) is None


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (str, 1),
        (int, True),
        (int, 1.0),
        (list[int], ["a"]),
        (tuple[int, str], [1]),
        (dict[str, int], {"a": "b"}),
        (int | None, "a"),
        (Literal["a"], "b"),
        (Color, "green"),
        (Nested, {"charge": {"id": "a"}}),
        (Model, {}),
    ],
)
def test_what_a_function_cannot_return_does_not_fit(annotation: Any, value: Any) -> None:
    assert shapes.misfit(value, serial.read(serial.shape(annotation))) is not None


def test_no_annotation_is_no_shape() -> None:
    assert [serial.shape(one) for one in (None, Any, object)] == [None, None, None]


# -- the command ---------------------------------------------------------------------------------------------


@pytest.fixture
def place(tmp_path: Path) -> Callable[[], standfast.Standfast]:
    """The store that the commands use, outside any repository."""
    return lambda: handle.connect(config.load(data_dir=tmp_path / "data", cwd=tmp_path))


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    environment = {**os.environ, "STANDFAST_DATA_DIR": str(tmp_path / "data"), "STANDFAST_ACTOR": "tester"}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "standfast", *words]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)

    return run


def doubt_of(place: Callable[[], standfast.Standfast]) -> str:
    with place() as sf:
        return in_doubt(sf)


def test_applied_and_not_applied_together_are_refused(run: Any, place: Any) -> None:
    """R18: otherwise the last flag would decide, and an effect that happened would be sent again."""
    id = doubt_of(place)
    done = run("effect", "resolve", id[-6:], "--applied", "--not-applied", "--evidence", "seen")
    assert done.returncode == 2
    assert "--applied and --not-applied" in done.stderr
    with place() as sf:
        assert sf.effects.get(id).in_doubt


def test_the_command_that_status_prints_works_when_it_is_pasted(run: Any, place: Any) -> None:
    """000-18, R18: the printed command runs in a shell, and the program gets a result of its type."""
    doubt_of(place)
    (printed,) = [line for line in run("status").stdout.splitlines() if "effect resolve" in line]
    words = shlex.split(printed)
    assert words[0] == "standfast"
    done = run(*words[1:])
    assert done.returncode == 0, done.stderr
    with place() as sf, sf.session("s"):
        assert charge(order="1") == Charge("TEXT", 0)


def test_a_resolve_without_a_fitting_result_exits_2_and_prints_the_template(run: Any, place: Any) -> None:
    id = doubt_of(place)
    done = run("effect", "resolve", id[-6:], "--applied", "--evidence", "seen")
    assert done.returncode == 2
    assert """--result '{"cents":0,"id":"TEXT"}'""" in done.stderr
    shown = run("effect", "show", id[-6:]).stderr
    assert f"standfast effect resolve {id[-6:]} --applied" in shown
