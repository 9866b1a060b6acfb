"""Recorded histories of every model: a sample of the campaign, and a client that compares outside the write."""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import Any

import pytest

from standfast_prove.campaigns.histories import run
from standfast_prove.histories import KINDS, stepping
from standfast_prove.linearizability import Call, linearizable


def test_the_answers_of_several_processes_are_linearizable(engine_url: str, tmp_path: Path) -> None:
    """001-68, 001-70, 002-34: processes are killed, stopped, and continue after their lease ended."""
    url = engine_url if engine_url.startswith("postgres") else None
    outcome = run(tmp_path, seed=1, crews=1, things=6, kills=3, url=url)
    assert outcome.bad == []
    assert outcome.seen["histories"] == 6


def test_a_client_that_compares_before_it_writes_is_found(tmp_path: Path) -> None:
    assert any(run(_made(tmp_path / str(seed)), seed=seed, crews=1, things=7, careless=True).bad for seed in range(6))


def _made(place: Path) -> Path:
    place.mkdir()
    return place


IMPOSSIBLE: dict[str, list[tuple[Any, ...]]] = {
    "lock": [(("acquire", "a", 0), 1), (("acquire", "b", 0), 2)],
    "task": [(("claim", "a", 0), 1), (("claim", "b", 0), 2)],
    "effect": [(("begin", "a", "w", 0), ["sent", 1]), (("begin", "b", "w", 0), ["sent", 2])],
    "approval": [(("deny", "a"), 1), (("dispatch", "b"), 1)],
    "mail": [(("send", "a", 1, 0), 1), (("claim", "a", 0, 0), [1, 1]), (("claim", "b", 0, 0), [1, 3])],
}


@pytest.mark.parametrize("kind", IMPOSSIBLE)
def test_a_model_refuses_an_impossible_answer_unless_the_holder_is_dead(kind: str) -> None:
    thing = KINDS[kind]("t")
    calls = [Call(n, n + 0.5, asked, result) for n, (asked, result) in enumerate(IMPOSSIBLE[kind])]
    assert not linearizable(calls, thing.start, stepping(thing))
    if kind not in ("effect", "approval"):
        dead = Call(len(calls) - 1.4, len(calls) - 1.2, ("dies", "a"), None)
        assert linearizable([*calls, dead], thing.start, stepping(thing))
    unheard = [*calls[:-1], calls[-1]._replace(ended=inf)]
    assert linearizable(unheard, thing.start, stepping(thing))
