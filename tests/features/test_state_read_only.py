"""Values read from state refuse changes: a change of a nested part would be lost without an error."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from typing import Any

import pytest

import standfast
from standfast.errors import InvalidInput
from standfast.serial.read_only import read_only

PLAN = {"a": {"b": 1, "list": [3, {"c": 4}]}}

CHANGES: dict[str, Callable[[Any], object]] = {
    "set an item": lambda plan: plan["a"].__setitem__("b", 2),
    "add an item": lambda plan: plan.update(new=1),
    "delete an item": lambda plan: plan["a"].__delitem__("b"),
    "pop": lambda plan: plan.pop("a"),
    "pop an item": lambda plan: plan.popitem(),
    "clear": lambda plan: plan.clear(),
    "set a default": lambda plan: plan.setdefault("x", 1),
    "merge": lambda plan: plan.__ior__({"x": 1}),
    "append": lambda plan: plan["a"]["list"].append(5),
    "extend": lambda plan: plan["a"]["list"].extend([5]),
    "add to a list": lambda plan: plan["a"]["list"].__iadd__([5]),
    "repeat a list": lambda plan: plan["a"]["list"].__imul__(2),
    "insert": lambda plan: plan["a"]["list"].insert(0, 5),
    "set an element": lambda plan: plan["a"]["list"].__setitem__(0, 5),
    "set a slice": lambda plan: plan["a"]["list"].__setitem__(slice(0, 1), []),
    "delete an element": lambda plan: plan["a"]["list"].__delitem__(0),
    "pop an element": lambda plan: plan["a"]["list"].pop(),
    "remove": lambda plan: plan["a"]["list"].remove(3),
    "reverse": lambda plan: plan["a"]["list"].reverse(),
    "sort": lambda plan: plan["a"]["list"].sort(),
    "clear a list": lambda plan: plan["a"]["list"].clear(),
    "below a list": lambda plan: plan["a"]["list"][1].update(c=5),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_a_value_that_was_read_is_refused(change: str) -> None:
    """001-27: a change of a read value is saved or raises an error. It is never lost silently."""
    found = read_only(PLAN, "use sf.state.set")
    with pytest.raises(InvalidInput, match="read-only: the change would not be stored"):
        CHANGES[change](found)
    assert found == PLAN


def test_the_refusal_names_the_method_to_use(sf: standfast.Standfast) -> None:
    with sf.session("fix-42") as s:
        s.state["plan"] = PLAN
        with pytest.raises(InvalidInput) as refused:
            s.state["plan"]["a"]["b"] = 2
        assert "s.state['plan'] = value" in refused.value.hint
        assert s.state["plan"] == PLAN
    sf.state.set("plan", PLAN, namespace="shop")
    with pytest.raises(InvalidInput) as refused:
        sf.state.get("plan", namespace="shop").value["a"]["b"] = 2
    assert "sf.state.update('plan', change, namespace='shop')" in refused.value.hint


def test_every_way_to_read_a_value_gives_a_read_only_one(sf: standfast.Standfast) -> None:
    with sf.session("fix-42") as s:
        made = [
            sf.state.set("plan", PLAN).value,
            sf.state.swap("plan", PLAN, version=1).value,
            sf.state.update("plan", lambda plan: plan).value,
            sf.state.list()[0].value,
            s.state.set("plan", PLAN).value,
            s.state.setdefault("plan", {}),
            s.state.setdefault("other", {"n": []}),
            s.state.get("plan"),
            dict(s.state)["plan"],
            *(value for value in s.state.values()),
        ]
    fork = sf.sessions.fork("fix-42", "fix-42b")
    with sf.session(fork.key) as s:
        made.append(s.state["plan"])
    for value in made:
        with pytest.raises(InvalidInput, match="read-only"):
            value["new"] = 1


def test_a_value_that_was_read_is_an_ordinary_value_in_every_other_way(sf: standfast.Standfast) -> None:
    with sf.session("fix-42") as s:
        s.state["plan"] = PLAN
        found = s.state["plan"]
        assert (found == PLAN, found != PLAN, isinstance(found, dict), repr(found)) == (True, False, True, repr(PLAN))
        assert found["a"]["list"] == [3, {"c": 4}]
        assert json.loads(json.dumps(found)) == PLAN
        assert found | {"x": 1} == {**PLAN, "x": 1}
        s.state["copy"] = found
        s.state["part"] = {"whole": found, "rows": found["a"]["list"]}
        assert s.state["part"] == {"whole": PLAN, "rows": [3, {"c": 4}]}
        assert s.step("see", lambda plan: plan, found) == PLAN


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])
def test_a_deep_copy_can_be_changed(sf: standfast.Standfast, copied: Callable[[Any], Any]) -> None:
    sf.state.set("plan", PLAN)
    mine = copied(sf.state.get("plan").value)
    mine["a"]["list"][1]["c"] = 5
    mine["a"]["list"].append(6)
    assert (type(mine), type(mine["a"]["list"])) == (dict, list)
    assert sf.state.set("plan", mine).value == {"a": {"b": 1, "list": [3, {"c": 5}, 6]}}


def test_update_gives_its_function_a_copy_to_change(sf: standfast.Standfast) -> None:
    def count(plan: Any) -> Any:
        plan["a"]["b"] += 1
        plan["a"]["list"].append(5)
        return plan

    sf.state.set("plan", PLAN)
    assert sf.state.update("plan", count).value == {"a": {"b": 2, "list": [3, {"c": 4}, 5]}}


def test_a_shallow_copy_can_be_changed_at_the_top() -> None:
    mine = copy.copy(read_only(PLAN, "use sf.state.set"))
    mine["x"] = 1
    with pytest.raises(InvalidInput, match="read-only"):
        mine["a"]["b"] = 2
