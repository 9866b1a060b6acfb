"""One agent in four frameworks, killed at the worst moment: its tools are effects in each of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import standfast
from tests import frameworks
from tests.slow import sampled

FRAMEWORKS: dict[str, list[str]] = {
    "plain": [],
    "langgraph": [],
    "openai_agents": [frameworks.OPENAI_AGENTS],
    "openai_agents_awaited": [frameworks.OPENAI_AGENTS],
    "pydantic_ai": [frameworks.PYDANTIC_AI],
}
ROOT = Path(__file__).resolve().parent.parent


def lives(framework: str, tool: str, directory: Path) -> list[dict[str, Any]]:
    """The agent's lives, each from the top: the first ends in the middle of its effect."""
    if framework == "langgraph":
        pytest.importorskip("langgraph", reason="pip install '.[dev]' brings LangGraph")
    path = os.pathsep.join([str(ROOT), *frameworks.places(*FRAMEWORKS[framework])])
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.agent_loops", framework, str(directory), tool],
        capture_output=True,
        text=True,
        cwd=directory,
        env={**environment, "PYTHONPATH": path},
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def changed(directory: Path) -> list[str]:
    return (directory / "world").read_text().splitlines()


@pytest.mark.parametrize("framework", sampled(FRAMEWORKS, "plain", "langgraph", "openai_agents", "pydantic_ai"))
def test_an_agent_killed_in_the_middle_of_its_effect_resumes_and_there_is_one(framework: str, tmp_path: Path) -> None:
    """000-1, 002-10: killed between the effect and its record, run again from the top; the world was changed once."""
    first, second = lives(framework, "open_pr", tmp_path)
    assert first["code"] == -signal.SIGKILL
    assert second["code"] == 0, second["said"]
    assert json.loads(second["said"]) == [{"url": "pull/1"}]
    assert len(changed(tmp_path)) == 1


@pytest.mark.parametrize("framework", sampled(["langgraph", "openai_agents", "pydantic_ai"], "langgraph"))
def test_what_nobody_can_answer_stops_the_run_instead_of_being_done_again(framework: str, tmp_path: Path) -> None:
    """002-10: without a probe the next life is told that the effect is in doubt, in every framework."""
    first, second = lives(framework, "push", tmp_path)
    assert first["code"] == -signal.SIGKILL
    assert second["code"] == 1
    assert "is in doubt" in second["said"]
    assert len(changed(tmp_path)) == 1
    with standfast.open(tmp_path / "store.db", data_dir=tmp_path / "data") as sf:
        sessions = [one for one in sf.sessions.list(everywhere=True) if one.key == "work"]
        assert [one.state for one in sessions] == ["waiting"], "somebody will come back to it"
