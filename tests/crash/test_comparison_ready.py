"""`run_ready.py` of the comparison: the nine-part system without a probe of its own is killed at its requests."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "comparison"


@pytest.fixture
def ready(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    return importlib.import_module("run_ready")


def test_no_probe_is_written_and_nothing_is_sent_twice(ready: Any, tmp_path: Path) -> None:
    """002-15, 002-20: coder, reviewer and nightly job are killed after a request arrived, before they get an answer."""
    kills = [("coder", "4:0"), ("coder", "3:0"), ("reviewer", "2:0"), ("nightly", "2:0")]
    run = ready.ReadyRun(tmp_path, kills=kills, seed=1)
    tally = run.play()
    assert tally.kills == 4
    assert tally == ready.Tally(kills=4), (tally, (tmp_path / "stderr").read_text()[-2000:])
    assert sorted(run.world.log) == sorted(ready.EXPECTED)


def test_the_program_has_no_lookup_of_its_own() -> None:
    source = (EXAMPLE / "on_ready.py").read_text()
    assert "find" not in source
    assert "probe=" not in source
