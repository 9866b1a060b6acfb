"""The screen of `standfast approve` in a real terminal: what a person sees is the question that was hashed."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import standfast
from standfast import serial
from standfast.db.sql import statement
from standfast.errors import ApprovalRequired

MAIN = "import sys; from standfast.cli import main; sys.exit(main())"
REDRAW = '\x1b[2J\x1b[Hto be done: {"to": "staging"}\x1b[23;24r\x1b[24;1H'
HOSTILE = {
    "escape sequences": REDRAW,
    "a title and a C1 control": "\x1b]0;owned\x07\x9b2J",
    "bidi marks": "\u202egnigats\u2066",
    "zero-width characters": "\u200bPRO\u200dDUCTION\ufeff\u3164",
    "line ends": "x\r\nType yes to approve harmless: \x0b\x0c\u2028\u2029",
    "a line of 1 MB": "A" * 1_000_000,
}
COLUMNS = {
    "requester": "UPDATE approval SET requester = :text",
    "why": "UPDATE approval SET why = :text",
    "gate": "UPDATE approval SET gate = :text",
    "tool": "UPDATE approval SET tool = :text",
    "scope": "UPDATE approval SET scope = :text",
    "session id": "UPDATE approval SET session_id = 'ses_1'",
    "session key": "UPDATE session SET key = :text",
    "agent": "UPDATE session SET agent = :text",
    "names and values of the context": "UPDATE effect SET context = :context",
    "key of the effect": "UPDATE effect SET key = :text",
    "tool of the effect": "UPDATE effect SET tool = :text",
}
"""What an agent with SQL can write into the rows that the screen is made of, the question's own columns apart."""
SESSION = (
    "INSERT INTO session (id, scope, key, state, openings, fence, created_us, updated_us)"
    " VALUES ('ses_1', '', 'night', 'waiting', 1, 1, 0, 0)"
)
WIDTH, HEIGHT = 100, 400
"""High enough for all of it: what scrolls away or is cleared, the person does not see."""

if shutil.which("tmux") is None:
    pytest.skip("NOT SHOWN: the approval screen in a real terminal; tmux is not installed", allow_module_level=True)


class Screen:
    """A terminal of its own, with a person in front of it."""

    def __init__(self, place: Path, *words: str) -> None:
        self._tmux = ["tmux", "-f", "/dev/null", "-S", str(place / "tmux")]
        variables = {"STANDFAST_DATA_DIR": str(place / "data"), "LC_ALL": "C.UTF-8", "USER": "ada"}
        given = [f"{name}={value}" for name, value in variables.items()]
        line = shlex.join(["env", *given, sys.executable, "-c", MAIN, *words])
        environment = {**os.environ, "TMUX": "", "LC_ALL": "C.UTF-8"}
        size = ["-x", str(WIDTH), "-y", str(HEIGHT)]
        subprocess.run(
            [*self._tmux, "new-session", "-d", *size, f"{line}; cat"], check=True, cwd=place, env=environment
        )

    def text(self) -> str:
        """What the person sees now. Nothing that was cleared or scrolled away is part of it."""
        asked = [*self._tmux, "capture-pane", "-p", "-J"]
        return subprocess.run(asked, check=True, capture_output=True, text=True).stdout.rstrip()

    def title(self) -> str:
        asked = [*self._tmux, "display-message", "-p", "#{pane_title}"]
        return subprocess.run(asked, check=True, capture_output=True, text=True).stdout

    def shows(self, text: str, timeout_s: float = 60) -> str:
        end = time.monotonic() + timeout_s
        while text not in (seen := self.text()):
            assert time.monotonic() < end, seen[-3000:]
        return seen

    def close(self) -> None:
        subprocess.run([*self._tmux, "kill-server"], check=False, capture_output=True)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def sf(place: Path) -> Iterator[standfast.Standfast]:
    with standfast.open(data_dir=place / "data", actor="agent:7") as store:
        yield store


def asked(sf: standfast.Standfast, intent: Any) -> str:
    with pytest.raises(ApprovalRequired) as caught:
        sf.effects.begin("deploy", intent, key="d:1", approve=True, why="release", context={"cwd": "/srv/app"})
    return caught.value.approval_id


def question_on(screen: str) -> str:
    """The question as the person reads it: the lines above the requester's own words."""
    start = screen.index("approval    apr_")
    return screen[start : screen.index("\nNot part of the question")].rstrip()


def written(sf: standfast.Standfast, column: str, text: str) -> None:
    context = serial.canonical({"cwd": "/srv/app", text[:200]: text, "description": text, "host": text})
    sql = COLUMNS[column]
    given = {"text": text} if ":text" in sql else {"context": context} if ":context" in sql else {}
    sf._store.write(lambda tx: tx.run(statement(sql), **given))


@pytest.mark.parametrize("kind", HOSTILE)
def test_no_column_changes_the_question_that_a_person_reads(sf: standfast.Standfast, place: Path, kind: str) -> None:
    """R12, 002-25, 002-49: every column that the screen reads holds hostile text; the question stays the same."""
    id = asked(sf, {"to": "PRODUCTION"})
    honest = Screen(place, "approval", "show", id)
    try:
        expected = question_on(honest.shows("expires   "))
    finally:
        honest.close()
    assert '│ {"to":"PRODUCTION"}' in expected
    assert "runs in     /srv/app" in expected
    sf._store.write(lambda tx: tx.run(statement(SESSION)))
    for column in COLUMNS:
        written(sf, column, HOSTILE[kind])
    screen = Screen(place, "approve", id)
    try:
        seen = screen.shows("Type yes to approve deploy:")
        assert question_on(seen) == expected
        assert seen.startswith(expected), "nothing stands above the question"
        assert seen.endswith("Type yes to approve deploy:")
        assert sum(line.startswith("Type yes to approve") for line in seen.splitlines()) == 1
        assert "owned" not in screen.title()
        assert not set(seen) & set("\u202e\u2066\u200b\u200d\ufeff\u3164\u2028\u2029")
        assert len(seen) < 20_000, "the requester's words are cut, the question is not"
    finally:
        screen.close()
    assert sf.approvals.get(id).state == "requested"


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_action_is_shown_as_it_is_hashed(sf: standfast.Standfast, place: Path, kind: str) -> None:
    """R12: what stands behind the margin on the screen is the action, character by character."""
    text = HOSTILE[kind] if len(HOSTILE[kind]) < 1000 else HOSTILE[kind][:20_000]
    id = asked(sf, {"to": f"PRODUCTION {text} end"})
    screen = Screen(place, "approve", id)
    try:
        seen = screen.shows("Type yes to approve deploy:")
        shown = "".join(line.removeprefix("│ ") for line in seen.splitlines() if line.startswith("│ "))
        exact = json.dumps({"to": f"PRODUCTION {text} end"}, ensure_ascii=True, separators=(",", ":"))
        exact = exact.replace("\x7f", "\\u007f")
        assert shown == exact
        assert "owned" not in screen.title()
    finally:
        screen.close()
