"""The campaign `hostile`: each part holds, and its control breaks."""

from __future__ import annotations

from pathlib import Path

import pytest

from standfast_prove.campaigns import hostile_grants, hostile_text
from standfast_prove.catalogue import CAMPAIGNS


def test_a_call_passes_only_with_its_own_grant_and_once(engine_url: str, tmp_path: Path) -> None:
    """R13, R14, R19: other directory, tool, spelling or description, threads, calls that are said to have failed."""
    made = hostile_grants.grants(tmp_path, url=engine_url, seed=5, calls=60)
    assert made.bad == []
    assert made.seen["passed"] >= 3


def test_a_grant_that_names_no_directory_is_used_elsewhere(tmp_path: Path) -> None:
    """The control."""
    made = hostile_grants.grants(tmp_path, seed=5, calls=60, elsewhere=True)
    assert any(sentence.startswith("passed without a matching grant") for sentence in made.bad)


def test_no_byte_of_a_transcript_reaches_the_terminal_uncleaned(engine_url: str, tmp_path: Path) -> None:
    """R38, 000-30: sixteen commands and the sessions themselves, on a terminal."""
    made = hostile_text.transcript(tmp_path, url=engine_url, seed=2, texts=40)
    assert made.bad == []
    assert made.seen["outputs"] >= 17
    assert made.seen["refused"] == 0


def test_without_the_cleaner_a_transcript_reaches_the_terminal(tmp_path: Path) -> None:
    """The control."""
    made = hostile_text.transcript(tmp_path, seed=2, texts=20, uncleaned=True)
    assert len(made.bad) >= 3


def test_nothing_of_a_clone_is_run_or_used(tmp_path: Path) -> None:
    """R26, R27, R38, 002-20: modules, configuration, spool and names of a clone."""
    made = hostile_text.repository(tmp_path, seed=2, clones=1)
    assert made.bad == []
    assert made.seen["outputs"] == len(hostile_text.COMMANDS) + 3


def test_an_interpreter_that_imports_from_the_directory_runs_the_clone(tmp_path: Path) -> None:
    """The control."""
    made = hostile_text.repository(tmp_path, seed=2, clones=1, importing=True)
    assert any("was run" in sentence for sentence in made.bad)


@pytest.mark.parametrize("part", ["shell", "spool", "grants", "transcript", "repository"])
def test_each_part_has_a_control(part: str) -> None:
    """Issue 18: a control that must break."""
    names = {one.name: one.control for one in CAMPAIGNS if one.workload == "hostile"}
    assert names[f"hostile-{part}"] == ""
    assert names[f"hostile-{part}-control"]
