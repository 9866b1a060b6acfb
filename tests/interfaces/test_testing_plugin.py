"""The pytest plugin for users' own agents, run as a user would: in a pytest of its own."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from pathlib import Path

import pytest

import standfast
from standfast import testing

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "test-your-agent.md"

AGENT = """
import os
import pathlib
import standfast

def world() -> list[str]:
    return pathlib.Path("world").read_text().split() if pathlib.Path("world").exists() else []

@standfast.effect("world.write", by=("word",))
def write(word: str) -> str:
    with open("world", "a") as file:
        file.write(word + "\\n")
    return word.upper()

@write.probe
def look(word: str) -> standfast.Applied | standfast.NotApplied:
    return standfast.Applied(word.upper()) if word in world() else standfast.NotApplied()

def careful(word: str) -> str:
    with standfast.open() as sf, sf.session("job") as s:
        s.step("plan", lambda: 1)
        return write(word)

def careless(word: str) -> str:
    return write.plain(word)

async def awaited(word: str) -> str:
    async with standfast.aopen() as sf, sf.session("job") as s:
        await s.step("plan", lambda: 1)
        return await s.effect(write, word=word)

async def broken() -> None:
    raise RuntimeError("it runs")

async def streaming():
    yield 1

def lazy():
    yield 1

class Hidden:
    def __call__(self):
        return streaming()

@standfast.step
def plan(issue: str) -> str:
    return f"fix {issue}"

@standfast.step
async def plan_awaited(issue: str) -> str:
    return f"fix {issue}"

@standfast.effect("world.write_awaited", by=("word",))
async def write_awaited(call: standfast.Call, word: str) -> str:
    return f"{write.plain(word)} {call.session}"
"""

TESTS = """
import pytest
import standfast
import asyncio
from agent import (
    Hidden, awaited, broken, careful, careless, lazy, plan, plan_awaited, streaming, world, write, write_awaited
)
from standfast.testing import unrecorded

@pytest.fixture(autouse=True)
def in_a_directory_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

@pytest.fixture
def anyio_backend():
    return "asyncio"

def test_a_fresh_store(sf):
    assert sf.leases.acquire("a").fence == 1
    with standfast.open() as same:
        assert same.leases.get("a").fence == 1

def test_another_store_is_refused(sf, tmp_path_factory):
    with pytest.raises(standfast.InvalidInput, match="may not open"):
        standfast.open(tmp_path_factory.mktemp("elsewhere") / "x.db")

def test_the_clock_is_moved_by_hand(sf, sf_clock):
    sf.leases.acquire("a")
    with pytest.raises(standfast.InProgress):
        sf.leases.acquire("a")
    sf_clock.advance("3h")
    assert sf.leases.acquire("a").fence == 2

def test_a_careful_agent_survives_every_crash(sf_crash):
    ends = list(sf_crash(careful, "hello"))
    assert len(ends) > 10
    for end in ends:
        assert (end.directory / "world").read_text() == "hello\\n", end
        assert (end.result, end.error) == ("HELLO", None), end
        with end.open() as store:
            assert [row["state"] for row in store.rows("SELECT state FROM effect")] == ["acknowledged"]
    assert ends[0].at == "not killed"
    assert any("effect.before_done" in end.at for end in ends)

def test_a_coroutine_function_is_awaited_in_each_of_its_lives(sf_crash):
    ends = list(sf_crash(awaited, "hello"))
    assert len(ends) > 10
    for end in ends:
        assert (end.directory / "world").read_text() == "hello\\n", end
        assert (end.result, end.error) == ("HELLO", None), end

def test_a_coroutine_function_that_raises_is_seen(sf_crash):
    (end,) = sf_crash(broken)
    assert (end.at, end.result, end.error, end.message) == ("not killed", None, "RuntimeError", "it runs")

@pytest.mark.parametrize("agent", [streaming, lazy, Hidden()])
def test_what_would_never_run_is_refused_by_name(sf_crash, agent):
    with pytest.raises(standfast.InvalidInput, match="generator"):
        list(sf_crash(agent))

def test_points_select_where_the_agent_is_killed(sf_crash):
    ends = list(sf_crash(careful, "hello", points="effect.*"))
    names = {end.at.removeprefix("killed at ").partition(":")[0] for end in ends[1:]}
    assert "effect.before_done" in names and all(name.startswith("effect.") for name in names)
    for points in ("efect.*", "effect.before_don"):
        with pytest.raises(standfast.InvalidInput, match="no crash point matches"):
            sf_crash(careful, "hello", points=points)
    with pytest.raises(standfast.InvalidInput, match="was passed"):
        list(sf_crash(careful, "hello", points="webhook.*"))

def test_the_first_failing_assert_ends_the_sweep(sf_crash, tmp_path):
    with pytest.raises(AssertionError, match="killed at "):
        for end in sf_crash(careful, "hello"):
            assert end.at == "not killed", end
    assert len(list((tmp_path / "crash-0").iterdir())) == 2

def counts(sf):
    return [next(iter(sf.rows(f"SELECT count(*) AS n FROM {table}")))["n"] for table in ("effect", "step", "session")]

