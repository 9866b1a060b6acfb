"""All printed text passes one cleaner, names follow one rule, and one function quotes hints."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import standfast
import standfast_prove
from standfast import hints
from standfast.cli import render
from standfast.core import keys
from standfast.errors import InvalidInput
from tests.interfaces.test_cli import on_a_terminal, run

ROOT = Path(standfast.__file__).parent
PROVE = Path(standfast_prove.__file__).parent
HOSTILE = {
    "escape": "\x1b[2J\x1b[H",
    "title": "\x1b]0;owned\x07",
    "C1": "\x9b31m",
    "carriage return": "\rstandfast: ok",
    "backspace": "\x08\x08",
    "delete": "\x7f",
    "bidi override": "\u202egnp.exe",
    "bidi isolate": "\u2066x",
    "zero width": "a\u200bb\u200dc\ufeff",
    "soft hyphen": "a\u00adb",
    "tag": "\U000e0041",
    "line separator": "a\u2028b",
}
SEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\U000e0041]"
)
OURS = re.compile("\x1b\\[[0-9]+m")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def harmful(text: str) -> list[str]:
    """Characters that a terminal would hide or execute, except standfast's own colours and line ends."""
    return SEEN.findall(OURS.sub("", text.replace("\r\n", "\n")))


# -- the cleaner ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", HOSTILE)
def test_the_cleaner_leaves_nothing_that_a_terminal_obeys(kind: str) -> None:
    """R38, 002-49: lines, blocks and JSON."""
    text = f"before{HOSTILE[kind]}after"
    for cleaned in (render.clean(text), render.clean(text, exact=True), render.clean_lines(text), render.printed(text)):
        assert harmful(cleaned) == []
        assert cleaned.startswith("before")
        assert cleaned.endswith("after")


def test_stored_text_cannot_imitate_our_colours() -> None:
    """The mark of a colour has a random number. Text without this number is printed as it is."""
    assert render.printed(render.styled("x", "red", color=True)) == "\x1b[31mx\x1b[0m"
    for imitation in ("\x1b[31mx\x1b[0m", "\x1b<0123456789abcdef>31mx"):
        assert "\x1b" not in render.printed(imitation)


def test_json_keeps_its_value_and_moves_no_cursor() -> None:
    import json

    from standfast.cli.output import dumps

    value = {"text": "".join(HOSTILE.values()), "ü": "漢\n\t"}
    assert harmful(dumps(value)) == []
    assert json.loads(dumps(value)) == value


def test_every_printed_line_passes_the_terminal_filter() -> None:
    """Only the listed modules of the command line write to a stream themselves."""
    allowed = {
        "output.py": "the cleaner's own place",
        "hook.py": "what agents read: JSON, and the usage",
        "artifact.py": "the bytes of an artifact, to a file or a pipe",
        "once_run.py": "the recorded bytes of a command, to a pipe",
        "child.py": "the live output of a command",
        "approve.py": "the terminal itself, after the cleaner",
        "search.py": "a count of our own",
        "top.py": "the frame of the screen; each line is cleaned",
        "import_.py": "a bar of our own",
        "prove_run.py": "a bar of our own",
        "__init__.py": "a sentence of our own",
        "frame.py": "help of our own",
    }
    direct = re.compile(r"\bprint\(|\bclick\.echo\(|sys\.std(?:out|err)(?:\.buffer)?\.write\(|os\.write\((?:1|2),")
    found = {
        path.name
        for path in [*(ROOT / "cli").glob("*.py"), *(PROVE / "cli").glob("*.py")]
        if any(direct.search(line) and "printed(" not in line for line in path.read_text().splitlines())
    }
    assert found - set(allowed) == set()


# -- output ----------------------------------------------------------------------------------------------


def _fill(sf: standfast.Standfast, text: str) -> None:
    sf.state.set("k", text)
    sf.tasks.add("a task", body=text)
    sf.decisions.record(text, why=text)
    sf.mail.send("bob", text, subject="s")
    with sf.session("night") as s:
        s.say("user", text)
    sf.events.append("orders", "made", {"x": text})


COMMANDS = (
    "status",
    "brief",
    "timeline",
    "timeline --md",
    "state get k",
    "state list",
    "session show night",
    "session list",
    "task list",
    "decision list",
    "mail list bob",
    "event list orders",
    "event diff orders --from 0",
    "search before",
    "sql SELECT\tvalue\tFROM\tstate",
)


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_sends_stored_bytes_to_the_terminal(home: Path, command: str) -> None:
    """R38: escape sequences, direction marks and invisible characters in every kind of text."""
    from standfast import config, handle

    with handle.connect(config.load(data_dir=home / ".standfast", outside=True)) as sf:
        _fill(sf, "before " + "".join(HOSTILE.values()) + " after")
    words = [word.replace("\t", " ") for word in command.split(" ")]
    for more in ((),) if "--md" in words else ((), ("--json",)):  # one format per call
        seen = on_a_terminal(*words, *more, home=home)
        assert harmful(seen) == [], (command, more)


