"""Five dependent tasks, in files and in the store: after a kill at any boundary the right task resumes."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
ORDER = ["fetch", "parse", "check", "build", "release"]
NAMES = ("tasks_five_in_files", "tasks_five_in_the_store")

# For each executed line of `main` one child is killed at this line. Two more children then run in the same directory.
DRIVER = textwrap.dedent("""
    import json, os, runpy, shutil, signal, sys
    example, place, step = sys.argv[1], sys.argv[2], int(sys.argv[3])
    module = runpy.run_path(example)
    os.environ["STANDFAST_DATA_DIR"] = "data"

    def child(kill_at):
        pid = os.fork()
        if pid == 0:
            lines = 0
            def trace(frame, event, arg):
                nonlocal lines
                if frame.f_code is not module["main"].__code__:
                    return None
                if event == "line":
                    lines += 1
                    if lines == kill_at:
                        os.kill(os.getpid(), signal.SIGKILL)
                return trace
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            if kill_at:
                sys.settrace(trace)
            module["main"]()
            os._exit(0)
        return os.waitpid(pid, 0)[1]

    def read(name):
        return open(name).read() if os.path.exists(name) else ""

    found, n = [], 0
    while True:
        n += step
        here = os.path.join(place, str(n))
        os.mkdir(here)
        os.chdir(here)
        killed = child(n)
        before = read("calls.tsv").split()[1:]
        codes = [child(0)]
        files = [read(name) for name in ("calls.tsv", "made.json", "plan.json")]
        codes.append(child(0))
        same = files == [read(name) for name in ("calls.tsv", "made.json", "plan.json")]
        calls = read("calls.tsv").split()[1:]
        found.append({"killed": killed == signal.SIGKILL, "codes": codes, "same": same, "before": before,
                      "calls": calls, "made": json.loads(read("made.json"))})
        os.chdir(place)
        shutil.rmtree(here)
        if killed == 0:
            break
    print(json.dumps(found))
""")


@pytest.mark.parametrize("name", NAMES)
def test_killed_at_some_boundaries_five_tasks_resume_at_the_right_one(name: str, tmp_path: Path) -> None:
    """001-78: a sample of the test below."""
    check(name, tmp_path, step=9)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_killed_at_every_boundary_five_tasks_resume_at_the_right_one(name: str, tmp_path: Path) -> None:
    """001-78: no finished task runs again, each task runs after its dependencies, and a second run changes nothing."""
    found = check(name, tmp_path, step=1)
    assert len(found) > 15
    assert any(one["before"] == ORDER[:3] for one in found)


def check(name: str, place: Path, *, step: int) -> list[dict[str, Any]]:
    command = [sys.executable, "-c", DRIVER, str(EXAMPLES / f"{name}.py"), str(place), str(step)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    assert [one["killed"] for one in found] == [True] * (len(found) - 1) + [False]
    for one in found:
        assert (one["codes"], one["same"]) == ([0, 0], True)
        assert list(dict.fromkeys(one["calls"])) == ORDER
        again = [task for task in ORDER if one["calls"].count(task) > 1]
        assert again in ([], one["before"][-1:])  # only the task in flight may run again
        assert one["made"]["release"] == " > fetch > parse > check +  > fetch > parse > build > release"
    return found
