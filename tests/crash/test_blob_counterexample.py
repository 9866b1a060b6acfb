"""Proposition 1: a session kept in one mutable blob cannot be resumed safely by any resumer.

The blob is both checkpoint and effect history: a JSON file, written atomically and synced, as good as
possible. Two crashes, one before the request is sent and one after it, leave exactly
the same bytes. A resumer sees only the bytes, so it does the same after both crashes:
sending again makes a duplicate after one, and not sending loses the request after the other. Nothing that
the resumer computes from the blob can help.

With standfast a resumer sees after both crashes that a request may have been sent, and ends with one request.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from standfast import crash
from standfast_prove.crashes.effects import Agent, Books

Resume = Callable[[dict[str, Any]], bool]


class Blob:
    """An agent that keeps all it knows in one JSON file."""

    def __init__(self, directory: Path) -> None:
        self.file = directory / "session.json"
        self.world = Books(directory / "world.log")

    def load(self) -> dict[str, Any]:
        loaded: dict[str, Any] = json.loads(self.file.read_text()) if self.file.exists() else {"effects": {}}
        return loaded

    def save(self, session: dict[str, Any]) -> None:
        fresh = self.file.with_suffix(".new")
        with fresh.open("w") as file:
            file.write(json.dumps(session, sort_keys=True))
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, self.file)

    def run(self, resume: Resume) -> None:
        """Plan, send, record. `resume` decides whether a request in state "sending" is sent again."""
        session = self.load()
        state = session["effects"].get("pr")
        if state is None:
            session["effects"]["pr"] = "sending"
            self.save(session)
        if state is None or (state == "sending" and resume(session)):
            crash.point("effect.after_begin")
            self.world.receive("blob", "pr", "", "")
            crash.point("effect.before_done")
        session["effects"]["pr"] = "sent"
        self.save(session)


RESUMERS: dict[str, Resume] = {
    "sends again": lambda session: True,
    "does not": lambda session: False,
    "decides by anything it can read": lambda session: hash(json.dumps(session, sort_keys=True)) % 2 == 0,
}


def killed_at(point: int, life: Callable[[], None]) -> None:
    ended = crash._live(life, point, crash.Schedule(), 60.0)
    assert ended.killed


@pytest.mark.parametrize("resume", RESUMERS.values(), ids=RESUMERS)
def test_one_blob_cannot_distinguish_two_crashes(resume: Resume, tmp_path: Path) -> None:
    """002-10: the control. Each way to resume sends a duplicate after one crash or loses a request after the other."""
    left: list[bytes] = []
    requests: list[int] = []
    for point in (1, 2):  # one crash before the request is sent, one after it has arrived
        (tmp_path / str(point)).mkdir()
        blob = Blob(tmp_path / str(point))
        killed_at(point, lambda blob=blob: blob.run(resume))  # type: ignore[misc]
        left.append(blob.file.read_bytes())
        blob.run(resume)
        requests.append(len(blob.world.lines()))
    assert left[0] == left[1], "the two crashes leave the very same bytes"
    assert requests in ([1, 2], [0, 1]), "one of them is wrong for every resumer"
    assert blob.load()["effects"]["pr"] == "sent"


class OnePullRequest(Agent):
    kind = ""

    def story(self, s: Any) -> None:
        getattr(self, self.kind)(s, "pr")


@pytest.mark.parametrize("kind", ["plain", "probed", "idempotent"])
def test_standfast_distinguishes_them_and_ends_with_one_request(kind: str, tmp_path: Path) -> None:
    """002-10, 002-11: after the same two crashes no request is silently sent twice, and none is lost."""
    for point in ("effect.after_begin", "effect.before_done"):
        agent = OnePullRequest(tmp_path / point)
        agent.kind = kind
        agent.warm()
        agent.reset()
        names = crash._live(agent.live, 0, crash.Schedule(), 60.0).points
        agent.reset()
        killed_at(names.index(point) + 1, agent.live)
        with agent.open() as sf:
            (doubt,) = sf.effects.in_doubt()
            assert sf.effects.may_replay(doubt.id).action == {"plain": "ask", "probed": "probe"}.get(kind, "replay")
        agent.recover()
        agent.check(crash.Schedule((point,)))
        assert agent.world.arrived() == {(kind, "pr"): 1}
        with agent.open() as sf:
            assert sf.effects.list(session=agent.key)[0].state == "acknowledged"
