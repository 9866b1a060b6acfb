"""Seeded bugs: every patch still applies, every campaign that should find one exists, and a sample is found."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from standfast_prove.catalogue import CAMPAIGNS
from standfast_prove.crashes.resources import RESOURCES
from standfast_prove.faults.children import Nursery
from standfast_prove.mutants import effect_scenes, registry, view_scenes
from standfast_prove.mutants.harnesses import looked
from standfast_prove.mutants.patching import Mutant, Patching
from tests.sampling import sampled

MUTANTS = registry.every()
SCENES = effect_scenes.SCENES | view_scenes.SCENES
SAMPLE = (
    "act before the intent is recorded",
    "a late attempt stores its result",
    "a missing store is created",
    "another store is not noticed",
    "lost rows are not noticed",
    "doctor runs quick_check only",
    "MCP waits in a thread",
    "acknowledged before COMMIT",
    "a step runs again",
    "an interval drifts",
    "sessions are cut before they are ranked",
    "an approval for another question",
    "a grant used twice",
    "labels are not cleaned",
    "a long command passes every gate",
    "an unsealed record is believed",
)
"""Of each harness and area: in every run."""
MORE = (
    "an older state is not noticed",
    "doctor guards foreign tables",
    "MCP drops unknown arguments",
    "a caller imports by itself",
    "a dropped table is an I/O error",
    "doctor does not compare the schema",
    "deleted text stays in the file",
    "a mounted database file is opened",
    "the journal row is a second commit",
    "a live worker loses its run",
    "an old reason is shown",
    "only the last counter is used",
    "a consumed approval stays granted",
    "the directory is not in the question",
    "an agent is not refused",
)


def test_there_are_many() -> None:
    assert len(MUTANTS) >= 60


@pytest.mark.parametrize("name", MUTANTS)
def test_the_patch_still_applies(name: str) -> None:
    """The test removes the patch again, so that nothing of it stays in this process."""
    with Patching() as patch:
        MUTANTS[name].patch(patch)
    assert patch.changed
    first = {(id(target), attribute): (target, value) for target, attribute, value in reversed(patch.changed)}
    assert all(getattr(target, attribute) == value for (_, attribute), (target, value) in first.items())


@pytest.mark.parametrize("harness", sorted({mutant.harness for mutant in MUTANTS.values()}))
def test_the_harness_is_there(harness: str) -> None:
    kind, _, name = harness.partition(" ")
    known = {
        "sweep": [world for worlds in RESOURCES.values() for world in worlds],
        "check": list(SCENES),
        "soak": [""],
        "campaign": [one.name for one in CAMPAIGNS],
        "model": [name] if kind == "model" and find_spec(f"standfast_prove.models.{name}") else [],
    }
    assert name in known[kind]


@pytest.mark.parametrize("name", [name for name, mutant in MUTANTS.items() if mutant.arguments])
def test_the_campaign_takes_the_arguments_of_the_bug(name: str) -> None:
    """000-50: a campaign that does not start finds no bug."""
    _, _, campaign = MUTANTS[name].harness.partition(" ")
    module, _, function = next(one.place for one in CAMPAIGNS if one.name == campaign).partition(":")
    run = getattr(import_module(f"standfast_prove.campaigns.{module}"), function)
    assert set(MUTANTS[name].arguments) <= set(inspect.signature(run).parameters)


@pytest.fixture(scope="module")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    with Nursery(words=tmp_path_factory.mktemp("nursery") / "words") as made:
        yield made


@pytest.mark.parametrize("name", sampled((*SAMPLE, *MORE), *SAMPLE))
def test_a_seeded_bug_is_found(name: str, nursery: Nursery, tmp_path: Path) -> None:
    """000-50: "0 lost, 0 doubled" means something only if the campaign notices a bug that loses or doubles rows."""
    asked = {
        "name": name,
        "place": str(tmp_path),
        "answer": str(tmp_path.with_suffix(".json")),
        "url": None,
        "bug": True,
    }
    nursery.wait(nursery.start("standfast_prove.mutants.hunting:stalk", **asked), 300)
    told = json.loads(tmp_path.with_suffix(".json").read_text())
    assert told["complaint"], f"{name!r} survived {MUTANTS[name].harness}"


@pytest.mark.parametrize("scene", SCENES)
def test_without_a_bug_a_scene_is_quiet(scene: str, tmp_path: Path) -> None:
    assert looked(Mutant("none", f"check {scene}", lambda m: None), tmp_path).complaint == ""


def test_a_child_process_gets_the_bug_of_its_parent(tmp_path: Path) -> None:
    """The bug is passed in an environment variable, which only children of the evaluation read."""
    with Nursery(env={registry.VARIABLE: "a fencing token is reused"}) as bugged:
        asked = {"file": str(tmp_path / "text")}
        assert bugged.wait(bugged.start("tests.crash.test_prove_mutants:write_statement", **asked)) == 0
    assert "fence = 1," in (tmp_path / "text").read_text()


def write_statement(file: str) -> None:
    from standfast.core import leases

    Path(file).write_text(leases.SQL.take.sqlite)
