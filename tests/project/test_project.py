"""Checks of the project: tests without a network, imports, packages, counts."""

from __future__ import annotations

import ast
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tomllib
import zipfile
from importlib import metadata
from itertools import groupby
from pathlib import Path

import pytest

from tests import words
from tests.conftest import REAL_HOME_VARIABLE, TEST_ROOT, connects_refused, shuffled, store_appeared_in_the_real_home

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "standfast"
PROVE = ROOT / "prove" / "src" / "standfast_prove"
REQUIREMENTS = ROOT / "docs" / "internals" / "requirements.md"


def tracked_files() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode != 0:
        pytest.skip("not a git checkout: there is no list of tracked files")
    return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def run_python(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_tests_live_in_a_home_of_their_own() -> None:
    """000-32: the tests use a temporary home directory and never the real one."""
    assert Path.home().is_relative_to(TEST_ROOT)
    assert Path(os.environ["STANDFAST_DATA_DIR"]).is_relative_to(TEST_ROOT)
    assert Path(os.environ[REAL_HOME_VARIABLE]) != Path.home()
    assert not store_appeared_in_the_real_home()


@pytest.mark.parametrize(("host", "family"), [("192.0.2.1", socket.AF_INET), ("2001:db8::1", socket.AF_INET6)])
def test_a_connection_beyond_this_machine_is_refused_and_noticed(host: str, family: socket.AddressFamily) -> None:
    """000-4: the tests run without a network."""
    with socket.socket(family) as beyond, pytest.raises(OSError, match="no network"):
        beyond.connect((host, 443))
    assert connects_refused == [f"socket.connect to {(host, 443)}"]
    connects_refused.clear()


def test_a_seed_repeats_the_order_and_another_one_changes_it() -> None:
    """000-34: no test depends on the order of the tests."""
    tests = [f"{module}{test}" for module in "abc" for test in range(9)]
    first, again, other = (shuffled(tests, seed, groups=lambda name: name[:1]) for seed in (1, 1, 2))
    assert first == again != other
    assert sorted(first) == sorted(other) == tests
    assert len(list(groupby(first, key=lambda name: name[0]))) == 3  # the tests of a module stay together


def test_children_hear_a_hangup() -> None:
    """Under nohup, SIGHUP is ignored. Child processes of the tests must not inherit this."""
    command = [sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGHUP)"]
    assert subprocess.run(command).returncode == -signal.SIGHUP


def test_the_default_store_is_in_the_data_directory(tmp_path: Path) -> None:
    run_python("import standfast\nstandfast.open().close()", STANDFAST_DATA_DIR=str(tmp_path))
    assert (tmp_path / "standfast.db").is_file()
    assert not store_appeared_in_the_real_home()


def test_without_any_setting_the_store_is_in_the_home_directory(tmp_path: Path) -> None:
    """000-3, 003-6: the default store is a file in a predictable directory."""
    run_python(
        "import os\ndel os.environ['STANDFAST_DATA_DIR']\nimport standfast\nstandfast.open().close()",
        HOME=str(tmp_path),
    )
    assert (tmp_path / ".standfast" / "standfast.db").is_file()
    assert not store_appeared_in_the_real_home()


def test_the_version_is_one() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert metadata.version("standfast") == declared


def test_import_loads_nothing_heavy() -> None:
    heavy = ["psycopg", "asyncio", "mcp", "rich", "pydantic", "cronsim", "importlib.metadata", "importlib.resources"]
    loaded = run_python(f"import standfast, sys, json\nprint(json.dumps([m for m in {heavy!r} if m in sys.modules]))")
    assert json.loads(loaded) == []


def test_import_takes_less_than_60_ms_of_cpu() -> None:
    """DESIGN.md §3 (11): the CPU time of the import and of the first name used. The smallest of five runs counts."""
    code = "import time\nt = time.process_time()\nimport standfast\nstandfast.open\nprint(time.process_time() - t)"
    assert min(float(run_python(code)) for _ in range(5)) < 0.060


def test_only_the_cellar_knows_the_drivers() -> None:
    """003-17: one package talks to the database and migrates it. The evaluation inspects files and servers from
    outside.
    """
    drivers = {"apsw", "psycopg", "psycopg_pool", "sqlite3"}
    guilty = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in PACKAGE.rglob("*.py")
        if not path.is_relative_to(PACKAGE / "db")
        for name in sorted(imported(path) & drivers)
    ]
    assert guilty == []


def test_the_evaluation_needs_no_test_module() -> None:
    """An installed wheel has no tests and no pytest, so neither is imported or named as the code of a child
    process.

    The exception is `mutate`, which measures the tests and so needs the repository.
    """
    guilty = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in PROVE.rglob("*.py")
        if path.parent.name != "mutate"
        for name in (imported(path) & {"tests", "pytest"}) | set(re.findall(r"[\"']tests\.[\w.]*", path.read_text()))
    ]
    assert guilty == []


def imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names


def test_the_wheel_carries_every_file_of_the_package(tmp_path: Path) -> None:
    """003-14: the package includes the schema and its migrations."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    carried = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("standfast/")}
    ours = {
        path.relative_to(PACKAGE.parent).as_posix()
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert carried == ours
    assert "standfast/py.typed" in carried


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 130


def test_the_map_for_agents_is_short() -> None:
    assert len((ROOT / "AGENTS.md").read_text().splitlines()) <= 40


def test_the_licence_is_whole() -> None:
    text = (ROOT / "LICENSE").read_text()
    assert "Apache License" in text
    assert "END OF TERMS AND CONDITIONS" in text


def test_no_tracked_file_names_a_path_of_one_machine() -> None:
    places = [f"/{name}/" for name in ("work", "root")]
    named = []
    for path in tracked_files():
        try:
            lines = path.read_text().splitlines()
        except UnicodeDecodeError:
            continue  # a database of an old schema
        named += [
            f"{path.relative_to(ROOT)}:{number}"
            for number, line in enumerate(lines, 1)
            if any(p in line for p in places)
        ]
    assert named == []


def test_every_requirement_a_test_cites_exists() -> None:
    rows = re.findall(r"^\| (\d{3}-\d+) \|.*\| (.*)\|$", REQUIREMENTS.read_text(), flags=re.MULTILINE)
    known = {number for number, note in rows if "not built" not in note}
    cited = {
        (requirement, path.name)
        for path in (ROOT / "tests").rglob("*.py")
        for requirement in re.findall(r"\b00[0-3]-\d+\b", path.read_text())
    }
    assert known
    assert {pair for pair in cited if pair[0] not in known} == set()


def test_counts_of_avoided_words_only_fall() -> None:
    tracked_files()
    now = words.counted()
    wrong = [words.line(word, now[word]) for word, count in words.recorded().items() if now[word] != count]
    assert wrong == [], f"{words.FILE.name}: rephrase where a count rose; where it fell, paste the line or `make words`"


def test_the_workflows_cover_every_python_and_call_targets_that_exist() -> None:
    import yaml

    workflows = {path.stem: path.read_text() for path in (ROOT / ".github" / "workflows").glob("*.yml")}
    matrix = yaml.safe_load(workflows["test"])["jobs"]["test"]["strategy"]["matrix"]
    assert matrix == {"os": ["ubuntu-latest", "macos-latest"], "python": ["3.11", "3.12", "3.13", "3.14"]}
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    for name, text in workflows.items():
        assert yaml.safe_load(text)["name"] == name
        assert "has not been run yet" in text.splitlines()[0]
        assert set(re.findall(r"make (\w+)", text)) <= targets
