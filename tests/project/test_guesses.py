"""Commands as people and models guess them without reading the help: each works, or prints the line to copy."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import click
import pytest

import standfast
from standfast.cli import app
from standfast.cli.aliases import ALIASES, target
from standfast.cli.frame import Command
from standfast.cli.registry import BY_NAME

Guess = dict[str, str]
TABLE: dict[str, list[Any]] = tomllib.loads((Path(__file__).parents[1] / "guesses.toml").read_text())
GUESSES: list[Guess] = TABLE["guesses"]
WRONG: list[dict[str, Any]] = TABLE["wrong"]
TO_COME = {"erase", "ui"}
"""Commands of DESIGN that do not exist yet."""
OPTIONS = ("--version", "--help")


def noun_of(guess: Guess) -> str:
    line = guess.get("runs") or guess["says"].removeprefix("standfast ")
    return line.split()[0]


ALIVE = [guess for guess in GUESSES if noun_of(guess) in (*BY_NAME, *OPTIONS)]
WAITING = [guess for guess in GUESSES if guess not in ALIVE]


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The commands are parsed in full but not run. The list has the commands that would have run."""
    seen: list[str] = []

    def note(_: Command, ctx: click.Context) -> Any:
        seen.append(ctx.command_path.removeprefix("standfast "))

    monkeypatch.setattr(Command, "invoke", note)
    return seen


@pytest.mark.parametrize("guess", ALIVE, ids=lambda guess: guess["typed"] or "(nothing)")
def test_a_guess_works(guess: Guess, ran: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    code = app.run(shlex.split(guess["typed"]))
    out, err = capsys.readouterr()
    if "says" in guess:
        assert (code, ran, out) == (2, [], "")
        assert err.splitlines()[-1].strip() == guess["says"]
    elif guess["runs"] in OPTIONS:
        assert (code, ran) == (0, [])
        assert "standfast" in out
    else:
        assert (code, ran) == (0, [guess["runs"]]), err


def test_there_are_enough_guesses_and_nine_of_ten_run() -> None:
    assert len(GUESSES) >= 150
    assert len({guess["typed"] for guess in GUESSES}) == len(GUESSES)
    assert all(set(guess) in ({"typed", "runs"}, {"typed", "says"}) for guess in GUESSES)
    assert sum("runs" in guess for guess in GUESSES) >= 0.9 * len(GUESSES)


@pytest.mark.parametrize("guess", WAITING, ids=lambda guess: guess["typed"])
def test_a_guess_for_a_future_command_runs_nothing_else(
    guess: Guess, ran: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """An alias never points at a missing command. The error names an existing command, or the help."""
    assert noun_of(guess) in TO_COME
    assert (app.run(shlex.split(guess["typed"])), ran) == (2, [])
    out, err = capsys.readouterr()
    hint = err.splitlines()[-1].split()
    assert out == ""
    assert hint[0] == "standfast"
    assert hint[1] in (*BY_NAME, *OPTIONS)


@pytest.fixture(scope="module")
def small_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with the names that the wrong inputs misspell."""
    data = tmp_path_factory.mktemp("wrong")
    with standfast.open(data / "standfast.db") as sf:
        with sf.session("fix-parser"):
            pass
        sf.loops.add("nightly", ["true"], every="1h", cwd="/")
        sf.tasks.add("flaky test in the parser")
    return data


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong["typed"])
def test_a_wrong_input_prints_the_error_and_the_line_to_type(
    wrong: dict[str, Any], small_store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """003-40: the error has the fact and a next line. A hint that is a whole command works when pasted. Nothing is
    changed.
    """
    monkeypatch.setenv("STANDFAST_DATA_DIR", str(small_store))
    monkeypatch.chdir(small_store)
    with standfast.open(small_store / "standfast.db") as sf:
        before = list(sf.rows("SELECT seq FROM event ORDER BY seq"))
    code = app.run(shlex.split(wrong["typed"]))
    out, err = capsys.readouterr()
    assert (code, out) == (wrong["exit"], ""), err
    fact, hint = err.splitlines()[0], err.splitlines()[-1]
    assert fact.startswith("standfast: ")
    assert wrong["says"] in fact
    assert hint.startswith("  ")
    if re.fullmatch(r"  standfast [a-z][^A-Z…]*", hint):
        assert app.run(shlex.split(hint)[1:]) == 0, capsys.readouterr().err
    with standfast.open(small_store / "standfast.db") as sf:
        assert list(sf.rows("SELECT seq FROM event ORDER BY seq")) == before


def test_there_are_forty_wrong_inputs() -> None:
    assert len({wrong["typed"] for wrong in WRONG}) == len(WRONG) >= 40


def test_an_alias_never_hides_a_command() -> None:
    single = {words for words in ALIASES if " " not in words}
    assert single & set(BY_NAME) == set()


def test_an_alias_of_a_command_leads_to_an_existing_command() -> None:
    root = app.build()
    for words, means in ALIASES.items():
        line = means.removeprefix("!").partition("  # ")[0].removeprefix("standfast ").split()
        noun = target(means)
        if noun not in BY_NAME:
            continue
        found = root.get_command(click.Context(root), noun)
        assert found is not None, words
        if isinstance(found, click.Group) and len(line) > 1 and not line[1].startswith("-"):
            assert line[1] in found.list_commands(click.Context(found)), words
