"""The same crash schedules for each library. The harness counts what reached the outside system."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(("name", "doubled"), [("standfast", False), ("json", True)])
def test_a_killed_agent_repeats_nothing_here_and_something_there(name: str, doubled: bool, tmp_path: Path) -> None:
    """002-33: a store that records no intent before the effect repeats the effect. A file outside the store counts
    requests.
    """
    command = [sys.executable, "-m", "standfast_prove.bench.crashes.driver", name, str(tmp_path), "", "2", "0"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *(one for one in sys.path if one)])}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    tally = json.loads(done.stdout.splitlines()[-1])
    assert (tally["schedules"], tally["lost"], tally["never_ended"]) == (8, 0, 0)
    assert tally["kills"] >= 6
    assert bool(tally["duplicated"]) is doubled
    assert bool(tally["in_doubt"]) is not doubled
