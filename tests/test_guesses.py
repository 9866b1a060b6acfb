"""What people and models type before they read the help works, or says the one line to copy."""

from __future__ import annotations

import shlex
import tomllib
from pathlib import Path
from typing import Any

import click
import pytest

from standfast.cli import app
from standfast.cli.aliases import ALIASES, target
from standfast.cli.frame import Command
from standfast.cli.registry import BY_NAME

Guess = dict[str, str]
GUESSES: list[Guess] = tomllib.loads((Path(__file__).parent / "guesses.toml").read_text())["guesses"]
OPTIONS = ("--version", "--help")


def noun_of(guess: Guess) -> str:
    line = guess.get("runs") or guess["says"].removeprefix("standfast ")
    return line.split()[0]


ALIVE = [guess for guess in GUESSES if noun_of(guess) in (*BY_NAME, *OPTIONS)]
WAITING = [guess for guess in GUESSES if guess not in ALIVE]


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Commands are parsed in full and not run: what would have run is listed here."""
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


def test_guesses_for_commands_still_to_come_are_counted() -> None:
    if WAITING:
        nouns = ", ".join(sorted({noun_of(guess) for guess in WAITING}))
        pytest.skip(f"{len(WAITING)} of {len(GUESSES)} guesses wait for commands that do not exist yet: {nouns}")


def test_an_alias_never_hides_a_command() -> None:
    single = {words for words in ALIASES if " " not in words}
    assert single & set(BY_NAME) == set()


def test_an_alias_of_a_living_command_leads_to_a_living_verb() -> None:
    house = app.build()
    for words, means in ALIASES.items():
        line = means.removeprefix("!").partition("  # ")[0].removeprefix("standfast ").split()
        noun = target(means)
        if noun not in BY_NAME:
            continue
        found = house.get_command(click.Context(house), noun)
        assert found is not None, words
        if isinstance(found, click.Group) and len(line) > 1 and not line[1].startswith("-"):
            assert line[1] in found.list_commands(click.Context(found)), words
