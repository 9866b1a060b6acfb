"""Work that takes more than 1 s prints its progress: a bar on a terminal, a line in a pipe."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import redirect_stderr
from pathlib import Path

import pytest

import standfast
from standfast.cli import app, progress
from standfast.cli.output import Out
from standfast.cli.progress import reported, watched
from standfast_prove.faults.daemons import until


class Seconds:
    """A clock that the test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def at_each_second(report: Callable[[str, int, int], None], clock: Seconds, seconds: int) -> None:
    for clock.now in range(seconds + 1):
        report("verifying", int(clock.now), seconds)


def test_in_a_pipe_progress_is_printed_after_1_s_and_then_every_5_s(capsys: pytest.CaptureFixture[str]) -> None:
    """003-40: stderr only, so that the data stays clean."""
    clock = Seconds()
    at_each_second(reported(Out(), clock), clock, 12)
    lines = [f"standfast: verifying: {n} of 12\n" for n in (1, 6, 11)]
    assert capsys.readouterr() == ("", "".join(lines))


def test_work_that_takes_less_than_a_second_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Seconds()
    report = reported(Out(), clock)
    clock.now = 0.9
    report("verifying", 1, 2)
    assert capsys.readouterr() == ("", "")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_a_bar_grows_and_the_answer_replaces_it(capsys: pytest.CaptureFixture[str]) -> None:
    """003-40: the bar is one line, which the answer overwrites."""
    with redirect_stderr(Terminal()) as terminal:
        clock, out = Seconds(), Out()
        at_each_second(reported(out, clock), clock, 2)
        out.text("done")
    drawn = terminal.getvalue()
    assert "████████████░░░░░░░░░░░░  50%  verifying: 1 of 2" in drawn
    assert "100%  verifying: 2 of 2" in drawn
    assert "\n" not in drawn
    assert drawn.endswith("\r\x1b[K")
    assert capsys.readouterr().out == "done\n"


def test_an_unknown_total_is_a_count() -> None:
    with redirect_stderr(Terminal()) as terminal:
        clock, out = Seconds(), Out()
        report = reported(out, clock)
        clock.now = 2
        report("indexing for the search", 1234, 0)
    assert terminal.getvalue() == "\r\x1b[Kindexing for the search: 1,234"


def test_work_that_reports_nothing_is_named_after_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """003-40: a part that reports nothing, or reported before the second was over."""
    monkeypatch.setattr(progress, "TICK_S", 0.001)
    clock = Seconds()
    with redirect_stderr(io.StringIO()) as said, watched(Out(), "backup test", clock) as report:
        clock.now = 2
        until(said.getvalue)
        report("checking", 1, 4)
        clock.now = 8
        until(lambda: said.getvalue().count("\n") == 2)
    assert said.getvalue() == "standfast: backup test …\nstandfast: checking: 1 of 4\n"


LONG = {
    "export fix-42 --to fix-42.zip": "exporting message: 1 of 1",
    "export --text record": "exporting records: 1 of 1",
    "import bundle fix-42.zip": "checking members",
    "import text record": "comparing records: 1 of 1",
    "store push pushed": "pushing events",
    "artifact verify": "reading artifacts: 1 of 1",
    "backup": "copying",
}
"""Each command over a second of work, and a line it prints in a pipe."""


def test_long_work_reports_how_far_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """003-40: each of these commands; here every line comes at once."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STANDFAST_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setattr(progress, "FIRST_S", 0.0)
    monkeypatch.setattr(progress, "LINE_EVERY_S", 0.0)
    with standfast.open(data_dir=tmp_path / "data") as sf:
        sf.tasks.add("flaky test")
        with sf.session("fix-42") as s:
            s.say("user", "fix it")
            sf.artifacts.put(b"log", name="build.log", session=s)
    missing = []
    for line, words in LONG.items():
        assert app.run(line.split()) == 0, line
        if f"standfast: {words}" not in (said := capsys.readouterr().err):
            missing.append((line, said))
    assert missing == []