def test_code_under_test_calls_effects_and_steps(sf_session):
    assert (plan("42"), write("hello")) == ("fix 42", "HELLO")
    assert counts(sf_session.store) == [1, 1, 1]

@pytest.mark.anyio
async def test_a_coroutine_under_test_calls_effects_and_steps(sf_session):
    assert await plan_awaited("42") == "fix 42"
    assert await write_awaited("hello") == f"HELLO {sf_session.key}"
    assert await asyncio.to_thread(write, "again") == "AGAIN"
    assert counts(sf_session.store) == [2, 1, 1]

def test_each_test_has_a_session_of_its_own_on_the_clock_it_moves(sf_session, sf, sf_clock):
    assert sf_session.resumed is None
    assert sf_session.store is sf
    assert counts(sf) == [0, 0, 1]

def test_unrecorded_functions_are_plain(sf_session):
    with unrecorded():
        assert (plan("42"), write("hello"), write("hello")) == ("fix 42", "HELLO", "HELLO")
        assert asyncio.run(write_awaited("hello")) == "HELLO None"
    assert world() == ["hello"] * 3
    assert counts(sf_session.store) == [0, 0, 1]
    assert write("recorded") == "RECORDED"
    assert counts(sf_session.store) == [1, 0, 1]

def test_unrecorded_needs_no_store():
    with unrecorded():
        assert write("hello") == "HELLO"
    with pytest.raises(standfast.NoSession):
        write("hello")
"""


def run_pytest(directory: Path, file: str, exit_code: int = 0) -> str:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", "."]
    done = subprocess.run([*command, file], cwd=directory, capture_output=True, text=True, timeout=240)
    assert done.returncode == exit_code, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_fixtures_do_what_their_docs_say(tmp_path: Path) -> None:
    """000-45: a user tests that an agent survives kills, offline and with the plugin alone. Async agents work, too."""
    (tmp_path / "agent.py").write_text(AGENT)
    (tmp_path / "test_agent.py").write_text(TESTS)
    assert "16 passed" in run_pytest(tmp_path, "test_agent.py")


UNREAD = """
from agent import careful

def test_whose_ends_are_never_read(sf_crash):
    sf_crash(careful, "hello")
"""


def test_ends_that_are_never_read_are_an_error(tmp_path: Path) -> None:
    """000-45: a test that runs nothing does not pass."""
    (tmp_path / "agent.py").write_text(AGENT)
    (tmp_path / "test_unread.py").write_text(UNREAD)
    said = run_pytest(tmp_path, "test_unread.py", exit_code=1)
    assert "1 error" in said
    assert "sf_crash(careful) ran nothing, because its ends were not read" in said


def test_a_program_imports_the_module_without_pytest(tmp_path: Path) -> None:
    """002-20: only the fixtures need pytest."""
    program = (
        "import sys; sys.modules['pytest'] = None\n"
        "from standfast.testing import Crash, End, unrecorded\n"
        "with unrecorded(): print(End.__name__)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("End\n", "")


MY_AGENT = """
import pathlib
import standfast

def find_pr(branch: str) -> str | None:
    return "pull/1" if pathlib.Path("server.log").exists() else None

@standfast.effect("github.open_pr", by=("repo", "branch"), find=find_pr)
def open_pr(repo: str, branch: str) -> str:
    with open("server.log", "a") as log:
        log.write(f"POST /pulls {repo} {branch}\\n")
    return "pull/1"

def publish(branch: str) -> str:
    return open_pr("a/b", branch)
"""


def test_the_first_page_runs_and_crashes_an_agent_in_eight_lines(tmp_path: Path) -> None:
    """000-45: the examples of the page run when pasted."""
    first, second = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len([line for line in first.splitlines() if line]) == 8
    (tmp_path / "my_agent.py").write_text(MY_AGENT)
    (tmp_path / "conftest.py").write_text(
        "import os, pytest\n@pytest.fixture(autouse=True)\ndef _(tmp_path): os.chdir(tmp_path)"
    )
    (tmp_path / "test_page.py").write_text(f"from my_agent import publish\n{first}\nimport standfast.testing\n{second}")
    assert "3 passed" in run_pytest(tmp_path, "test_page.py")


@standfast.step
def shout(word: str) -> str:
    return word.upper()


@standfast.effect("test.send", by=("word",))
async def send(call: standfast.Call, word: str) -> str:
    return f"{word} for {call.session}"


def test_a_session_for_the_code_under_test_is_on_either_engine(sf_session: standfast.Session) -> None:
    """001-27: effects and steps are recorded in the session of the test, also in coroutines."""
    assert (shout("hello"), asyncio.run(send("ada"))) == ("HELLO", "ada for test")
    with testing.unrecorded():
        assert (shout("hello"), asyncio.run(send("bob"))) == ("HELLO", "bob for None")
        assert asyncio.run(send.plain("eve")) == "eve for None"
    found = sf_session.store.effects.list(session="test")
    assert [(one.tool, one.intent) for one in found] == [("test.send", {"word": "ada"})]
