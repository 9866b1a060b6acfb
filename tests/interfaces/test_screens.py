"""The operator's screens over a messy store: each question has one command, and every printed hint works."""

from __future__ import annotations

import re
import shlex
from datetime import UTC

import pytest

from standfast.cli import app
from standfast.when import shown
from tests.messy import Messy

QUESTIONS = {
    "what needs me": ("status", ("github.open_pr", "release-42", "github.com/acme/shop", "failed")),
    "what happened on Tuesday at 3am": (
        'timeline "DAY 03:00 UTC"',
        ("run.failed", "no such table", "still in doubt", "assistant: I open the pull request. → Bash: git status"),
    ),
    "what failed": (
        "timeline --since 9d --problems",
        ("run.failed", "out of memory", "503", "connection reset (still", "did not run"),
    ),
    "what did not run": ("loop runs --all --state absent", ("nightly", "absent", "no daemon fired it", "/infra")),
    "effects in doubt": ("effect list --in-doubt --all", ("github.open_pr", "in doubt", "release-42")),
    "who approved what": ("approval list --state any --all", ("ada@vm:pts/1", "not on a Tuesday", "deploy to=prod")),
    "which sessions wait": ("session list --state waiting --all", ("deploy", "denied", "not on a Tuesday")),
    "which repositories retry most": (
        'sql "SELECT origin, SUM(attempt - 1) AS n FROM effect WHERE attempt > 1 GROUP BY origin ORDER BY 2 DESC"',
        ("github.com/acme/site\t2",),
    ),
}
SCREENS = (
    "status --all",
    "timeline --since 9d",
    "approval list",
    "approval list --state any --all",
    "session list --all",
    "session show release-42",
    "effect list --all",
    "decision list --all",
    "loop list --all",
    "loop runs --all",
    "top --once --all",
    "doctor",
    "brief",
)
"""Screens whose hints are pasted."""
REFUSED_WITHOUT_A_PERSON = 5


@pytest.fixture(scope="module")
def messy(tmp_path_factory: pytest.TempPathFactory) -> Messy:
    made = Messy(tmp_path_factory.mktemp("messy"))
    made.fill()
    return made


def ask(
    messy: Messy, line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], where: str = ""
) -> tuple[int, str, str]:
    monkeypatch.setenv("STANDFAST_DATA_DIR", str(messy.data))
    monkeypatch.chdir(messy.home / where)
    code = app.run(shlex.split(line))
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.parametrize("question", QUESTIONS)
def test_one_command_answers_the_question(
    messy: Messy, question: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """000-16, 000-17, 000-18: outside every repository, one command has the answer."""
    line, expected = QUESTIONS[question]
    line = line.replace("DAY", shown(messy.night_us, UTC).local[:3])
    code, out, err = ask(messy, line, monkeypatch, capsys)
    assert code == 0, err
    assert [part for part in expected if part not in out] == [], out


def hints(text: str) -> list[str]:
    """The commands that a screen prints: after `next:`, on a line of their own, or between backticks."""
    found = re.findall(r"(?m)^(?:next: |  or: | *)(standfast [a-z][^\n]*)$", text) + re.findall(
        r"`(standfast [a-z][^`]*)`", text
    )
    return list(dict.fromkeys(found))


@pytest.mark.parametrize("where", ["shop", "infra"])
def test_every_printed_hint_works_where_it_was_printed(
    messy: Messy, where: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """003-40: pasted in the same directory, each command runs, or says that a person has to type it."""
    pasted = []
    for screen in SCREENS:
        _, out, err = ask(messy, screen, monkeypatch, capsys, where)
        for hint in hints(out + "\n" + err):
            if " effect resolve " in hint or " decision done " in hint:  # these would change rows
                hint = " ".join(shlex.split(hint)[:3]) + " --help"
            hint = re.sub("^standfast approve ", "standfast approval show ", hint)  # this one would wait
            code, _, said = ask(messy, hint.removeprefix("standfast "), monkeypatch, capsys, where)
            assert code in (0, REFUSED_WITHOUT_A_PERSON) or hint == "standfast daemon status", (screen, hint, said)
            pasted.append(hint)
    assert len(pasted) >= 5


@pytest.mark.parametrize("where", ["shop", "site"])
def test_inside_a_repository_the_rest_is_counted(
    messy: Messy, where: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """000-17: inside a repository, lists are filtered, but `status` also counts items that wait in others."""
    _, out, _ = ask(messy, "status", monkeypatch, capsys, where)
    assert re.search(r"\d+ items? waits? in \d+ other repositor(y|ies)|items wait in", out), out


@pytest.mark.parametrize("where", ["", "infra"])
def test_status_ends_with_the_command_of_the_first_item(
    messy: Messy, where: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """000-17: the next command resolves the waiting item; it is no page of help."""
    _, out, err = ask(messy, "status", monkeypatch, capsys, where)
    first = next(line.strip() for line in out.splitlines() if line.strip().startswith("standfast "))
    assert err.splitlines()[-1] == f"next: {first}"
    assert ", 3 repositories\n" in out
    assert "sessions: 1 completed, 2 failed, 1 waiting; " in out


def test_a_span_is_headed_by_its_start_and_end(
    messy: Messy, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """003-40: a time is printed before the span only if the command line has it."""
    monkeypatch.setenv("TZ", "UTC")
    day = r"[A-Z][a-z]{2} [0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:]{8}"
    _, out, _ = ask(messy, "timeline --since 9d", monkeypatch, capsys)
    assert re.fullmatch(rf"{day} to {day} UTC", out.splitlines()[0])
    _, out, _ = ask(messy, 'timeline "mon 03:00"', monkeypatch, capsys)
    assert re.fullmatch(r"Mon [0-9-]{10} 03:00:00 UTC: [0-9-]{10} 02:30:00 to 03:30:00", out.splitlines()[0])
