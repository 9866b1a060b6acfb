"""Changes and undos against a model of a few lines: a change is undone only if its value is still current."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from standfast.errors import Conflict, NotFound
from standfast.record.items import Change as ItemChange
from standfast_prove.models.machine import Machine

STEPS = 30

Value = object


class Change(NamedTuple):
    """One change, as the model knows it."""

    seq: int
    name: str
    old: Value
    new: Value
    state: bool
    """Set for values of `state`: a change to the same value can also be undone."""


class Program(Machine):
    @initialize()
    def fresh(self) -> None:
        self.sf = self.opened()
        self.task = self.sf.tasks.add(f"task {self.number}", priority=2).id
        self.now: dict[str, Value] = {"priority": 2, "closed": None}
        self.changes: list[Change] = []

    def teardown(self) -> None:
        if hasattr(self, "sf"):
            self.sf.close()

    def changed(self, name: str, new: Value, *, state: bool = False) -> None:
        (row,) = self.sf.rows("SELECT max(seq) AS seq FROM event")
        self.changes.append(Change(row["seq"], name, self.now.get(name), new, state))
        self.now[name] = new

    @rule(priority=st.integers(0, 4))
    def edits(self, priority: int) -> None:
        if priority != self.now["priority"]:
            self.sf.tasks.edit(self.task, priority=priority)
            self.changed("priority", priority)

    @rule()
    def closes_or_reopens(self) -> None:
        if self.now["closed"] is None:
            self.sf.tasks.done(self.task)
            self.changed("closed", f"for the {len(self.changes)}th time")
        else:
            self.sf.tasks.reopen(self.task)
            self.changed("closed", None)

    @rule(key=st.sampled_from("ab"), value=st.integers(0, 2))
    def sets(self, key: str, value: int) -> None:
        self.sf.state.set(key, value)
        self.changed(f"state {key}", value, state=True)

    @rule(key=st.sampled_from("ab"))
    def deletes(self, key: str) -> None:
        if self.now.get(f"state {key}") is not None:
            self.sf.state.delete(key)
            self.changed(f"state {key}", None, state=True)

    @rule(key=st.sampled_from("ab"), value=st.one_of(st.none(), st.integers(0, 2)))
    def puts(self, key: str, value: int | None) -> None:
        self.sf.items.change([ItemChange(("m",), key, None if value is None else {"n": value})])
        self.changed(f"item {key}", value)

    @precondition(lambda self: bool(getattr(self, "changes", None)))
    @rule(data=st.data())
    def undoes(self, data: st.DataObject) -> None:
        change = data.draw(st.sampled_from(self.changes))
        wanted: type[Exception] | None = None
        if change.old == change.new and not change.state:
            wanted = NotFound  # nothing was overwritten
        elif self.now.get(change.name) != change.new:
            wanted = Conflict
        refused = self.refused(change)
        assert refused is wanted, f"undoing {change} of {self.now}: {refused}, and not {wanted}"
        if refused is None:
            self.changed(change.name, change.old, state=change.state)

    def refused(self, change: Change) -> type[Exception] | None:
        try:
            self.sf.undo(str(change.seq))
        except (Conflict, NotFound) as error:
            return type(error)
        return None

    @invariant()
    def both_agree(self) -> None:
        if not hasattr(self, "changes"):
            return
        task = self.sf.tasks.get(self.task)
        assert task.priority == self.now["priority"]
        assert (task.state == "closed") is (self.now["closed"] is not None)
        items = {item.key: item.value for item in self.sf.items.search(("m",), refresh=False)}
        values = {entry.key: entry.value for entry in self.sf.state.list()}
        for key in "ab":
            assert items.get(key) == (None if (n := self.now.get(f"item {key}")) is None else {"n": n})
            assert values.get(key) == self.now.get(f"state {key}")
