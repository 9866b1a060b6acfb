"""Mutation testing: which places in the code it changes, and that tests which execute a changed place catch it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from standfast_prove.mutate import gaps, mutants, python, run, sql, tree
from standfast_prove.mutate.call_map import CallMap, Recorded

ROOT = Path(__file__).resolve().parents[2]
LIMITS = b'''"""Module text."""
def fits(size, spare=None):
    """Docstring 1."""
    if size <= 10 and spare is None:
        return size + 1
    log.info("left out %s", 1)
    raise ValueError(f"{size} is past {10}")
'''
TINY_TEST = """
import runpy

fits = runpy.run_path("src/standfast/limits.py")["fits"]

def test_ten_fits():
    assert fits(10) == 11
"""
STATEMENT = b"""
-- name: claim
-- A comment with WHERE a = b stays as it is.
UPDATE task SET holder = :holder, note = 'a, b'
WHERE id = :id AND (holder IS NULL OR {lease_over})
RETURNING id

-- name: page
SELECT id FROM task WHERE seq < :seq ORDER BY seq DESC LIMIT :limit {skip_locked}
"""
SCHEMA = b"""
CREATE TABLE task (
    id     TEXT NOT NULL PRIMARY KEY,
    state  TEXT CHECK (state IN ('open', 'done')),
    owner  TEXT REFERENCES agent (id) ON DELETE CASCADE,
    UNIQUE (state, owner)
);
CREATE UNIQUE INDEX task_by_owner ON task (owner);
"""


def changes(found: list[mutants.Mutant]) -> list[str]:
    return [mutant.change for mutant in found]


def test_python_is_changed_in_conditions_constants_and_results_but_not_in_texts() -> None:
    assert changes(python.mutants("limits.py", LIMITS)) == [
        "condition negated",
        "and before spare is None becomes or",
        "size <= 10 becomes True",
        "spare is None becomes True",
        "<= becomes <",
        "10 becomes 11",
        "is becomes is not",
        "return None",
        "+ becomes -",
        "1 becomes 2",
        "statement deleted",
    ]


def test_a_statement_loses_a_condition_an_assignment_its_order_or_its_lock() -> None:
    found = [(m.function, m.change, m.original) for m in sql.statements("task.sql", STATEMENT)]
    assert [entry for entry in found if "becomes" not in entry[1]] == [
        ("claim", "condition dropped (AND)", "id = :id"),
        ("claim", "condition dropped (AND)", "(holder IS NULL OR {lease_over})"),
        ("claim", "condition dropped (OR)", "holder IS NULL"),
        ("claim", "condition dropped (OR)", "{lease_over}"),
        ("claim", "assignment dropped", "holder = :holder"),
        ("claim", "assignment dropped", "note = 'a, b'"),
        ("page", "condition dropped (AND)", "seq < :seq"),
        ("page", "ORDER BY dropped", "ORDER BY seq DESC"),
        ("page", "lock dropped", "{skip_locked}"),
    ]
    dropped = next(m for m in sql.statements("task.sql", STATEMENT) if m.original == "id = :id")
    assert b"WHERE (id = :id OR 1 = 1) AND (holder IS NULL OR {lease_over})" in dropped.applied(STATEMENT)


def test_the_schema_loses_each_constraint() -> None:
    assert changes(sql.schema("m.sql", SCHEMA)) == [
        "NOT NULL dropped",
        "CHECK dropped",
        "foreign key dropped",
        "UNIQUE dropped",
        "UNIQUE dropped",
    ]


def test_a_seed_repeats_its_sample_and_another_one_gives_another() -> None:
    found = python.mutants("limits.py", LIMITS)
    first, again, other = (mutants.sample(found, seed=seed, count=5) for seed in (1, 1, 2))
    assert first == again != other


@pytest.mark.slow
def test_each_equivalent_mutant_exists_and_has_its_reason() -> None:
    """An entry whose code changed is out of date: remove the entry, or look at the new mutant."""
    known = {mutant.identity for mutant in mutants.found(ROOT)}
    listed = mutants.equivalent()
    assert [entry for entry in listed if entry not in known] == []
    assert all(len(reason.split()) > 3 for reason in listed.values())


def test_each_gap_applies_and_names_a_test_that_exists() -> None:
    """002-8: there are 31 groups of gaps. If the code of a gap changes, its entry in gaps.toml must change, too."""
    package, listed = ROOT / mutants.PACKAGE, gaps.listed()
    page = (ROOT / "docs/internals/prove.md").read_text()
    assert {gap.group for gap in listed} == set(range(1, 32))
    for gap in [*listed, *gaps.listed("repairs.toml")]:
        source = (package / gap.file).read_text()
        assert gap.text in source.partition(gap.within)[2], f"{gap.file}: {gap.text!r} is not after {gap.within!r}"
        assert gap.applied(source) != source
        file, _, name = gap.test.partition("::")
        assert f"\ndef {name.partition('[')[0]}(" in (ROOT / file).read_text(), gap.test
        assert name.removeprefix("test_") in page, f"docs/internals/prove.md does not name {name}"


@pytest.mark.slow
def test_the_tests_of_all_gaps_and_repairs_exist() -> None:
    names = {gap.test for file in ("gaps.toml", "repairs.toml") for gap in gaps.listed(file)}
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *sorted(names)]
    alone = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    listed = subprocess.run(command, cwd=ROOT, env=alone, capture_output=True, text=True)
    assert listed.returncode == 0, listed.stdout + listed.stderr


def test_a_gap_is_caught_by_its_test_or_survives(tmp_path: Path) -> None:
    root = tmp_path / "tiny"
    for file, text in (("src/standfast/limits.py", LIMITS), ("tests/test_limits.py", TINY_TEST.encode())):
        (root / file).parent.mkdir(parents=True)
        (root / file).write_bytes(text)
    (root / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    test = "tests/test_limits.py::test_ten_fits"
    both = [
        gaps.Gap(group=1, what="", file="limits.py", within="def fits", text=text, becomes=becomes, test=test)
        for text, becomes in (("<=", "<"), ("<= 10", "<= 11"))
    ]
    said: list[str] = []
    assert not gaps.run_all(both, root=root, place=tmp_path, server="", say=said.append)
    assert [line.split()[0] for line in said] == ["caught", "SURVIVED", "1"]
    assert (tmp_path / "tree-gaps/src/standfast/limits.py").read_bytes() == LIMITS


@pytest.mark.slow
def test_a_mutant_is_applied_caught_and_taken_back(tmp_path: Path) -> None:
    """A small tree with one module and one test: the test catches one change and misses another."""
    root = tmp_path / "tiny"
    for file, text in (("src/standfast/limits.py", LIMITS), ("tests/test_limits.py", TINY_TEST.encode())):
        (root / file).parent.mkdir(parents=True)
        (root / file).write_bytes(text)
    (root / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    copy = tree.make(root, tmp_path / "copy")
    test = Recorded(test="tests/test_limits.py::test_ten_fits", seconds=0.0)
    found = {mutant.change: mutant for mutant in mutants.found(root)}
    caught = run.run_one(found["<= becomes <"], [[test]], copy=copy)
    assert (caught.result, caught.by) == ("caught", test.test)
    assert run.run_one(found["10 becomes 11"], [[test]], copy=copy).result == "survived"
    assert (copy / "src/standfast/limits.py").read_bytes() == LIMITS


@pytest.mark.slow
def test_the_tests_of_ids_catch_a_sample_of_mutants(tmp_path: Path) -> None:
    """The sample is recorded, changed and tested as `make mutate` does it for all tests."""
    tests = CallMap(ROOT, tmp_path / "map")
    tests.record(tree.make(ROOT, tmp_path / "copy"), "tests/features/test_ids.py")
    tests.load()
    found = [m for m in mutants.found(ROOT) if m.file == "ids.py" and m.function in ("is_id", "prefix_of", "time_us")]
    results: list[run.Result] = []
    chosen = mutants.sample(found, seed=0, count=6)
    run.run_all(chosen, tests, root=ROOT, place=tmp_path, seconds=60, say=results.append)
    assert [result.mutant for result in results if result.result != "caught"] == []
    assert len(results) == 6