def test_a_pipe_gets_the_exact_value(home: Path) -> None:
    """`state get` in a script prints a value with a tab, an escape character or several lines exactly as stored."""
    value = "a\tb\n\x1b[31mred\u202e"
    run("state", "set", "k", "-", "--as", "text", home=home, input=value)
    assert run("state", "get", "k", home=home).stdout == value + "\n"
    assert harmful(on_a_terminal("state", "get", "k", home=home)) == []


def test_a_replay_is_exact_in_a_pipe_and_clean_on_a_terminal(home: Path) -> None:
    """R38: the recorded output of another run comes from outside."""
    words = ("once", "k", "--", "printf", r"\033]0;owned\007red\n")
    assert run(*words, home=home).stdout == "\x1b]0;owned\x07red\n"
    assert run(*words, home=home).stdout == "\x1b]0;owned\x07red\n"
    seen = on_a_terminal(*words, home=home, NO_COLOR="1")
    assert harmful(seen) == []
    assert "red" in seen


def test_markdown_is_escaped(home: Path) -> None:
    """R38: `timeline --md` may be pasted into web pages, so no text of another author becomes an image, a link or a
    tag.
    """
    hostile = "<img src=x onerror=alert(1)> ![a](http://x/y.png) [click](javascript:x) `code` a|b *bold* https://x.org"
    run("decide", hostile, "--why", "w", "--then", "t", home=home)
    shown = run("timeline", "--md", home=home).stdout
    assert "alert" in shown
    for live in ("<img", "![a]", "](http", "](javascript", "`code`", "a|b", "*bold*"):
        assert live not in shown


# -- names -----------------------------------------------------------------------------------------------


def _entered(session: standfast.Session) -> None:
    with session:
        pass


NAMED: dict[str, Callable[[standfast.Standfast, str], Any]] = {
    "a lock": lambda sf, name: sf.leases.acquire(name),
    "a session": lambda sf, name: sf.sessions.open(name),
    "a state's key": lambda sf, name: sf.state.set(name, 1),
    "a namespace": lambda sf, name: sf.state.set("k", 1, namespace=name),
    "an agent": lambda sf, name: sf.agents.set(name, status="idle"),
    "a session's agent": lambda sf, name: sf.sessions.open("named", agent=name),
    "the agent of a with block": lambda sf, name: _entered(sf.session("entered", agent=name)),
    "a decision's agent": lambda sf, name: sf.decisions.record("w", agent=name),
    "a loop": lambda sf, name: sf.loops.add(name, ["true"], every="1h"),
    "a stream": lambda sf, name: sf.events.append(name, "t", {}),
    "an address": lambda sf, name: sf.mail.send(name, "x"),
    "an account": lambda sf, name: sf.credits.grant(name, 1, unit="eur", key="k"),
    "a credit's key": lambda sf, name: sf.credits.grant("a", 1, unit="eur", key=name),
    "an effect's key": lambda sf, name: sf.effects.plan("t", {}, key=name),
    "a tool": lambda sf, name: sf.effects.plan(name, {}),
    "a fingerprint": lambda sf, name: sf.tasks.add("t", fingerprint=name),
}


@pytest.mark.parametrize("noun", NAMED)
def test_names_of_all_kinds_follow_one_rule(sf: standfast.Standfast, noun: str) -> None:
    """R38: a name has no control, direction or zero-width characters. All scripts are allowed."""
    for kind, text in HOSTILE.items():
        taken = False
        with suppress(InvalidInput):
            NAMED[noun](sf, f"x{text}y")
            taken = True
        assert not taken, f"{noun} with {kind}"
    NAMED[noun](sf, "größe-漢字-наш")


def test_a_title_may_hold_an_emoji_that_is_joined_by_zero_width_characters(sf: standfast.Standfast) -> None:
    """The rule of names does not apply to a title, which is cleaned when it is printed."""
    assert sf.tasks.add("fix 👩\u200d💻 page").title == "fix 👩\u200d💻 page"
    with pytest.raises(InvalidInput):
        keys.checked("fix 👩\u200d💻 page", "a name")


# -- hints -----------------------------------------------------------------------------------------------


def test_a_hint_can_be_pasted(home: Path, tmp_path: Path) -> None:
    """R30: a name with shell syntax is quoted as one word."""
    name = "x;touch PASTED #"
    done = run("lock", name, "--for", "5m", home=home, cwd=tmp_path)
    (line,) = [line.removeprefix("next: ") for line in done.stderr.splitlines() if line.startswith("next: ")]
    script = f"standfast() {{ {sys.executable} -c 'import sys; print(sys.argv[1:])' \"$@\"; }}\n{line}\n"
    said = subprocess.run(["sh", "-c", script], cwd=tmp_path, capture_output=True, text=True, env=os.environ)
    assert said.stdout == f"{['lock', name, '--release']}\n"
    assert not (tmp_path / "PASTED").exists()


def test_arguments_are_quoted_where_the_shell_needs_it() -> None:
    assert hints.command("lock", "deploy", "--release") == "standfast lock deploy --release"
    assert hints.command("lock", "a b", "") == "standfast lock 'a b' ''"
    assert hints.word("größe") == "'größe'"
