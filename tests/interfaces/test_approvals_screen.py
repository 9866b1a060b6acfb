"""The screen of `standfast approve` in a real terminal shows exactly the question that was hashed."""

from __future__ import annotations

import inspect
import json
import os
import re
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
    "line ends": "x\r\nApprove? Type yes: \x0b\x0c\u2028\u2029",
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
    "what was decided": "UPDATE decision SET what = :text",
    "why it was decided": "UPDATE decision SET why = :text",
    "approver": "UPDATE approval SET approver = :text",
    "rationale": "UPDATE approval SET rationale = :text",
}
"""What an agent with SQL can write beside the question: none of it may change a character of the screen."""
INDEXED, INDEXED_MAX = ("scope", "session key", "key of the effect", "tool of the effect"), 100_000
"""PostgreSQL itself refuses longer text in an indexed column."""
PARTS = ("tool", "scope", "key", "directory")
SAID = ("requester", "session_key", "agent", "why", "decision", "description", "gate")
"""Every text of the stored question, the one column that the screen reads: `action` apart."""
LABELS = ("tool", "scope", "key", "runs in", "asked by", "session", "agent", "why", "decided", "describes", "gate")
INVISIBLE = set("\u202e\u2066\u200b\u200d\ufeff\u3164\u2028\u2029")
SESSION = (
    "INSERT INTO session (id, scope, key, state, openings, fence, created_us, updated_us)"
    " VALUES ('ses_1', '', 'night', 'waiting', 1, 1, 0, 0)"
)
DECISION = (
    "INSERT INTO decision (id, scope, repository, session_id, what, identity, n, state, actor, tags, created_us)"
    " VALUES ('dec_1', '', '', 'ses_1', 'deploy', 'x', 1, 'open', 'agent:7', '', 0)"
)
MARGIN = 12
WIDTH, HEIGHT = 100, 1200
"""High enough for all of it: what scrolls away or is cleared, the person does not see."""

if shutil.which("tmux") is None:
    pytest.skip("NOT SHOWN: the approval screen in a real terminal; tmux is not installed", allow_module_level=True)


class Screen:
    """A new terminal and the person who types in it."""

    def __init__(self, place: Path, url: str, *words: str) -> None:
        self._tmux = ["tmux", "-f", "/dev/null", "-S", str(place / "tmux")]
        variables = {"STANDFAST_DATA_DIR": str(place / "data"), "LC_ALL": "C.UTF-8", "USER": "ada"}
        variables["STANDFAST_DB_URL"] = url
        given = [f"{name}={value}" for name, value in variables.items()]
        line = shlex.join(["env", *given, sys.executable, "-c", MAIN, *words])
        environment = {**os.environ, "TMUX": "", "LC_ALL": "C.UTF-8"}
        size = ["-x", str(WIDTH), "-y", str(HEIGHT)]
        start = [*self._tmux, "new-session", "-d", *size, f"{line}; cat"]
        for tries_left in (2, 1, 0):  # on a busy machine tmux gives up on its own server ("server exited unexpectedly")
            if subprocess.run(start, check=tries_left == 0, cwd=place, env=environment).returncode == 0:
                break

    def text(self) -> str:
        """The text that is visible now, without text that was cleared or scrolled away."""
        asked = [*self._tmux, "capture-pane", "-p", "-J"]
        return subprocess.run(asked, check=True, capture_output=True, text=True).stdout.rstrip()

    def title(self) -> str:
        asked = [*self._tmux, "display-message", "-p", "#{pane_title}"]
        return subprocess.run(asked, check=True, capture_output=True, text=True).stdout

    def asks(self, timeout_s: float = 60) -> str:
        """Wait for the question. Hostile text above the question may contain the same words."""
        end = time.monotonic() + timeout_s
        while not (seen := self.text()).endswith("Approve? Type yes:"):
            assert time.monotonic() < end, seen[-3000:]
        return seen

    def close(self) -> None:
        subprocess.run([*self._tmux, "kill-server"], check=False, capture_output=True)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def sf(place: Path, engine_url: str) -> Iterator[standfast.Standfast]:
    with standfast.open(engine_url, data_dir=place / "data", agent="agent:7") as store:
        yield store


def read(place: Path, url: str, id: str) -> str:
    """The text that `standfast approve` shows, down to the prompt."""
    screen = Screen(place, url, "approve", id)
    try:
        seen = screen.asks()
        assert "owned" not in screen.title()
    finally:
        screen.close()
    return re.sub(r" \((in )?\d[^)]*\)$", "", seen, flags=re.MULTILINE)


def asked(sf: standfast.Standfast, intent: Any) -> str:
    with pytest.raises(ApprovalRequired) as caught:
        sf.effects.begin("deploy", intent, key="d:1", approve=True, why="release", context={"cwd": "/srv/app"})
    return caught.value.approval_id


