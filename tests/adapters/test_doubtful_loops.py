"""Some agent frameworks pass an error to the LLM as text, and the LLM tries variations. None of them is sent."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import standfast
from tests import frameworks
from tests.adapters.test_agent_loops import ROOT
from tests.sampling import sampled

NEEDED: dict[str, list[str]] = {
    "langgraph": [],
    "langgraph_default": [],
    "openai_agents": [frameworks.OPENAI_AGENTS],
    "openai_agents_default": [frameworks.OPENAI_AGENTS],
    "pydantic_ai": [frameworks.PYDANTIC_AI],
    "pydantic_ai_default": [frameworks.PYDANTIC_AI],
}
TEXT = ["langgraph", "openai_agents", "openai_agents_default", "pydantic_ai"]
"""Where the LLM gets a text, and continues; elsewhere the error ends the run."""


def run(framework: str, directory: Path, store: str) -> dict[str, Any]:
    if framework.startswith("langgraph"):
        pytest.importorskip("langgraph", reason="pip install '.[dev]' brings LangGraph")
    path = os.pathsep.join([str(ROOT), *frameworks.places(*NEEDED[framework])])
    done = subprocess.run(
        [sys.executable, "-m", "tests.doubtful_loops", framework, str(directory), store],
        capture_output=True,
        text=True,
        cwd=directory,
        env={**os.environ, "PYTHONPATH": path},
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


@pytest.mark.parametrize("framework", sampled(NEEDED, "langgraph"))
def test_an_llm_that_varies_its_arguments_after_a_doubt_sends_nothing(
    framework: str, engine_url: str, tmp_path: Path
) -> None:
    """000-36, 002-10: the framework continues in this run and in the next one, and the charge is sent once."""
    first, second = (run(framework, tmp_path, engine_url) for _ in range(2))
    assert (tmp_path / "world").read_text().splitlines() == ["1042"]
    if framework in TEXT:
        assert len(first["answers"]) == len(second["answers"]) == 3
        for told in [*first["answers"][1:], *second["answers"]]:
            said = "Please try again" if framework.endswith("default") else "bank.charge order=1042 is in doubt"
            assert said in told
    else:
        assert first["error"] is not None
        assert second["error"] == "EffectInDoubt"
    with standfast.open(engine_url, data_dir=tmp_path / "data") as sf:
        (work,) = [one for one in sf.sessions.list(everywhere=True) if one.key == "work"]
        assert work.state == "waiting"
        assert [effect.intent for effect in sf.effects.list(everywhere=True)] == [{"order": "1042"}]
