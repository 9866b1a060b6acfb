"""Every command that a text of ours tells people to type exists, with the options it is printed with."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from standfast.cli import app
from standfast.cli.registry import BY_NAME

ROOT = Path(__file__).resolve().parent.parent
TEXTS = [
    *sorted((ROOT / "src/standfast").rglob("*.py")),
    *sorted((ROOT / "prove/src").rglob("*.py")),
    *sorted((ROOT / "docs").rglob("*.md")),
    ROOT / "README.md",
    *sorted((ROOT / "examples").glob("*.py")),
]
LINE = re.compile(r"\bstandfast ((?:[a-z][a-z-]*)(?: [^`\n#|&;]*)?)")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
ELSEWHERE = ("cli/aliases.py",)


def command_of(words: list[str]) -> click.Command | None:
    house = app.build()
    if not words or words[0] not in BY_NAME:
        return None
    found = house.get_command(click.Context(house), words[0])
    if isinstance(found, click.Group) and len(words) > 1:
        return found.get_command(click.Context(found), words[1]) or found
    return found


def wrong_options(text: str) -> list[str]:
    """What stands behind `standfast NOUN VERB` on one line, up to whatever ends the command there."""
    wrong = []
    for line in LINE.findall(text):
        ours = re.split(r" -- |    | \(|\.  |\" if ", line)[0]
        command = command_of([word.strip("'\"`,.:;)") for word in ours.split()])
        if command is None:
            continue
        params = command.get_params(click.Context(command))
        known = {option for param in params for option in (*param.opts, *param.secondary_opts)}
        wrong += [f"standfast {ours}: {option}" for option in OPTION.findall(ours) if option not in known]
    return wrong


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_printed_command_has_the_options_it_is_printed_with(path: Path) -> None:
    if not str(path).endswith(ELSEWHERE):
        assert wrong_options(path.read_text()) == []
