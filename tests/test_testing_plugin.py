"""The pytest plugin for users' own agents, run as a user would: in a pytest of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from standfast import crash

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
        return s.effect(write, word=word)

def careless(word: str) -> str:
    return write(word)

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
"""

TESTS = """
import pytest
import standfast
from agent import Hidden, awaited, broken, careful, careless, lazy, streaming

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
    ends = sf_crash(careful, "hello")
    assert len(ends) > 10
    for end in ends:
        assert (end.directory / "world").read_text() == "hello\\n", end
        assert (end.result, end.error) == ("HELLO", None), end
        with end.open() as store:
            assert [row["state"] for row in store.rows("SELECT state FROM effect")] == ["acknowledged"]
    assert ends[0].at == "not killed"
    assert any("effect.before_done" in end.at for end in ends)

def test_a_coroutine_function_is_awaited_in_each_of_its_lives(sf_crash):
    ends = sf_crash(awaited, "hello")
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
        sf_crash(agent)
"""


def test_the_fixtures_do_what_their_docs_say(tmp_path: Path) -> None:
    """000-45: a user's agent is shown to survive, offline, with nothing but the plugin; async agents too."""
    (tmp_path / "agent.py").write_text(AGENT)
    (tmp_path / "test_agent.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", "."]
    done = subprocess.run([*command, "test_agent.py"], cwd=tmp_path, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "9 passed" in done.stdout


def test_every_crash_point_is_documented() -> None:
    """The names are public: `STANDFAST_CRASH_AT` takes them."""
    page = (Path(__file__).parent.parent / "docs" / "testing.md").read_text()
    assert [name for name, moment in crash.POINTS.items() if f"| `{name}` | {moment} |" not in page] == []
