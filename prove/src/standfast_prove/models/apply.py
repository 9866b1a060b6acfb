"""Apply against a model of a few lines: keys and specifications in any order, with changes by people in between."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from standfast.db.sql import statement
from standfast.errors import InvalidInput, KeyConflict
from standfast.record.apply import read
from standfast_prove.models.machine import Machine
from standfast_prove.raising import raising

STEPS = 20
APPLICATIONS = statement("SELECT count(*) AS n FROM application WHERE scope = :scope")

KEYS = st.sampled_from(["k1", "k2", "k3"])
TASKS = st.lists(
    st.fixed_dictionaries({"title": st.sampled_from("ab")}, optional={"priority": st.integers(0, 2)}),
    max_size=2,
    unique_by=lambda task: str(task["title"]),
)
VALUES = st.lists(
    st.fixed_dictionaries({"key": st.sampled_from("xy"), "value": st.integers(0, 2)}),
    max_size=2,
    unique_by=lambda entry: str(entry["key"]),
)
GATES = st.lists(
    st.fixed_dictionaries({"pattern": st.just("g"), "need": st.sampled_from(["approval", "effect"])}), max_size=1
)
SPECS = st.fixed_dictionaries({}, optional={"tasks": TASKS, "state": VALUES, "gates": GATES})


class Program(Machine):
    @initialize()
    def fresh(self) -> None:
        self.sf = self.opened()
        self.used: dict[str, tuple[str, dict[str, Any]]] = {}
        self.tasks: dict[str, tuple[int, str]] = {}
        self.values: dict[str, tuple[int, int]] = {}
        self.gate: str | None = None

    def teardown(self) -> None:
        if hasattr(self, "sf"):
            self.sf.close()

    @rule(key=KEYS, document=SPECS, mode=st.sampled_from(["commit", "commit", "dry-run", "preflight"]))
    def applies(self, key: str, document: dict[str, Any], mode: str) -> None:
        used = self.used.get(key)
        clash = any(self.gate not in (None, gate["need"]) for gate in document.get("gates", ()))
        if used is not None and used[0] != read(document).hash:
            if mode == "preflight":
                assert "was used for another" in self.sf.apply(document, key=key, mode=mode).problems[0]
                return
            with raising(KeyConflict):
                self.sf.apply(document, key=key, mode=mode)
            return
        if used is not None:
            again = self.sf.apply(document, key=key, mode=mode)
            assert (again.replayed, again.refs) == (True, used[1])
            return
        if clash and mode == "commit":
            with raising(InvalidInput, match="a person has to remove it first"):
                self.sf.apply(document, key=key, mode=mode)
            return
        applied = self.sf.apply(document, key=key, mode=mode)
        assert [change.action for change in applied.changes] == self.expected(document)
        assert bool(applied.problems) == clash
        if mode == "commit":
            self.used[key] = (read(document).hash, applied.refs)
            self.make(document)

    def expected(self, document: dict[str, Any]) -> list[str]:
        return [getattr(self, f"expected_{section}")(entry) for section in document for entry in document[section]]

    def expected_tasks(self, entry: dict[str, Any]) -> str:
        if entry["title"] not in self.tasks:
            return "new"
        priority, state = self.tasks[entry["title"]]
        return "closed" if state == "closed" else "same" if entry.get("priority", priority) == priority else "changed"

    def expected_state(self, entry: dict[str, Any]) -> str:
        if entry["key"] not in self.values:
            return "new"
        return "same" if self.values[entry["key"]][0] == entry["value"] else "changed"

    def expected_gates(self, entry: dict[str, Any]) -> str:
        return "new" if self.gate is None else "same"

    def make(self, document: dict[str, Any]) -> None:
        for entry in document.get("tasks", ()):
            priority, state = self.tasks.get(entry["title"], (2, "open"))
            if state == "open":
                self.tasks[entry["title"]] = (entry.get("priority", priority), "open")
        for entry in document.get("state", ()):
            value, version = self.values.get(entry["key"], (None, 0))
            self.values[entry["key"]] = (entry["value"], version + int(value != entry["value"]))
        for entry in document.get("gates", ()):
            self.gate = entry["need"]

    @rule(title=st.sampled_from("ab"))
    def a_person_closes_a_task(self, title: str) -> None:
        for task in self.sf.tasks.list():
            if task.title == title:
                self.sf.tasks.done(task.id)
                self.tasks[title] = (task.priority, "closed")

    @rule(key=st.sampled_from("xy"), value=st.integers(0, 2))
    def a_person_sets_a_value(self, key: str, value: int) -> None:
        self.values[key] = (value, self.sf.state.set(key, value).version)

    @invariant()
    def both_agree(self) -> None:
        if not hasattr(self, "sf"):
            return
        tasks = {task.title: (task.priority, task.state) for task in self.sf.tasks.list(state="any")}
        assert tasks == self.tasks
        assert {one.key: (one.value, one.version) for one in self.sf.state.list()} == self.values
        assert [gate.need for gate in self.sf.gates.list()] == [one for one in [self.gate] if one]
        assert self.sf.read(lambda tx: tx.one(APPLICATIONS, scope=self.sf.scope))["n"] == len(self.used)
