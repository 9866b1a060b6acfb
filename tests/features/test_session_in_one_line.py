"""`standfast.session` opens store and session in one line. Errors for wrong uses name the next line to write."""

from __future__ import annotations

import gc
import warnings
from pathlib import Path

import pytest

import standfast
from standfast.errors import InvalidInput, StandfastError


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STANDFAST_DATA_DIR", str(tmp_path / "home"))
    monkeypatch.delenv("STANDFAST_DB_URL", raising=False)
    return tmp_path / "home"


def test_one_line_opens_the_store_and_the_session_and_closes_both(home: Path) -> None:
    """001-6, 001-27: the same key resumes the session. The agent's name is both the actor and the session's agent."""
    with standfast.session("fix-42", agent="coder") as s:
        assert s.step("plan", lambda: "a plan") == "a plan"
        assert (s.agent, s.store.agent, s.resumed) == ("coder", "coder", None)
        store = s.store
    assert (home / "standfast.db").exists()
    with pytest.raises(StandfastError):
        store.tasks.list()
    with standfast.session("fix-42", agent="coder") as s:
        assert s.step("plan", lambda: "another plan") == "a plan"
        assert s.resumed is not None


def test_an_error_fails_the_session_and_closes_the_store() -> None:
    """001-27: the error is raised unchanged, and the store is closed."""
    s = standfast.session("fix-42")
    with pytest.raises(ZeroDivisionError), s:
        1 / 0  # noqa: B018
    with pytest.raises(InvalidInput):
        s.store  # noqa: B018
    with standfast.open() as sf:
        assert sf.sessions.get("fix-42").state == "failed"


def test_a_session_that_cannot_be_opened_leaves_no_open_store() -> None:
    """002-20: another handle has the session, so entering raises. The caller can try again later."""
    with standfast.session("fix-42") as s:
        second = standfast.session("fix-42")
        with pytest.raises(standfast.InProgress):
            second.open()
        assert s.step("one", lambda: 1) == 1
    with second:
        assert second.step("one", lambda: 2) == 1
        with pytest.raises(InvalidInput, match="is open already"):
            second.open()
        assert second.store.tasks.list() == []


def test_open_and_close_without_a_block() -> None:
    """001-27: open and close without `with`, as in a notebook. A second close changes nothing."""
    s = standfast.session("notes", agent="me").open()
    assert s.step("one", lambda: 1) == 1
    s.close()
    s.close()
    with pytest.raises(InvalidInput):
        s.step("two", lambda: 2)
    with standfast.open() as sf:
        assert sf.sessions.get("notes").state == "completed"


def test_in_a_session_of_a_handle_the_store_is_the_handle() -> None:
    with standfast.open() as sf:
        with sf.session("fix-42") as s:
            assert s.store is sf
        sf.tasks.list()


def forget() -> None:
    standfast.session("fix-42")
    gc.collect()


def test_a_session_that_was_never_entered_warns() -> None:
    """002-20: without `with`, the session is not opened, and Python warns."""
    with pytest.warns(RuntimeWarning, match="session 'fix-42' was never entered"):
        forget()


def test_a_decision_without_a_block_warns_unless_it_is_closed() -> None:
    """002-20: without `with`, the decision stays open, and Python warns."""
    with standfast.session("fix-42") as s:
        with pytest.warns(RuntimeWarning, match="stays open"):
            s.decide("edit parser.py", why="the test names it")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            s.decide("edit lexer.py", why="the test names it").done("edited")


def test_a_name_of_the_other_object_is_refused_with_its_place() -> None:
    """002-20: the store has no steps and a session has no tasks. Each error names the object that has them."""
    with standfast.open() as sf, sf.session("fix-42") as s:
        with pytest.raises(AttributeError, match=r"no attribute 'step': a session has it"):
            sf.step("plan", lambda: 1)  # type: ignore[attr-defined]
        with pytest.raises(AttributeError, match=r"the store has it: s\.store\.tasks"):
            s.tasks.add("x")  # type: ignore[attr-defined]
        with pytest.raises(AttributeError, match=r"no attribute 'taks': did you mean 'tasks'\?$"):
            sf.taks  # type: ignore[attr-defined]  # noqa: B018
