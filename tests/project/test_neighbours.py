"""Neighbours: a method changes only rows of its own scope, holder, session, loop, source or stream.

Two walks of one resource (tests/walks.py) alternate, and a third one follows. Their names differ in one field only: the
scope, the repository, the stream or the namespace. After each call the test compares the whole store: no walk changes a
row that another walk made. All walks get the same answers, so none has read a row of another walk.
"""

from __future__ import annotations

import inspect
import re
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import standfast
from standfast.db.sql import statement
from standfast.handle import LazyResource, Resources
from tests import walks
from tests.neighbours import FINISHED
from tests.rows import Name, Row, differing, snapshot
from tests.walks import RESOURCES, Names, Step, opened

PAIRS = [(name, field) for name, resource in RESOURCES.items() for field in resource.beside]

SHARED = {"agent", "mail_box"}
"""Rows about an actor or a box: two walks that have it in common both write there."""
COUNTED = frozenset({"seq", "receipt", "place", "cursor", "next", "call_key", "question_hash"})
"""Fields that number all rows of the store, or hash its id, a scope or a key: they show no row of a neighbour."""
OF_THE_CALL = ("receipt", "fresh", "replayed", "sighting", "change", "job", "call_key")
"""Fields that say what this very call did: nothing that is read later has them."""
RENAMED = statement("UPDATE task SET title = 'another' WHERE scope = :scope")
_ID = re.compile(r"\b[a-z]{3}_[0-9A-Za-z]{20,}\b")
_TIME = re.compile(r"\b\d{16}\b")
"""Microseconds inside a text, such as the stored question of an approval."""


class Answers:
    """Answers in a form that is equal for two walks: ids are replaced by their order, and times by a constant."""

    def __init__(self, names: Names, field: str) -> None:
        self._own, self._common = getattr(names, field), getattr(Names(), field)
        self._ids: dict[str, str] = {}
        self.all: list[Any] = []

    def add(self, answer: Any) -> None:
        self.all.append(self._plain(answer))

    def _plain(self, value: Any) -> Any:
        named = getattr(value, "as_dict", None) or getattr(value, "_asdict", None)
        if named is not None:
            value = {name: one for name, one in named().items() if name not in COUNTED}
        if isinstance(value, dict):
            return {self._plain(name): self._plain(one) for name, one in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._plain(one) for one in value]
        if isinstance(value, str):
            text = _ID.sub(lambda found: self._ids.setdefault(found[0], f"id {len(self._ids)}"), value)
            return _TIME.sub("a time", text.replace(self._own, self._common))
        if isinstance(value, int) and not isinstance(value, bool):
            return "a time" if value > 10**14 else value
        return value if isinstance(value, (bool, float, bytes, type(None))) else str(type(value))


@pytest.mark.parametrize(("resource", "field"), PAIRS)
def test_no_call_changes_or_reads_a_row_of_a_neighbour(
    engine_url: str, tmp_path: Path, resource: str, field: str
) -> None:
    """002-8: for every condition of every statement, another row differs in this condition only."""
    first = Names().with_other(field, 1) if field == "repository" else Names()
    names = [first, *(Names().with_other(field, number) for number in (2, 3))]
    handles = [opened(engine_url, tmp_path, one) for one in names]
    try:
        walks = [RESOURCES[resource].walk(sf, one) for sf, one in zip(handles, names, strict=True)]
        answers = [Answers(one, field) for one in names]
        owners: dict[Name, int] = {}
        rows = snapshot(handles[0])
        steps: list[Step | None] = [None, None]
        while True:  # the first two walks alternate
            for number in (0, 1):
                steps[number] = step = next(walks[number], None)
                rows = _checked(rows, snapshot(handles[0]), owners, number, step)
                if step is not None:
                    answers[number].add(step.answer)
            if steps == [None, None]:
                break
        for step in walks[2]:  # the third walk starts when both have ended
            answers[2].add(step.answer)
        _checked(rows, snapshot(handles[0]), owners, 2, step)
        assert answers[1].all == answers[0].all
        assert answers[2].all == answers[0].all
    finally:
        for sf in handles:
            sf.close()


