"""Every command in the texts of this project exists and has the printed options."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from standfast.cli import app
from standfast.cli.frame import Noun
from standfast.cli.registry import BY_NAME

ROOT = Path(__file__).resolve().parents[2]
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
    root = app.build()
    if not words or words[0] not in BY_NAME:
        return None
    found = root.get_command(click.Context(root), words[0])
    if isinstance(found, click.Group) and len(words) > 1:
        default = found.default if isinstance(found, Noun) and words[1].startswith("-") else None
        return found.get_command(click.Context(found), default or words[1]) or found
    return found


def wrong_options(text: str) -> list[str]:
    """The unknown options in the rest of a line after `standfast NOUN VERB`, up to the end of the command."""
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
        text = path.read_text()
        assert wrong_options(text) == []
        assert wrong_options("\n".join(built(text)) if path.suffix == ".py" else "") == []


def built(source: str) -> Iterator[str]:
    """The commands that calls of `hints.command` build, with VALUE for each word that is not a constant."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "hints.command":
            words = (str(word.value) if isinstance(word, ast.Constant) else "VALUE" for word in node.args)
            yield f"standfast {' '.join(words)}"


# A command within a text ends at one of these characters or at the end of the text.
END = re.compile(r"[;,)\n]|\.(?:\s|$)|    | && | \|\| ")
COMMAND = re.compile(rf"\bstandfast (?:{'|'.join(sorted(BY_NAME))})(?![\w-])")
SOURCES = [path for path in TEXTS if path.suffix == ".py" and "src" in path.parts]


def texts_with_values(tree: ast.AST) -> Iterator[tuple[int, list[str | None]]]:
    """The line and the parts of each text that is built from parts. None represents a value."""
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield node.lineno, [part.value if isinstance(part, ast.Constant) else None for part in node.values]
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mod):
            left = node.left.value if isinstance(node.left, ast.Constant) else None
            yield node.lineno, [left if isinstance(left, str) else None, None]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format":
            text = node.func.value
            yield node.lineno, [text.value, None] if isinstance(text, ast.Constant) else [None]


def is_open(text: str, was_open: bool) -> bool:
    """Whether a value after this text would be a word of a command."""
    ends = [command.end() for command in COMMAND.finditer(text)]
    return (was_open or bool(ends)) and END.search(text, max(ends, default=0)) is None


TEMPLATE = re.compile(rf"{COMMAND.pattern}[^;,)\n]*\{{[a-z_]+\}}")
"""A text for `.format`, wherever that is called."""


def quoted_by_hand(source: str) -> list[int]:
    """Lines that put a value into a command without `hints.command`, which would quote the value."""
    if "standfast " not in source:
        return []
    tree = ast.parse(source)
    texts = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    found = [node.lineno for node in texts if "standfast " in node.value and TEMPLATE.search(node.value)]
    for line, parts in texts_with_values(tree):
        command = False
        for part in parts:
            if part is None and command:
                found.append(line)
                break
            command = is_open(part, command) if part is not None else command
    return found


def test_one_function_quotes_the_values_in_a_printed_command() -> None:
    """R30: a printed line is safe to paste, even if a name in it has a semicolon."""
    found = [f"{path.relative_to(ROOT)}:{line}" for path in SOURCES for line in quoted_by_hand(path.read_text())]
    assert found == [], "build it with hints.command(word, word, …)"


def test_a_command_that_is_quoted_by_hand_is_found() -> None:
    for source in (
        'f"standfast effect show {row}"',
        'f"see it: standfast task show {short(id)} --json"',
        'f"x {a}; standfast lock {shlex.quote(name)} --release"',
        '"standfast mail read " + id',
        '"run: standfast mail read %s" % id',
        '"standfast approve {}".format(id)',
        'hint("standfast task claim {id}")',
    ):
        assert quoted_by_hand(source) == [1], source
    for source in (
        "f\"look: {hints.command('effect', 'show', id)}; then: standfast doctor\"",
        'f"this standfast reads formats up to {FORMAT}"',
        'f"wait for it: {waiting}    (who holds what: standfast lock) {x}"',
    ):
        assert quoted_by_hand(source) == [], source
