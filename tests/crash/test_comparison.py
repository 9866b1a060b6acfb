"""`examples/comparison`: kills the nine-part system, and checks its number of lines, its concepts and its page."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import standfast
from standfast.testing import Crash

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "comparison"
PAGE = ROOT / "docs" / "comparison.md"
LINES_MAX = 40
DOTTED = re.compile(r"(standfast|sf|s)(\.\w+)+")
CONCEPTS = {
    "session": {"standfast.session", "standfast.open", "s.store"},
    "step": {"standfast.step"},
    "effect with by and find": {"standfast.effect", "by=", "find="},
    "approve": {"approve=", "wait="},
    "ask": {"s.ask", "sf.mail.answer"},
    "decide": {"s.decide"},
    "loop": {"s.store.loops.add"},
    "sf_crash": {"sf_crash", "standfast.testing"},
    "timeline": {"sf.timeline"},
}


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Run the script `run.py` in a new directory."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STANDFAST_DATA_DIR", str(tmp_path / "standfast"))
    return importlib.import_module("run")


def test_with_lookups_every_lost_answer_is_found_and_nothing_is_sent_twice(run: Any, tmp_path: Path) -> None:
    """002-20: coder, reviewer and nightly job are killed after their request arrived and before they get the answer."""
    kills = [("coder", "4:0"), ("coder", "2:0"), ("reviewer", "2:0"), ("nightly", "2:0")]
    tally = run.Run("standfast", tmp_path, care=True, kills=kills, path=[]).play()
    assert tally == run.Tally(kills=4)
    assert sorted((tmp_path / "requests.log").read_text().splitlines()) == sorted(run.EXPECTED)


def test_without_lookups_it_asks_a_person_and_continues_with_the_answer(run: Any, tmp_path: Path) -> None:
    """002-20: without a lookup the pull request is not sent again, and a person resolves the doubt."""
    tally = run.Run("standfast", tmp_path, care=False, kills=[("coder", "4:0")], path=[]).play()
    assert tally == run.Tally(kills=1, asked=1)
    with standfast.open() as sf:
        (effect,) = sf.effects.in_doubt()
        assert effect.tool == "github.open_pr"
        sf.effects.resolve(effect.id, "applied", evidence="the log has it", result=run.EXPECTED[0])
    (tmp_path / "asked").unlink()
    assert run.Run("standfast", tmp_path, care=False, kills=[], path=[]).play() == run.Tally()
    assert sorted((tmp_path / "requests.log").read_text().splitlines()) == sorted(run.EXPECTED)


def test_a_json_file_without_lookups_sends_twice(run: Any, tmp_path: Path) -> None:
    """002-20: the oracle counts the duplicate."""
    tally = run.Run("json", tmp_path, care=False, kills=[("nightly", "2:0")], path=[]).play()
    assert tally == run.Tally(kills=1, duplicates=1)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.* is declared twice:UserWarning")  # test_calls also uses a step `plan`
def test_the_example_of_sf_crash_passes(run: Any, sf_crash: Crash, monkeypatch: pytest.MonkeyPatch) -> None:
    """001-47: the crash test of the example is part of its 40 lines."""
    monkeypatch.setattr("world.LATENCY_S", 0)
    importlib.import_module("test_on_standfast").test_the_report_is_sent_once(sf_crash)


def test_the_system_takes_at_most_40_lines_and_nine_concepts(run: Any) -> None:
    """001-6: a tenth concept or a 41st line fails here; the page names the nine."""
    assert run.system_lines("standfast") <= LINES_MAX
    sources = [EXAMPLE / "on_standfast.py", EXAMPLE / "test_on_standfast.py"]
    used = {name for source in sources for name in names(ast.parse(source.read_text()))}
    assert used == set.union(*CONCEPTS.values())
    assert len(CONCEPTS) == 9
    for concept in CONCEPTS:
        assert concept in PAGE.read_text().replace("`", "")


def names(tree: ast.Module) -> Iterator[str]:
    """The names of standfast in a program: attributes of the module, the session and the store, and options."""
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        match node:
            case ast.Attribute() if id(node) not in inner and DOTTED.fullmatch(shown := ast.unparse(node)):
                yield shown
                if shown.startswith("s.store."):
                    yield "s.store"
            case ast.Call(func=ast.Attribute(value=ast.Name(id="standfast"), attr="effect")):
                yield from (f"{keyword.arg}=" for keyword in node.keywords)
            case ast.ImportFrom(module=str(module)) if module.startswith("standfast"):
                yield module
            case ast.arg(arg="sf_crash"):
                yield "sf_crash"


@pytest.mark.parametrize("system", ["standfast", "dbos", "json"])
def test_without_care_is_the_same_program_without_its_lookups(run: Any, system: str) -> None:
    """002-20: the second program is the first without its lookups, and it compiles."""
    source = (EXAMPLE / f"on_{system}.py").read_text()
    careless = run.careless(source)
    assert source.count("world.find_") == 4
    assert "find" not in careless
    assert len(careless.splitlines()) == len(source.splitlines())
    ast.parse(careless)


def test_the_page_has_the_lines_of_code_and_the_ten_marked_lines(run: Any) -> None:
    """001-6: the page shows the lines of the program that runs."""
    page = PAGE.read_text()
    for system in run.SYSTEMS:
        rows = re.findall(rf"^\| {system}\b.* \| (\d+) \|$", page, re.MULTILINE)
        assert rows == [str(run.system_lines(system))] * 2
    marked = re.findall(r"^ *(.*?)  # (\d+)$", (EXAMPLE / "on_standfast.py").read_text(), re.MULTILINE)
    assert {int(number) for _, number in marked} == set(range(1, 11))
    for line, number in marked:
        (code,) = re.findall(rf"^\| {number} `(.+?)` \|", page, re.MULTILINE)
        assert code in line
