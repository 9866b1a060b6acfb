"""Lists of every resource: the rows of the caller's scope and, on request, those of every scope.

The store also holds the rows of neighbours (`tests/neighbours.py`), all of them in other scopes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

import standfast
from standfast.handle import Standfast

LISTS = [
    ("agents", "list"),
    ("approvals", "list"),
    ("artifacts", "list"),
    ("checkpoints", "list"),
    ("decisions", "caught"),
    ("decisions", "incomplete"),
    ("decisions", "list"),
    ("effects", "list"),
    ("gates", "list"),
    ("mail", "list"),
    ("runs", "list"),
    ("sessions", "list"),
    ("tasks", "list"),
    ("webhooks", "dead"),
    ("webhooks", "list"),
]

NO_NEIGHBOURS = {("effects", "in_doubt"), ("leases", "list"), ("loops", "absent"), ("loops", "list"), ("mail", "dead")}
"""Lists that the rows of neighbours leave empty."""


def listing(sf: Standfast, resource: str, method: str) -> Callable[..., list[Any]]:
    called = getattr(getattr(sf, resource), method)
    return lambda **asked: list(called(**asked))


@pytest.mark.parametrize(("resource", "method"), LISTS)
def test_a_list_shows_its_own_scope_and_on_request_every_scope(
    sf: standfast.Standfast, resource: str, method: str
) -> None:
    """A list of one scope has no row of another scope. A list of every scope has them all."""
    rows = listing(sf, resource, method)
    assert rows() == []
    everything = rows(everywhere=True)
    assert everything != []
    assert rows(everywhere=True, limit=1) == everything[:1]


def test_every_list_is_tested(sf: standfast.Standfast) -> None:
    found = set()
    for resource in sorted({resource for resource, _ in [*LISTS, *NO_NEIGHBOURS]}):
        for name, method in inspect.getmembers(getattr(sf, resource), callable):
            if not name.startswith("_") and {"everywhere", "limit"} <= inspect.signature(method).parameters.keys():
                found.add((resource, name))
    assert found == set(LISTS) | NO_NEIGHBOURS


STATES = {
    "approvals": ("granted", "consumed", "denied"),
    "decisions": ("open", "done", "withdrawn"),
    "effects": ("planned", "dispatched", "acknowledged", "failed", "superseded"),
    "mail": ("sent", "done", "dead"),
    "runs": ("failed",),
    "sessions": ("waiting", "completed", "failed"),
    "tasks": ("open", "closed"),
    "webhooks": ("received", "done", "dead"),
}
"""The states that rows of neighbours have."""


@pytest.mark.parametrize(("resource", "state"), [(name, state) for name, states in STATES.items() for state in states])
def test_a_list_of_one_state_has_only_rows_of_this_state(sf: standfast.Standfast, resource: str, state: str) -> None:
    rows = listing(sf, resource, "list")
    assert rows(state=state) == []
    assert {row.state for row in rows(state=state, everywhere=True)} == {state}


@pytest.mark.parametrize(
    "asked", [{}, {"kind": "bug"}, {"label": "red"}, {"branch": "fix"}, {"assignee": "ann"}], ids=str
)
def test_a_filter_of_tasks_finds_the_same_here_and_everywhere(sf: standfast.Standfast, asked: dict[str, Any]) -> None:
    sf.tasks.add("plain")
    sf.tasks.add("full", kind="bug", labels=["red"], branch="fix", assignee="ann")
    here = [task.title for task in sf.tasks.list(**asked)]
    everywhere = [task.title for task in sf.tasks.list(everywhere=True, **asked) if task.title in ("plain", "full")]
    assert here == everywhere
    assert sorted(here) == (["full"] if asked else ["full", "plain"])
