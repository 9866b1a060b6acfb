"""A name that no session, loop or task has: the error names the nearest one, and its hint works when pasted."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any

import pytest

import standfast
from standfast import Standfast
from standfast.cli import app

MISSPELT: dict[str, tuple[Callable[[Standfast], Any], str, str]] = {
    "session show": (lambda sf: sf.sessions.show("fix-parsr"), "fix-parser", "session show fix-parser"),
    "session get, in capitals": (lambda sf: sf.sessions.get("FIX-PARSER"), "fix-parser", "session show fix-parser"),
    "timeline of a session": (lambda sf: sf.timeline(session="fix-prser"), "fix-parser", "session show fix-parser"),
    "search in a session": (lambda sf: sf.search("x", session="fix-paser"), "fix-parser", "session show fix-parser"),
    "task of a session": (lambda sf: sf.tasks.add("a", session="fix-parsre"), "fix-parser", "session show fix-parser"),
    "decision in a session": (
        lambda sf: sf.decisions.record("a", why="b", then="c", session="fixparser"),
        "fix-parser",
        "session show fix-parser",
    ),
    "mail in a session": (
        lambda sf: sf.mail.send("reviewer", "a", session="fix_parser"),
        "fix-parser",
        "session show fix-parser",
    ),
    "loop show": (lambda sf: sf.loops.get("nigthly"), "nightly", "loop show nightly"),
    "loop pause": (lambda sf: sf.loops.pause("nightl", reason="x"), "nightly", "loop show nightly"),
    "task by its title": (
        lambda sf: sf.tasks.show("Flaky tset in the parser"),
        "flaky test in the parser",
        "task show ",
    ),
    "task by its fingerprint": (lambda sf: sf.tasks.done("ci:parsr"), "ci:parser", "task show "),
}


@pytest.fixture
def named(sf: Standfast, engine_url: str, monkeypatch: pytest.MonkeyPatch) -> Standfast:
    with sf.session("fix-parser"):
        pass
    sf.loops.add("nightly", ["true"], every="1h", cwd="/")
    sf.tasks.add("flaky test in the parser")
    sf.tasks.add("the parser fails", fingerprint="ci:parser")
    monkeypatch.setenv("STANDFAST_DB_URL", engine_url)
    return sf


@pytest.mark.parametrize("case", MISSPELT)
def test_a_misspelt_name_gets_the_nearest_one(case: str, named: Standfast, capsys: pytest.CaptureFixture[str]) -> None:
    """003-40: the error asks "did you mean", and the command in the hint shows the nearest one."""
    act, meant, hint = MISSPELT[case]
    with pytest.raises(standfast.NotFound) as refused:
        act(named)
    assert f"in this scope; did you mean {meant!r}?" in refused.value.message
    assert refused.value.hint.startswith(f"standfast {hint}")
    assert app.run(shlex.split(refused.value.hint)[1:]) == 0
    assert meant in capsys.readouterr().out


def test_the_title_of_a_task_gets_its_id(named: Standfast) -> None:
    """003-40: the hint has the id, because the same title again would not help."""
    title = "flaky test in the parser"
    id = named.tasks.add(title).id[-6:]
    with pytest.raises(standfast.NotFound) as refused:
        named.tasks.done(title)
    assert refused.value.message == f"a task is named by its id, and {title!r} has the id {id}"
    assert refused.value.hint == f"standfast task show {id}"


@pytest.mark.parametrize("noun", ["sessions", "loops", "tasks"])
def test_a_name_that_is_near_to_none_gets_the_list(
    noun: str, named: Standfast, capsys: pytest.CaptureFixture[str]
) -> None:
    """003-40: a distant name would mislead, so the hint is the command that lists the names."""
    with pytest.raises(standfast.NotFound) as refused:
        getattr(named, noun).get("qqqqqqqqqq")
    assert "did you mean" not in refused.value.message
    assert app.run(shlex.split(refused.value.hint)[1:]) == 0
    assert capsys.readouterr().out != ""


def test_the_name_of_another_scope_is_not_suggested(named: Standfast, engine_url: str) -> None:
    """003-40: a hint must work in the scope in which it was printed."""
    with standfast.open(engine_url, scope="elsewhere") as other, pytest.raises(standfast.NotFound) as refused:
        other.sessions.show("fix-parsr")
    assert "did you mean" not in refused.value.message