def written(sf: standfast.Standfast, column: str, text: str) -> None:
    context = serial.canonical({"cwd": "/srv/app", text[:200]: text, "description": text, "host": text})
    sql = COLUMNS[column]
    text = text[:INDEXED_MAX] if column in INDEXED else text
    given = {"text": text} if ":text" in sql else {"context": context} if ":context" in sql else {}
    sf._store.write(lambda tx: tx.run(statement(sql), **given))


@pytest.mark.parametrize("kind", HOSTILE)
def test_no_other_column_changes_what_a_person_reads(
    sf: standfast.Standfast, place: Path, engine_url: str, kind: str
) -> None:
    """R12, 002-25, 002-49: hostile text in every column beside the question changes no character of the screen."""
    id = asked(sf, {"to": "PRODUCTION"})
    expected = read(place, engine_url, id)
    assert '│ {"to":"PRODUCTION"}' in expected
    assert "runs in     /srv/app" in expected
    assert "asked by    agent:7\nwhy         release\n" in expected
    sf._store.write(lambda tx: tx.run(statement(SESSION)))
    sf._store.write(lambda tx: tx.run(statement(DECISION)))
    for column in COLUMNS:
        written(sf, column, HOSTILE[kind])
    assert read(place, engine_url, id) == expected
    assert sf.approvals.get(id).state == "requested"


@pytest.mark.parametrize("kind", HOSTILE)
def test_no_part_of_the_question_passes_for_another(
    sf: standfast.Standfast, place: Path, engine_url: str, kind: str
) -> None:
    """R12, 002-25: an agent stores a forged question by SQL; the screen shows its text behind fixed labels."""
    id = asked(sf, {"to": "PRODUCTION"})
    text = HOSTILE[kind]
    stored = json.loads(sf.approvals.question(id).text or "")
    stored |= dict.fromkeys(PARTS, text[:20_000])
    stored["request"] |= dict.fromkeys(SAID, text)
    question = serial.canonical(stored)
    sql = "UPDATE approval SET question = :question, question_hash = :hash"
    sf._store.write(lambda tx: tx.run(statement(sql), question=question, hash=serial.hash_text(question)))
    seen = read(place, engine_url, id)
    lines = seen.splitlines()
    assert seen.endswith("Approve? Type yes:")
    assert [line for line in lines if line.startswith("│")] == ['│ {"to":"PRODUCTION"}']
    starts = [line[:MARGIN].rstrip() for line in lines if line and not line.startswith(("│", " "))]
    fixed = ["attempts", "The exact ac", "The request,", "asked", "expires", "Approve? Typ"]
    assert sorted(starts) == sorted([*LABELS, *fixed]), "a line begins with a fixed label or a margin"
    shown = json.dumps(text[:20_000])[1:-1].replace('\\"', '"')
    assert "".join(_behind(lines, "key")) == shown
    assert not set(seen) & INVISIBLE


def _behind(lines: list[str], label: str) -> Iterator[str]:
    first = next(n for n, line in enumerate(lines) if line.startswith(f"{label} "))
    yield lines[first][MARGIN:]
    for line in lines[first + 1 :]:
        if not line.startswith(" " * MARGIN):
            return
        yield line[MARGIN:]


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_action_is_shown_as_it_is_hashed(
    sf: standfast.Standfast, place: Path, engine_url: str, kind: str
) -> None:
    """R12: the screen shows each character of the action, behind a margin."""
    text = HOSTILE[kind] if len(HOSTILE[kind]) < 1000 else HOSTILE[kind][:20_000]
    id = asked(sf, {"to": f"PRODUCTION {text} end"})
    seen = read(place, engine_url, id)
    shown = "".join(line.removeprefix("│ ") for line in seen.splitlines() if line.startswith("│ "))
    exact = json.dumps({"to": f"PRODUCTION {text} end"}, ensure_ascii=True, separators=(",", ":"))
    assert shown == exact.replace("\x7f", "\\u007f")


def test_no_piece_is_wider_than_a_terminal_that_draws_every_character_in_two_columns() -> None:
    """R12: such a terminal would wrap a longer piece, and its rest would look like a new line."""
    from standfast.cli.approval_question import broken

    for text in ("é§─" * 100, "a漢ä" * 100, "e\u0301" * 200):
        pieces = list(broken(text, 80))
        assert "".join(pieces) == text
        assert all(sum(1 if c.isascii() else 2 for c in piece) <= 80 - MARGIN for piece in pieces)


@pytest.mark.parametrize("lacking", [{"intent": None}, {"text": None}])
def test_a_question_that_is_not_stored_is_reported(lacking: dict[str, None]) -> None:
    """An approver is never shown an empty action."""
    from standfast.cli.approval_question import _action
    from standfast.ledger.approvals import Question

    names = dict.fromkeys(inspect.signature(Question).parameters, "x") | lacking
    assert list(_action(Question(**names), 80)) == ["The question is not stored."]  # type: ignore[arg-type]