def _checked(
    before: dict[Name, Row], after: dict[Name, Row], owners: dict[Name, int], number: int, step: Step | None
) -> dict[Name, Row]:
    touched = [name for name, row in before.items() if after.get(name) != row]
    wrong = [
        f"{name[0]} {name[1]}: {differing(before[name], after.get(name))}"
        for name in touched
        if owners.get(name, number) != number and name[0] not in SHARED
    ]
    assert wrong == [], f"walk {number} changed rows of the other one, up to {step and step.answer}"
    for name in after.keys() - before.keys():
        owners[name] = number
    return after


def test_a_return_is_counted_in_the_episode_of_its_own_repository(engine_url: str, tmp_path: Path) -> None:
    """002-8: another repository has the same problem in a later episode."""
    here, there = (Names().with_other("repository", number) for number in (1, 2))
    with opened(engine_url, tmp_path, there) as sf:
        sf.tasks.done(sf.tasks.add("flaky"))
        sf.tasks.add("flaky")
    with opened(engine_url, tmp_path, here) as sf:
        closed = sf.tasks.done(sf.tasks.add("flaky"), cool_down="1h")
        again = sf.tasks.add("flaky")
    assert (again.id, again.state, again.occurrences) == (closed.id, "closed", 2)


@pytest.mark.parametrize("resource", RESOURCES)
def test_a_call_returns_the_row_that_is_read_afterwards(engine_url: str, tmp_path: Path, resource: str) -> None:
    """002-8: an answer is built in memory. Every field must equal the stored row."""
    with opened(engine_url, tmp_path, Names()) as sf:
        compared = 0
        for step in RESOURCES[resource].walk(sf, Names()):
            if step.reread is not None:
                assert _whole(step.reread()) == _whole(step.answer)
                compared += 1
        assert compared or resource in ("streams", "gates", "items", "threads")


def _whole(answer: Any) -> Any:
    return {name: value for name, value in answer.as_dict().items() if name not in OF_THE_CALL}


ELSEWHERE = {"imports", "journal", "recovery", "search_index"}
"""Read only, or fed by files: their tests are their own."""


def test_every_method_that_changes_something_is_called_by_a_walk() -> None:
    """002-8: a method without a walk is not tested beside a neighbour."""
    source = inspect.getsource(walks)
    missing = []
    for name, value in vars(Resources).items():
        if isinstance(value, LazyResource) and name not in ELSEWHERE:
            methods = vars(type(getattr(Resources(None), name)))  # type: ignore[arg-type]
            changing = {method.strip("_") for method, made in methods.items() if hasattr(made, "body")}
            missing += [f"{name}.{one}" for one in sorted(changing & set(methods)) if f".{one}(" not in source]
    assert missing == []


STORE_ID = statement("SELECT value FROM meta WHERE key = 'store_id'")


@pytest.mark.parametrize("neighbours", [False, True])
def test_each_copy_of_a_template_is_a_store_of_its_own(
    neighbours: bool, pg_url: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """000-34: standfast identifies a store by its id, so no two tests may use one id."""

    def store_id(url: str) -> str:
        with standfast.open(url, data_dir=tmp_path / "data") as sf:
            assert bool(list(sf.rows("SELECT id FROM task"))) == neighbours
            return str(sf._store.read(lambda tx: tx.one(STORE_ID))["value"])

    files = request.getfixturevalue("file_templates")(neighbours)
    databases = request.getfixturevalue("database_templates")(neighbours)
    with databases.copy(pg_url) as third, databases.copy(pg_url) as fourth:
        copies = [files.copy(tmp_path / "1.db"), files.copy(tmp_path / "2.db"), third, fourth]
        assert len({*map(store_id, copies), files.store_id}) == 5


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_a_row_of_a_neighbour_that_changed_is_named_with_its_column(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    with ExitStack() as copies:
        if engine == "sqlite":
            template: Any = request.getfixturevalue("file_templates")(True)
            url = template.copy(tmp_path / "standfast.db")
        else:
            template = request.getfixturevalue("database_templates")(True)
            url = copies.enter_context(template.copy(request.getfixturevalue("pg_url")))
        template.unchanged(url)
        with opened(url, tmp_path, FINISHED) as sf:
            sf._store.write(lambda tx: tx.run(RENAMED, scope=FINISHED.scope))
        with pytest.raises(AssertionError, match=r"'task', \('tsk_\w+',\)\): title: '.+' → 'another'"):
            template.unchanged(url)
