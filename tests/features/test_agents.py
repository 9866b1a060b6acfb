"""Agents: listed from their first use, with the rows they hold, whether they crashed, and their configuration."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import standfast
from standfast import config, handle
from standfast.clock import ManualClock
from standfast.db.sql import Statement
from standfast.record import agents
from tests.features.test_state_plans import full, pg_module_database
from tests.features.test_tasks_plans import plan
from tests.interfaces.test_cli import run

__all__ = ["full", "pg_module_database"]


def opened(url: str, place: Path, actor: str = "ann", **more: Any) -> standfast.Standfast:
    return handle.connect(config.load(url, data_dir=place / "data", actor=actor, scope="here"), **more)


def names(found: list[agents.Agent]) -> list[str]:
    return [one.name for one in found]


def test_an_agent_that_works_is_listed_without_registering(engine_url: str, tmp_path: Path) -> None:
    """001-50: agent id and type, status, current task, config and metadata."""
    with opened(engine_url, tmp_path) as sf:
        assert sf.agents.list() == []
        sf.tasks.add("a")
        assert sf.agents.list() == []  # a report alone does not list an agent
        task = sf.tasks.claim()
        assert task is not None
        (found,) = sf.agents.list()
        assert (found.name, found.status, found.task_id, found.holder) == ("ann", "active", task.id, task.holder)
        sf.tasks.done(task)
        assert (sf.agents.get("ann").status, sf.agents.get("ann").task_id) == ("idle", None)
        with sf.session("k", agent="reviewer") as s:
            reviewer = sf.agents.get("reviewer")
            assert (reviewer.status, reviewer.session_id) == ("active", s.id)
        assert sf.agents.get("reviewer").status == "idle"
        assert names(sf.agents.list()) == ["ann", "reviewer"]
        with opened(engine_url, tmp_path, actor="carl") as other:
            sf.mail.send("carl", "hello")
            assert other.mail.claim() is not None
        assert names(sf.agents.list()) == ["ann", "carl", "reviewer"]
        with pytest.raises(standfast.NotFound, match="no agent 'bob' is known"):
            sf.agents.get("bob")


def test_recording_when_an_agent_was_last_seen_costs_no_write_per_call(engine_url: str, tmp_path: Path) -> None:
    clock = ManualClock()
    with opened(engine_url, tmp_path, clock=clock) as sf:
        for n in range(3):
            sf.tasks.add(f"t{n}")
        sf.tasks.claim()
        first = sf.agents.get("ann")
        clock.advance("4m")
        sf.tasks.claim()
        assert sf.agents.get("ann").last_seen_us == first.last_seen_us
        clock.advance("2m")
        sf.tasks.claim()
        again = sf.agents.get("ann")
        assert again.last_seen_us == first.last_seen_us + 360_000_000
        assert again.first_seen_us == first.first_seen_us
        assert [event.type for event in sf.journal.about("agent:ann")] == []


def test_work_that_is_rolled_back_leaves_no_sign(engine_url: str, tmp_path: Path) -> None:
    with opened(engine_url, tmp_path) as sf:
        sf.tasks.add("a")
        with pytest.raises(AttributeError), sf.transaction() as tx:
            tx.tasks.claim().nothing  # type: ignore[union-attr]  # noqa: B018
        assert sf.agents.list() == []
        with sf.transaction() as tx:
            tx.tasks.claim()
        assert names(sf.agents.list()) == ["ann"]


def test_active_agents_are_found_by_their_configuration(engine_url: str, tmp_path: Path) -> None:
    """001-50: for example, list the active agents whose model has a prefix."""
    with opened(engine_url, tmp_path) as sf:
        for name, model, status in (
            ("a", "claude-1", "active"),
            ("b", "claude-2", "idle"),
            ("c", "gpt-5", "active"),
            ("d", None, "active"),
        ):
            sf.agents.set(name, status=status, config={"model": model, "llm": {"temperature": 0.5, "name": model}})
        assert names(sf.agents.list(status="active", config={"model": "claude-*"})) == ["a"]
        assert names(sf.agents.list(config={"model": "claude-*"})) == ["a", "b"]
        assert names(sf.agents.list(config={"llm.name": "gpt-5"})) == ["c"]
        assert names(sf.agents.list(config={"llm.temperature": 0.5, "model": None})) == ["d"]
        assert names(sf.agents.list(config={"llm.temperature": "0.5"})) == []
        assert names(sf.agents.list(config={"model.deeper": 1})) == []
        assert names(sf.agents.list(status="active", limit=2)) == ["a", "c"]
        assert names(sf.agents.list(after=("here", "b"))) == ["c", "d"]
        assert names(sf.agents.list(kind="codex")) == []


def test_a_reported_status_stays_until_the_next_report(engine_url: str, tmp_path: Path) -> None:
    with opened(engine_url, tmp_path) as sf:
        blocked = sf.agents.set(status="blocked", why="no credentials", kind="codex", metadata={"v": 1})
        assert (blocked.name, blocked.status, blocked.status_why) == ("ann", "blocked", "no credentials")
        assert blocked.receipt is not None
        assert sf.journal.verify(str(blocked.receipt)).type == "agent.set"
        task = sf.tasks.add("a")
        sf.tasks.claim()
        assert sf.agents.get("ann").status == "blocked"
        sf.agents.set(status="active")
        found = sf.agents.get("ann")
        assert (found.status, found.status_why, found.kind, found.metadata) == ("active", None, "codex", {"v": 1})
        other = sf.tasks.add("b")
        sf.agents.set("bob", task=other.id[-8:])
        assert sf.agents.get("bob").task_id == other.id
        sf.tasks.done(other.id)
        assert sf.agents.get("bob").task_id is None
        sf.tasks.done(task.id)
        with pytest.raises(standfast.NotFound):
            sf.agents.set(task="nothing")


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "status": ({"status": "busy"}, "a status is idle, active, blocked, error, not 'busy'"),
    "config": ({"config": [1]}, "config is an object"),
    "nan": ({"metadata": {"a": float("nan")}}, r"metadata\.a: NaN"),
    "large": ({"config": {"a": "x" * 70_000}}, "config: .* bytes"),
    "name": ({"name": "a\nb"}, "an agent's name"),
    "empty": ({"name": " "}, "an agent's name is empty"),
    "kind": ({"kind": ""}, "an agent's kind is empty"),
}


@pytest.mark.parametrize("what", BAD)
def test_garbage_is_refused_by_name(sf: standfast.Standfast, what: str) -> None:
    given, wanted = BAD[what]
    with pytest.raises(standfast.InvalidInput, match=wanted):
        sf.agents.set(**given)
    assert sf.agents.list() == []


# -- derived ---------------------------------------------------------------------------------------------

DIES = """
import os, sys
from standfast import config, handle
sf = handle.connect(config.load(sys.argv[1], data_dir=sys.argv[2], actor="ann", scope="here"))
sf.tasks.claim()
os.kill(os.getpid(), 9)
"""


def test_a_crashed_agent_is_shown_at_once_until_another_takes_over(engine_url: str, tmp_path: Path) -> None:
    """001-64: lists derive that the holder crashed, and store nothing."""
    with opened(engine_url, tmp_path, actor="bob") as sf:
        task = sf.tasks.add("a")
        subprocess.run([sys.executable, "-c", DIES, engine_url, str(tmp_path / "data")], env=os.environ)
        (ann,) = sf.agents.list(crashed=True)
        assert (ann.name, ann.crashed, ann.stale, ann.task_id) == ("ann", True, False, task.id)
        claimed = sf.tasks.claim()
        assert claimed is not None
        assert claimed.id == task.id
        assert sf.agents.list(crashed=True) == []
        assert (sf.agents.get("ann").status, sf.agents.get("bob").status) == ("idle", "active")


def test_an_agent_is_stale_if_it_reports_work_and_was_not_seen_for_an_hour(engine_url: str, tmp_path: Path) -> None:
    clock = ManualClock()
    with opened(engine_url, tmp_path, clock=clock, as_actor=True) as sf:
        sf.agents.set(status="active")
        sf.agents.set("idler")
        sf.tasks.add("a")
        clock.advance("59m")
        assert sf.agents.list(stale=True) == []
        clock.advance("2m")
        assert names(sf.agents.list(stale=True)) == ["ann"]
        sf.tasks.claim()
        assert sf.agents.list(stale=True) == []
        clock.advance("2h")  # an actor's lease ended by time, so its state is unknown
        (ann,) = sf.agents.list(stale=True)
        assert (ann.name, ann.crashed) == ("ann", False)


def test_everything_is_there_awaited(engine_url: str, tmp_path: Path) -> None:
    async def program() -> None:
        async with standfast.aopen(engine_url, data_dir=tmp_path / "data", agent="ann") as sf:
            async with sf.session("k") as s:
                assert (await sf.agents.get("ann")).session_id == s.id
            await sf.agents.set(status="error", why="out of tokens")
            assert [one.status for one in await sf.agents.list()] == ["error"]

    asyncio.run(program())


def test_agents_in_a_shell(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    run("task", "add", "x", home=home)
    run("task", "claim", home=home, STANDFAST_ACTOR="ann", CLAUDECODE="1")
    done = run("agent", "set", "ann", "--config", "model=claude-4", "--config", "t=0.5", "--json", home=home)
    assert json.loads(done.stdout)["data"]["config"] == {"model": "claude-4", "t": 0.5}
    listed = run("agent", "list", "--status", "active", "--config", "model=claude-*", "--json", home=home)
    (ann,) = json.loads(listed.stdout)["data"]
    assert (ann["name"], ann["kind"], ann["status"]) == ("ann", "claude-code", "active")
    assert "ann" in run("agent", home=home).stdout
    assert run("agent", "show", "bob", home=home).returncode == 3
    assert run("agent", "list", "--config", "model", home=home).returncode == 2
    assert run("agent", "set", home=home).returncode == 2


HOT: list[tuple[Statement, dict[str, object]]] = [
    (agents.SQL.seen, {"kind": None, "holder": "a:ann"}),
    (agents.SQL.by_name, {}),
    (agents.SQL.held_task, {"holder": "p:x", "actor_holder": "a:ann"}),
    (agents.SQL.held_session, {"holder": "p:x", "actor_holder": "a:ann"}),
]
FILL = """INSERT INTO agent (scope, name, status, first_seen_us, last_seen_us)
SELECT 'here', namespace || key, 'idle', 1, 1 FROM state;
INSERT INTO task (id, scope, repository, fingerprint, episode, state, title, kind, source, priority, labels,
                  occurrences, first_seen_us, last_seen_us, fence, created_us, updated_us)
SELECT 'tsk_' || key, 'here', '', key, 1, 'open', key, 'task', '', 2, '', 1, 1, 1, 0, 1, 1 FROM state;
INSERT INTO session (id, scope, key, state, openings, fence, created_us, updated_us)
SELECT 'ses_' || key, 'here', key, 'completed', 1, 0, 1, 1 FROM state;
ANALYZE"""


def test_every_hot_query_of_agents_uses_an_index(full: standfast.Standfast) -> None:
    for text in FILL.split(";"):
        full._store.write(lambda tx, text=text: tx.run(Statement("fill", text, text)))  # type: ignore[misc]
    for asked, params in HOT:
        steps = "\n".join(plan(full, asked, name="n1k21", **params))
        assert "Seq Scan" not in steps, steps
        assert "SCAN" not in steps, steps
