"""On PostgreSQL a role makes approvals a lock: the statements in docs/approvals.md, on a real server."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

import standfast
from standfast.errors import ApprovalRequired, StorageError
from standfast_prove.planned import dispatch, plan

DOCS = Path(__file__).resolve().parent.parent / "docs" / "approvals.md"
ROLES = ("standfast_agent", "standfast_approver")


def statements() -> str:
    (text,) = re.findall(r"```sql\n(.*?)```", DOCS.read_text(), flags=re.DOTALL)
    assert isinstance(text, str)
    return text


@pytest.fixture
def as_role(pg_database: str, pg_url: str, tmp_path: Path) -> Iterator[Callable[[str], standfast.Standfast]]:
    """Opens the store as one of the two roles. Roles belong to the whole server, so they are named per test."""
    standfast.open(pg_database, data_dir=tmp_path / "data").close()
    text, names = statements(), {}
    for role in ROLES:
        names[role] = f"{role}_{conninfo_to_dict(pg_database)['dbname']}"[:63]
        text = text.replace(role, names[role])
    opened: list[standfast.Standfast] = []
    with psycopg.connect(pg_database, autocommit=True) as owner:
        owner.execute(text.encode())
        for name in names.values():
            owner.execute(f"ALTER ROLE {name} PASSWORD 'p'".encode())

    def connect(role: str) -> standfast.Standfast:
        url = re.sub(r"//[^@/]*@", f"//{names[role]}:p@", pg_database)
        opened.append(standfast.open(url, data_dir=tmp_path / "data", actor=role))
        return opened[-1]

    try:
        yield connect
    finally:
        for store in opened:
            store.close()
        with psycopg.connect(pg_database, autocommit=True) as owner:
            for name in names.values():
                owner.execute(f"DROP OWNED BY {name}; DROP ROLE {name}".encode())


def test_an_agent_asks_and_acts_and_only_an_approver_says_yes(
    as_role: Callable[[str], standfast.Standfast], pg_database: str
) -> None:
    """002-25, 002-30: who may say yes is decided by the server, not by the agent."""
    agent, approver = as_role("standfast_agent"), as_role("standfast_approver")
    effect = plan(agent)
    with pytest.raises(ApprovalRequired) as caught:
        dispatch(agent, effect)
    id = caught.value.approval_id
    for verb in (agent.approvals.grant, agent.approvals.deny):
        with pytest.raises(StorageError):
            verb(id, approver="agent")
    assert approver.approvals.get(id).state == "requested"
    assert approver.approvals.pose(id).exact
    assert approver.approvals.grant(id, approver="ada").state == "granted"
    assert dispatch(agent, effect) == 1
    assert agent.approvals.get(id).state == "consumed"
    with pytest.raises(StorageError):
        approver.approvals.request(plan(agent))
    assert [event.type for event in agent.journal.about(id)] == [
        "approval.requested",
        "approval.granted",
        "approval.consumed",
    ]


def test_a_no_and_an_expiry_work_with_the_roles(as_role: Callable[[str], standfast.Standfast]) -> None:
    agent, approver = as_role("standfast_agent"), as_role("standfast_approver")
    denied, brief = plan(agent), plan(agent)
    approver.approvals.deny(agent.approvals.request(denied).id, approver="ada", rationale="no")
    with pytest.raises(ApprovalRequired, match="denied by ada"):
        dispatch(agent, denied)
    over = agent.approvals.request(brief, for_us=1)
    again = agent.approvals.request(brief)
    assert (again.id != over.id, agent.approvals.get(over.id).state) == (True, "expired")


FORGERIES = {
    "grants": "UPDATE standfast.approval SET state = 'granted'",
    "names an approver": "UPDATE standfast.approval SET approver = 'ada'",
    "consumes what nobody granted": "UPDATE standfast.approval SET state = 'consumed'",
    "binds a yes to other bytes": "UPDATE standfast.approval SET intent_hash = 'h1:other'",
    "moves a yes to another effect": "UPDATE standfast.approval SET effect_id = 'eff_other'",
    "prolongs it": "UPDATE standfast.approval SET expires_us = expires_us * 2",
    "makes a granted row": (
        "INSERT INTO standfast.approval (id, scope, effect_id, tool, intent_hash, state, requester, approver,"
        " requested_us, expires_us, answered_us)"
        " VALUES ('apr_x', '', 'eff_x', 't', 'h', 'granted', 'r', 'ada', 0, 9, 1)"
    ),
    "deletes a request": "DELETE FROM standfast.approval",
    "rewrites the journal": "UPDATE standfast.event SET actor = 'ada'",
    "shortens the journal": "DELETE FROM standfast.event",
    "takes the lock off": "ALTER TABLE standfast.approval DISABLE ROW LEVEL SECURITY",
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_an_agent_that_writes_sql_of_its_own_cannot_forge_a_yes(
    as_role: Callable[[str], standfast.Standfast], pg_database: str, forgery: str
) -> None:
    agent = as_role("standfast_agent")
    agent.approvals.request(plan(agent))
    with psycopg.connect(agent.settings.target.location, autocommit=True) as connection:
        refused = False
        try:
            connection.execute(FORGERIES[forgery].encode())
        except psycopg.errors.InsufficientPrivilege:
            refused = True
    assert refused, forgery
    assert [found.state for found in agent.approvals.list()] == ["requested"]


def test_a_no_cannot_be_turned_into_a_yes_by_an_approver_either(
    as_role: Callable[[str], standfast.Standfast],
) -> None:
    agent, approver = as_role("standfast_agent"), as_role("standfast_approver")
    id = agent.approvals.request(plan(agent)).id
    approver.approvals.deny(id, approver="ada")
    with psycopg.connect(approver.settings.target.location, autocommit=True) as connection:
        changed = connection.execute("UPDATE standfast.approval SET state = 'granted'")
        assert changed.rowcount == 0
    assert approver.approvals.get(id).state == "denied"
