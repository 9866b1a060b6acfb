"""Tasks in a shell: each command is a process; one claims a task, another marks it done."""

from __future__ import annotations

import json
import os
import random
import shlex
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import standfast
from standfast import config, handle
from tests.interfaces.test_cli import MAIN, environment, run

WORKERS = 10
KILLS = 6
TASKS = int(os.environ.get("STANDFAST_TEST_TASKS", "60"))
"""Each costs two commands of about a fifth of a second of CPU."""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def said(*words: str, home: Path, **variables: str) -> Any:
    """The `data` of a command that must succeed."""
    done = run(*words, "--json", home=home, cwd=None, input=None, **variables)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["schema_version"] == 1
    return document["data"]


def test_a_task_is_added_claimed_and_done_in_a_shell(home: Path) -> None:
    """001-19: the command enforces the rules of the backlog. Every answer is JSON with a receipt."""
    added = said("task", "add", "Flaky  test", "--label", "ci", "--source", "nightly", "--priority", "1", home=home)
    assert (added["sighting"], added["labels"], added["receipt"]["seq"]) == ("new", ["ci"], 1)
    again = said("task", "add", "flaky TEST", "--source", "nightly", home=home)
    assert (again["id"], again["occurrences"], again["sighting"]) == (added["id"], 2, "again")
    assert [one["id"] for one in said("task", "next", home=home)] == [added["id"]]
    claimed = said("task", "claim", home=home, STANDFAST_ACTOR="ann")
    assert (claimed["id"], claimed["holder"], claimed["fence"]) == (added["id"], "a:ann", 1)
    assert said("task", "renew", claimed["id"][-6:], "--for", "1h", home=home, STANDFAST_ACTOR="ann")["fence"] == 1
    refused = run("task", "done", claimed["id"], "--json", home=home, STANDFAST_ACTOR="bob")
    assert (refused.returncode, json.loads(refused.stderr)["error"]["code"]) == (4, "lease_lost")
    done = said("task", "done", claimed["id"], "--result", "merged", home=home, STANDFAST_ACTOR="ann")
    assert (done["state"], done["result"], done["reason"]) == ("closed", "merged", "done")
    assert run("verify", json.dumps(done["receipt"]), home=home).returncode == 0
    shown = said("task", "show", claimed["id"], home=home)
    types = [event["type"] for event in shown["history"]]
    assert types == ["task.opened", "task.seen", "task.claimed", "task.closed"]


def test_an_empty_queue_has_its_own_exit_code(home: Path) -> None:
    assert run("task", "claim", home=home).returncode == 3
    assert not (home / ".standfast").exists()
    run("task", "add", "only one", home=home)
    assert run("task", "claim", home=home).stdout.startswith("tsk_")
    nothing = run("task", "claim", "--json", home=home, STANDFAST_ACTOR="bob")
    assert (nothing.returncode, nothing.stdout) == (3, "")
    assert json.loads(nothing.stderr)["error"]["code"] == "nothing_ready"


def test_every_verb_answers_in_json(home: Path) -> None:
    first = said("task", "add", "one", home=home)["id"]
    second = said("task", "add", "two", "--needs", first, home=home)["id"]
    assert (
        said("task", "edit", second, "--priority", "0", "--label", "x", "--assignee", "ann", home=home)["priority"] == 0
    )
    assert said("task", "edit", second, "--assignee", "", "--no-needs", first, home=home)["assignee"] is None
    assert said("task", "note", second, "a word", home=home)["text"] == "a word"
    assert said("task", "claim", second, home=home)["fence"] == 1
    assert said("task", "release", second, home=home)["holder"] is None
    assert said("task", "snooze", second, "--for", "2d", home=home)["state"] == "snoozed"
    assert said("task", "accept", second, "--reason", "known", home=home)["state"] == "accepted"
    assert said("task", "reopen", second, home=home)["state"] == "open"
    goal = said("task", "add", "goal", home=home)["id"]
    assert said("task", "edit", first, "--parent", goal, home=home)["parent_id"] == goal
    assert said("task", "list", "--goals", home=home)[0]["progress"]["total"] == 1
    page = json.loads(run("task", "list", "--limit", "2", "--json", home=home).stdout)
    assert [one["title"] for one in page["data"]] == ["two", "one"]
    rest = json.loads(run("task", "list", "--limit", "2", "--after", page["next"], "--json", home=home).stdout)
    assert ([one["title"] for one in rest["data"]], rest["next"]) == (["goal"], None)


