"""Damaged input at every entry point: a sample of `make fuzz`."""

from __future__ import annotations

from pathlib import Path

import pytest

import standfast
from standfast.errors import InvalidInput
from standfast_prove.campaigns import inputs

INSIDE = {"values": 400, "verbs": 150, "apply": 60, "config": 150, "transcripts": 40, "hooks": 150}
PROGRAMS = {"commands": 15, "hook": 8, "stores": 12, "mcp": 60}


@pytest.mark.parametrize("door", INSIDE)
def test_damaged_input_is_refused_with_our_error_and_changes_nothing(door: str, tmp_path: Path) -> None:
    """The reader does not crash or hang, and refused input writes nothing."""
    outcome = inputs.run(tmp_path, door=door, inputs=INSIDE[door], seed=7)
    assert not outcome.bad, outcome.bad
    assert outcome.seen == {"inputs": INSIDE[door]}


@pytest.mark.parametrize("door", PROGRAMS)
def test_a_program_survives_garbage(door: str, tmp_path: Path) -> None:
    if door == "mcp":
        pytest.importorskip("mcp", reason="mcp is not installed")
    outcome = inputs.run(tmp_path, door=door, inputs=PROGRAMS[door], seed=7, program=True)
    assert not outcome.bad, outcome.bad
    assert outcome.seen == {"inputs": PROGRAMS[door]}


def test_another_error_is_reported_as_a_violation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: a reader that raises an exception of Python."""
    from standfast_prove.fuzz import doors

    def knocking() -> None:
        raise KeyError("what")

    with pytest.raises(AssertionError, match="KeyError"):
        doors.judged("an input", knocking)


def test_what_a_store_cannot_hold_is_refused_by_its_name(sf: standfast.Standfast) -> None:
    with pytest.raises(InvalidInput, match=r"due is a datetime or a text"):
        sf.tasks.add("parser", due=2**70)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="surrogate"):
        sf.tasks.next(source="half \ud800")
    assert sf.tasks.list() == []