def test_a_sweep_reads_titles_and_objects_from_a_pipe(home: Path) -> None:
    lines = 'disk is full\n{"title": "queue is long", "priority": 0}\n\n'
    swept = run("task", "sweep", "watch", "--json", home=home, input=lines)
    assert json.loads(swept.stdout)["data"]["seen"] == 2
    assert [one["title"] for one in said("task", "next", home=home)] == ["queue is long", "disk is full"]
    assert len(said("task", "sweep", "watch", "--nothing", "--absent-max", "1", home=home)["closed"]) == 2
    assert run("task", "sweep", "watch", home=home, input="{not json").returncode == 2


def test_future_times_are_parsed_as_people_type_them(home: Path) -> None:
    task = said("task", "add", "x", "--due", "2030-01-01", home=home)
    assert task["due_us"] > time.time_ns() // 1000
    for until in ("mon 09:00", "09:00", "2030-01-01", "3h", "in 2d"):
        asleep = said("task", "snooze", task["id"], "--until", until, home=home)
        assert asleep["snoozed_until_us"] > time.time_ns() // 1000
    assert run("task", "snooze", task["id"], "--until", "2020-01-01", home=home).returncode == 2
    assert run("task", "snooze", task["id"], home=home).returncode == 2


def test_a_person_sees_which_agents_are_suspect(home: Path) -> None:
    """001-64: their process is dead, and their task was not taken over yet."""
    run("task", "add", "left behind", home=home)
    sleeper = subprocess.Popen(["sleep", "60"])
    assert run("task", "claim", "--while", str(sleeper.pid), home=home).returncode == 0
    assert "reclaimable" not in run("task", "list", home=home).stdout
    sleeper.kill()
    sleeper.wait()
    assert "(gone: reclaimable)" in run("task", "list", home=home).stdout
    assert "(gone: reclaimable)" in run("task", "show", said("task", "list", home=home)[0]["id"], home=home).stdout
    claimed = said("task", "claim", home=home, STANDFAST_ACTOR="bob")
    assert (claimed["fence"], claimed["holder"]) == (2, "a:bob")
    refused = run("task", "claim", "--while", str(sleeper.pid), home=home)
    assert (refused.returncode, "there is no process" in refused.stderr) == (2, True)


def test_any_command_of_an_actor_renews_what_it_holds(home: Path) -> None:
    run("task", "add", "one", home=home)
    held = said("task", "claim", home=home, STANDFAST_ACTOR="ann")
    assert run("status", home=home, STANDFAST_ACTOR="bob").returncode == 0
    assert said("task", "list", home=home, STANDFAST_ACTOR="bob")[0]["lease_until_us"] == held["lease_until_us"]
    assert run("where", home=home, STANDFAST_ACTOR="ann").returncode == 0
    assert run("timeline", home=home, STANDFAST_ACTOR="ann").returncode == 0
    assert said("task", "list", home=home, STANDFAST_ACTOR="bob")[0]["lease_until_us"] > held["lease_until_us"]


# -- ten shell workers -----------------------------------------------------------------------------------

WORKER = """
while :; do
    id=$({standfast} task claim {tie} --json 2>/dev/null | sed -n 's/.*"data": {{"id": "\\([a-z0-9_]*\\)".*/\\1/p')
    [ -n "$id" ] || exit 0
    echo "$STANDFAST_ACTOR $id" >> began
    {standfast} task done "$id" --result "$STANDFAST_ACTOR" >/dev/null 2>&1 && echo "$STANDFAST_ACTOR $id" >> finished
done
"""


class Workers:
    """Shells that claim tasks and finish them. Some are killed between two commands or during one."""

    def __init__(self, url: str, place: Path) -> None:
        self._url, self._place = url, place
        self._shells: dict[str, subprocess.Popen[bytes]] = {}
        self._count = 0
        self.killed = 0

    def start(self, count: int) -> None:
        for _ in range(count):
            self._count += 1
            name = f"worker-{self._count}"
            # Most workers hold a task while their shell is alive, the others for 2 s after their last command.
            tie = "--for 2s" if self._count % 4 == 0 else "--while $$"
            standfast_ = f"{shlex.quote(sys.executable)} -c {shlex.quote(MAIN)}"
            variables = {"STANDFAST_ACTOR": name, "STANDFAST_DB_URL": self._url}
            self._shells[name] = subprocess.Popen(
                ["sh", "-c", WORKER.format(standfast=standfast_, tie=tie)],
                cwd=self._place,
                env=environment(self._place, **variables),
                start_new_session=True,
            )

    def alive(self) -> list[str]:
        return [name for name, shell in self._shells.items() if shell.poll() is None]

    def kill(self, name: str, *, whole: bool) -> None:
        """Kill only the shell, whose command continues as an orphan, or also all its child processes."""
        shell = self._shells[name]
        if shell.poll() is None:
            os.killpg(shell.pid, signal.SIGKILL) if whole else shell.kill()
            shell.wait()
            self.killed += 1

    def end(self) -> None:
        for name in self.alive():
            self.kill(name, whole=True)


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


@pytest.mark.slow
def test_ten_shell_workers_some_killed_do_each_task_exactly_once(engine_url: str, tmp_path: Path) -> None:
    """One process claims a task, another finishes it. The next worker gets a killed worker's task."""
    place, draw = tmp_path / "place", random.Random(1)
    place.mkdir()
    settings = config.load(engine_url, data_dir=place / ".standfast", outside=True)
    with handle.connect(settings) as sf, sf.transaction() as tx:
        for n in range(TASKS):
            tx.tasks.add(f"task {n}")
    workers = Workers(engine_url, place)
    end = time.monotonic() + 240
    with handle.connect(settings) as sf, sf._store.watch() as watch:
        try:
            workers.start(WORKERS)
            while sf.tasks.list(limit=1):
                assert time.monotonic() < end, "the work was not done in four minutes"
                begun = len(lines(place / "began"))
                if workers.killed < KILLS and begun > (workers.killed + 1) * TASKS // (KILLS + 2) and workers.alive():
                    workers.kill(draw.choice(workers.alive()), whole=draw.random() < 0.5)
                if len(workers.alive()) < WORKERS // 2:
                    # the workers that found nothing ready have exited; the tasks of the dead ones are ready again
                    workers.start(1)
                watch.wait(0.2)
        finally:
            workers.end()
        assert workers.killed >= KILLS
        check(sf, Counter(line.split()[1] for line in lines(place / "finished")))


def check(sf: standfast.Standfast, finished: Counter[str]) -> None:
    tasks = sf.tasks.list(state="any", limit=1000)
    assert len(tasks) == TASKS
    for task in tasks:
        told = sf.tasks.history(task, limit=1000)
        claims = [event for event in told if event.type in ("task.claimed", "task.taken_over")]
        (closed,) = [event for event in told if event.type == "task.closed"]
        # Its last holder closed it, with the last fence and its own result.
        assert (closed.agent, task.result, task.fence) == (claims[-1].agent, claims[-1].agent, len(claims))
    assert set(finished) <= {task.id for task in tasks}
    assert set(finished.values()) == {1}  # each answer once; a killed worker may have missed it


def test_the_workers_of_this_page_are_the_ones_in_the_docs() -> None:
    page = (Path(__file__).parents[2] / "docs" / "concepts" / "tasks.md").read_text()
    assert "standfast task claim --while $$" in page
