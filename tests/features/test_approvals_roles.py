"""The roles that `standfast db roles` makes, on a real PostgreSQL: they limit an agent that writes SQL."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

import standfast
from standfast import when
from standfast.cli import app
from standfast.clock import MINUTE_US, SECOND_US, SYSTEM
from standfast.daemon import jobs
from standfast.db.postgres import roles
from standfast.errors import ApprovalRequired, EffectInDoubt, InProgress, StorageError
from standfast_prove.campaigns import hostile_sql
from standfast_prove.faults import daemons
from standfast_prove.planned import dispatch, plan
from standfast_prove.postgres import fresh_database
from tests import hooks, walks
from tests.interfaces.test_cli import run as in_a_process

AsRole = Callable[[str], str]


PREFIX = "t_shared"


@pytest.fixture(scope="module")
def with_roles(pg_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A store with every role and a login for each. Tests copy it, because roles belong to the whole server."""
    with fresh_database(pg_url) as url:
        standfast.open(url, data_dir=tmp_path_factory.mktemp("roles")).close()
        roles.create(url, PREFIX)
        with psycopg.connect(url, autocommit=True) as admin:
            for role in roles.ROLES:
                admin.execute(f"CREATE ROLE {PREFIX}_{role}_login LOGIN PASSWORD 'p' IN ROLE {PREFIX}_{role}".encode())
        try:
            yield str(conninfo_to_dict(url)["dbname"])
        finally:
            dropped(url, PREFIX)


@pytest.fixture
def pg_database(request: pytest.FixtureRequest, pg_url: str) -> Iterator[str]:
    """An empty database, or a store with the roles for a test that also uses `as_role`."""
    if "as_role" not in request.fixturenames:
        with fresh_database(pg_url) as url:
            yield url
        return
    with fresh_database(pg_url, template=request.getfixturevalue("with_roles")) as url:
        name = str(conninfo_to_dict(url)["dbname"])
        sql(url, f"GRANT CREATE ON DATABASE {name} TO {PREFIX}_owner")  # a copied database has grants for tables only
        SHARED.add(name)
        yield url


@pytest.fixture
def as_role(pg_database: str) -> AsRole:
    """The URL of a login for each role."""
    return lambda role: re.sub(r"//[^@/]*@", f"//{PREFIX}_{role}_login:p@", pg_database) + f"?owner={PREFIX}_owner"


SHARED: set[str] = set()
"""The databases whose roles are those of `with_roles`. In the others a test makes roles of its own."""


def prefix_of(url: str) -> str:
    name = str(conninfo_to_dict(url)["dbname"])
    return PREFIX if name in SHARED else f"t_{name[-12:]}"


def dropped(url: str, prefix: str) -> None:
    with psycopg.connect(url, autocommit=True) as admin:
        names = [f"{prefix}_{role}{end}" for role in roles.ROLES for end in ("_login", "")]
        for name in names:
            if admin.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (name,)).fetchone():
                admin.execute(f"DROP OWNED BY {name} CASCADE; DROP ROLE {name}".encode())


@pytest.fixture
def opened(as_role: AsRole, tmp_path: Path) -> Iterator[Callable[[str], standfast.Standfast]]:
    stores: list[standfast.Standfast] = []

    def connect(role: str) -> standfast.Standfast:
        stores.append(standfast.open(as_role(role), data_dir=tmp_path / "data", agent=role))
        return stores[-1]

    yield connect
    for store in stores:
        store.close()


def sql(url: str, *statements: str) -> None:
    with psycopg.connect(re.sub(r"\?owner=.*", "", url), autocommit=True) as connection:
        for text in statements:
            connection.execute(text.encode())


# -- asking and answering ---------------------------------------------------------------------------------------


def test_an_agent_asks_and_acts_and_only_an_approver_answers(opened: Callable[[str], standfast.Standfast]) -> None:
    """002-25, 002-30, R25: the server decides who may grant."""
    agent, approver = opened("writer"), opened("approver")
    effect = plan(agent)
    with pytest.raises(ApprovalRequired) as caught:
        dispatch(agent, effect)
    id = caught.value.approval_id
    for verb in (agent.approvals.grant, agent.approvals.deny):
        with pytest.raises(StorageError) as refused:
            verb(id, approver="agent")
        assert refused.value.code == "not_permitted"
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


def test_a_denial_and_an_expiry_work_with_the_roles(opened: Callable[[str], standfast.Standfast]) -> None:
    agent, approver = opened("writer"), opened("approver")
    denied, brief = plan(agent), plan(agent)
    approver.approvals.deny(agent.approvals.request(denied).id, approver="ada", rationale="no")
    with pytest.raises(ApprovalRequired, match="denied by ada"):
        dispatch(agent, denied)
    over = agent.approvals.request(brief, for_="1us")
    again = agent.approvals.request(brief)
    assert (again.id != over.id, agent.approvals.get(over.id).state) == (True, "expired")


REQUEST = (
    "INSERT INTO standfast.approval (id, scope, effect_id, tool, intent_hash, question, question_hash, attempts,"
    " attempts_used, state, requester, approver, requested_us, expires_us, answered_us)"
    " SELECT 'apr_x', scope, effect_id, tool, intent_hash, {question}, question_hash, 10, {used}, {state}, 'r',"
    " {approver}, 0, 9000000000000000, {answered} FROM standfast.approval"
)
FORGERIES = {
    "grants": "UPDATE standfast.approval SET state = 'granted'",
    "names an approver": "UPDATE standfast.approval SET approver = 'ada'",
    "consumes": "UPDATE standfast.approval SET state = 'consumed'",
    "resets the attempts": "UPDATE standfast.approval SET attempts_used = 0",
    "widens the attempts": "UPDATE standfast.approval SET attempts = 10",
    "binds a grant to another question": "UPDATE standfast.approval SET question_hash = 'h1:other'",
    "changes the question": "UPDATE standfast.approval SET question = '{}'",
    "changes the tool": "UPDATE standfast.approval SET tool = 'preview.form'",
    "moves a grant to another effect": "UPDATE standfast.approval SET effect_id = 'eff_other'",
    "moves an effect to a grant": "UPDATE standfast.effect SET id = 'eff_other'",
    "prolongs it": "UPDATE standfast.approval SET expires_us = expires_us * 2",
    "inserts a granted row": REQUEST.format(
        question="question", used="0", state="'granted'", approver="'ada'", answered="1"
    ),
    "inserts a request with attempts below zero": REQUEST.format(
        question="question", used="-9", state="'requested'", approver="NULL", answered="NULL"
    ),
    "asks one question under the hash of another": REQUEST.format(
        question="'{}'", used="0", state="'requested'", approver="NULL", answered="NULL"
    ),
    "deletes a request": "DELETE FROM standfast.approval",
    "forges a journal row about a grant": (
        "INSERT INTO standfast.event (time_us, occurred_us, scope, actor, holder, source, type, subject)"
        " VALUES (1, 1, '', 'ada', 'h', 'seen', 'approval.granted', 'apr_x')"
    ),
    "signs a journal row with another login": (
        "INSERT INTO standfast.event (time_us, occurred_us, scope, actor, holder, source, type, subject, db_user)"
        " VALUES (1, 1, '', 'ada', 'h', 'seen', 'x.y', 'apr_x', 'ada')"
    ),
    "hides a journal row from readers": (
        "INSERT INTO standfast.event (time_us, occurred_us, scope, actor, holder, source, type, subject, xid)"
        " VALUES (1, 1, '', 'ada', 'h', 'seen', 'x.y', 'apr_x', '99999999')"
    ),
    "rewrites the journal": "UPDATE standfast.event SET actor = 'ada'",
    "shortens the journal": "DELETE FROM standfast.event",
    "empties the journal": "TRUNCATE standfast.event",
    "adds a loop": (
        'INSERT INTO standfast.loop SELECT (json_populate_record(NULL::standfast.loop, \'{"id": "lop_x"}\')).*'
    ),
    "changes a loop": "UPDATE standfast.loop SET command = '[\"id\"]'",
    "queues a run": "UPDATE standfast.run SET state = 'queued'",
    "deletes a gate": "DELETE FROM standfast.gate",
    "removes a gate": "UPDATE standfast.gate SET removed_us = 1",
    "raises a limit": "UPDATE standfast.budget SET max_tokens = 9000",
    "removes a budget": "UPDATE standfast.budget SET removed_us = 1",
    "moves a repository away from its gates": "UPDATE standfast.repository SET id = 'other'",
    "fences others": "UPDATE standfast.meta SET value = '999' WHERE key = 'min_writer'",
    "rewrites the history": "DELETE FROM standfast.migration",
    "stores a command for a person to run": "UPDATE standfast.state SET verify = 'touch VERIFIED'",
    "stores a command to resume": "UPDATE standfast.session SET command = '[\"id\"]'",
    "turns row security off": "ALTER TABLE standfast.approval DISABLE ROW LEVEL SECURITY",
    "turns a trigger off": "ALTER TABLE standfast.effect DISABLE TRIGGER effect_grant",
    "adds a trigger": (
        "CREATE TRIGGER mine BEFORE INSERT ON standfast.task FOR EACH ROW EXECUTE FUNCTION standfast.refuse_change()"
    ),
    "adds a function": "CREATE FUNCTION standfast.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "becomes an approver": "SET ROLE {prefix}_approver",
    "becomes the owner": "SET ROLE {prefix}_owner",
}


def test_an_agent_that_writes_sql_of_its_own_is_refused(
    opened: Callable[[str], standfast.Standfast], as_role: AsRole, pg_database: str
) -> None:
    """R13, R14, R24, R25, 002-25: the agent may not grant, reuse, widen or forge approvals, or write protected
    tables.
    """
    agent = opened("writer")
    agent.approvals.request(plan(agent))
    agent.state.set("branch", "main")
    agent.session("work").__enter__()
    before = protected(pg_database)
    for forgery, statement in FORGERIES.items():
        try:
            sql(as_role("writer"), statement.replace("{prefix}", prefix_of(pg_database)))
        except psycopg.errors.InsufficientPrivilege:
            pass
        else:
            pytest.fail(f"{forgery}: not refused")
        assert protected(pg_database) == before, forgery


def protected(url: str) -> dict[str, list[object]]:
    tables = ("approval", "event", "loop", "run", "gate", "meta", "migration", "repository")
    with psycopg.connect(url) as admin:
        return {name: admin.execute(f"SELECT * FROM standfast.{name}".encode()).fetchall() for name in tables}


def test_the_owner_can_do_what_the_agent_cannot(opened: Callable[[str], standfast.Standfast], as_role: AsRole) -> None:
    """The control: the owner may run the same statements, so the role is the reason for the refusal."""
    agent = opened("writer")
    effect = plan(agent)
    id = agent.approvals.request(effect).id
    forged = "UPDATE standfast.approval SET state = 'granted', approver = 'ada', answered_us = 1"
    sql(as_role("owner"), forged, "UPDATE standfast.meta SET value = '1' WHERE key = 'min_writer'")
    assert agent.approvals.get(id).state == "granted"


def test_generated_statements_of_an_agent_gain_nothing(pg_database: str, tmp_path: Path) -> None:
    """002-25, 002-30, R24, R25: a sample of the campaign `hostile-sql`."""
    outcome = hostile_sql.run(tmp_path, url=pg_database, seed=5, statements=120)
    assert outcome.bad == []
    assert outcome.seen["sends"] > 0


def test_with_the_owners_role_the_same_statements_break_it(pg_database: str, tmp_path: Path) -> None:
    """The control: with the owner's role, the campaign finds violations."""
    assert hostile_sql.run(tmp_path, url=pg_database, seed=1, statements=60, owner=True).bad


def test_a_dispatch_by_sql_consumes_the_grant(opened: Callable[[str], standfast.Standfast], as_role: AsRole) -> None:
    """R14: a trigger consumes the grant on any transition to dispatched; a change to failed does not return it."""
    agent, approver = opened("writer"), opened("approver")
    effect = plan(agent)
    id = agent.approvals.request(effect).id
    with pytest.raises(psycopg.errors.SerializationFailure, match="has no grant"):
        sql(as_role("writer"), "UPDATE standfast.effect SET state = 'dispatched', attempt = 1")
    approver.approvals.grant(id, approver="ada")
    sql(as_role("writer"), "UPDATE standfast.effect SET state = 'dispatched', attempt = 1, dispatched_us = 1")
    found = agent.approvals.get(id)
    assert (found.state, found.attempts_used, found.attempt) == ("consumed", 1, 1)
    sql(as_role("writer"), "UPDATE standfast.effect SET state = 'failed'")
    with pytest.raises(ApprovalRequired) as caught:
        dispatch(agent, effect)
    assert caught.value.approval_id != id


@pytest.mark.parametrize("holder", ["NULL", "'a:another'"])
def test_an_effect_that_sql_dispatched_without_a_time_is_refused_like_any_other(
    opened: Callable[[str], standfast.Standfast], as_role: AsRole, holder: str
) -> None:
    """R25, 002-25: the refusal does not depend on columns that an agent left empty."""
    agent = opened("writer")
    begin = partial(agent.effects.begin, "shop.mail", {"n": 1}, key="mail:1")
    begin()
    sql(
        as_role("writer"),
        f"UPDATE standfast.effect SET first_dispatched_us = NULL, dispatched_us = NULL, holder = {holder}, "
        "lease_until_us = 9000000000000000",
    )
    with pytest.raises((EffectInDoubt, InProgress)):
        begin()
    if holder == "NULL":
        assert begin(idempotent=True).attempt == 2
    sql(as_role("writer"), "UPDATE standfast.effect SET state = 'acknowledged', ended_us = NULL, result = '1'")
    assert agent.effects.may_replay("mail:1").action == "skip"


def test_a_journal_row_names_the_login_that_wrote_it(
    opened: Callable[[str], standfast.Standfast], as_role: AsRole, pg_database: str
) -> None:
    """R25: an agent can write any actor, but the server sets `db_user`."""
    agent = opened("writer")
    agent.tasks.add("write it")
    sql(
        as_role("writer"),
        "INSERT INTO standfast.event (time_us, occurred_us, scope, actor, holder, source, type, subject)"
        " VALUES (1, 1, '', 'ada', 'h', 'said', 'note.made', 'tsk_x')",
    )
    users = {row["db_user"] for row in agent.rows("SELECT DISTINCT db_user FROM event WHERE type <> 'store.created'")}
    assert users == {f"{prefix_of(pg_database)}_writer_login"}


def test_a_denial_cannot_be_turned_into_a_grant_by_an_approver(
    opened: Callable[[str], standfast.Standfast], as_role: AsRole
) -> None:
    agent, approver = opened("writer"), opened("approver")
    id = agent.approvals.request(plan(agent)).id
    approver.approvals.deny(id, approver="ada")
    sql(as_role("approver"), "UPDATE standfast.approval SET state = 'granted'")
    assert approver.approvals.get(id).state == "denied"


# -- the other roles ------------------------------------------------------------------------------------------------


def test_the_operators_role_writes_loops_gates_and_stored_commands(
    opened: Callable[[str], standfast.Standfast],
) -> None:
    """R24: commands that run later in another process need the role `daemon`."""
    operator, agent = opened("daemon"), opened("writer")
    operator.loops.add("nightly", ["true"], every="1h")
    operator.gates.add("git push*")
    operator.state.set("branch", "main", verify="git branch")
    for refused in (
        lambda: agent.loops.add("mine", ["id"], every="1s"),
        lambda: agent.loops.remove("nightly"),
        lambda: agent.runs.ask("nightly"),
        lambda: agent.state.set("branch", "main", verify="id"),
    ):
        with pytest.raises(StorageError) as caught:
            refused()
        assert caught.value.code == "not_permitted"
    assert agent.state.set("branch", "next").value == "next"
    with pytest.raises(StorageError):
        operator.approvals.grant(agent.approvals.request(plan(agent)).id, approver="ada")


OPERATORS = ("state", "loops", "gates", "budgets")
"""Resources that an agent's role writes in part or not at all: stored commands, loops, gates, limits."""


def test_an_agent_reserves_and_settles_and_the_operators_role_changes_a_limit(
    opened: Callable[[str], standfast.Standfast],
) -> None:
    operator, agent = opened("daemon"), opened("writer")
    operator.budgets.set("team", tokens=1_000, per="day")
    assert agent.budgets.set("coder", tokens=500, within="team").limit.tokens == 500
    agent.budgets.settle(agent.budgets.reserve("coder", tokens=300), tokens=100)
    for refused in (lambda: agent.budgets.set("team", tokens=2_000), lambda: agent.budgets.remove("team")):
        with pytest.raises(StorageError) as caught:
            refused()
        assert caught.value.code == "not_permitted"
    assert operator.budgets.set("team", tokens=2_000).left.tokens == 1_900


@pytest.mark.parametrize("role", ["daemon", "writer"])
def test_every_method_works_with_its_role(as_role: AsRole, tmp_path: Path, role: str) -> None:
    """002-25: the role of an agent or an operator is enough for each method, except for answering an approval."""
    names = walks.Names()
    with walks.opened(as_role(role), tmp_path, names) as sf:
        for name, resource in walks.RESOURCES.items():
            if name != "approvals" and (name in OPERATORS) == (role == "daemon"):
                for step in resource.walk(sf, names):
                    if step.reread is not None:
                        step.reread()


COMMANDS = {
    "writer": (
        "status", "brief", "timeline", "task add x", "mail send bob hi", "state set k 1", "decide this --why that",
        "lock deploy --for 5m", "session list", "gate list", "loop list", "recovery", "doctor",
        "search x", "approval list",
    ),
    "daemon": ("status", "loop add nightly --every 1h -- true", "gate add x*", "daemon status", "doctor"),
    "approver": ("status", "approval list --all", "timeline", "doctor"),
    "reader": ("status", "brief", "timeline", "task list", "doctor"),
}  # fmt: skip


@pytest.mark.parametrize("role", COMMANDS)
def test_commands_work_with_their_role(
    role: str, as_role: AsRole, command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STANDFAST_DB_URL", as_role(role))
    for line in COMMANDS[role]:
        words = line.split()
        command(*words, code=3 if words == ["daemon", "status"] else 0)


def test_a_command_runs_once_with_the_role_of_an_agent(as_role: AsRole, tmp_path: Path) -> None:
    for _ in range(2):
        done = in_a_process("once", "k", "--", "echo", "sent", home=tmp_path, STANDFAST_DB_URL=as_role("writer"))
        assert (done.returncode, done.stdout) == (0, "sent\n"), done.stderr


def test_a_hook_asks_with_the_role_of_an_agent_and_passes_once(
    opened: Callable[[str], standfast.Standfast], as_role: AsRole, tmp_path: Path
) -> None:
    """002-25, R14: gate, request, grant and one call, each with its own role."""
    opened("daemon").gates.add("git push*", scope="")
    approver, call = opened("approver"), hooks.bash("PreToolUse", "git push", cwd=tmp_path)
    store = {"STANDFAST_DB_URL": as_role("writer")}
    answers = [
        hooks.enter("claude-code", call, tmp_path / "data", cwd=tmp_path, program=("-c", hooks.PATIENT), **store).stdout
    ]
    (waiting,) = approver.approvals.list(state="requested", everywhere=True)
    approver.approvals.grant(waiting.id, approver="ada")
    for id in ("t2", "t3"):
        call["tool_use_id"] = id
        answers.append(
            hooks.enter(
                "claude-code", call, tmp_path / "data", cwd=tmp_path, program=("-c", hooks.PATIENT), **store
            ).stdout
        )
    assert [b"deny" in answer for answer in answers] == [True, False, True], answers
    assert approver.approvals.get(waiting.id).state == "consumed"


def test_a_daemon_works_with_its_role_and_runs_nothing_of_an_agent(
    as_role: AsRole, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R24: every part of the daemon works with the role `daemon`. The agent's role cannot add commands for the
    daemon.
    """
    at_us = SYSTEM.now_us() // SECOND_US * SECOND_US + 30 * MINUTE_US
    with daemons.opened(as_role("daemon"), tmp_path / "data") as now:
        now.loops.add("nightly", daemons.noting(tmp_path / "ran"), at=when.utc(at_us), cwd="/")
    with daemons.opened(as_role("writer"), tmp_path / "data") as agent, pytest.raises(StorageError):
        agent.loops.add("mine", daemons.noting(tmp_path / "ran"), at=when.utc(at_us), cwd="/")
    monkeypatch.setattr(jobs, "SWEEP_EVERY_US", 0)
    monkeypatch.setattr(jobs, "CARE_EVERY_US", 0)
    monkeypatch.setattr(jobs, "COLLECT_EVERY_US", 0)
    with daemons.opened(as_role("daemon"), tmp_path / "data", clock=daemons.Later()) as sf:
        serving = daemons.daemon(sf)
        daemons.until(lambda: [run.state for run in sf.runs.list()] == ["done"], lambda: serving.tick(woken=True))
        assert [part.state for part in serving.supervisor.states()] == ["ok"] * 4
    assert daemons.noted(tmp_path / "ran") == {("nightly", at_us): 1}


def test_the_mcp_server_works_with_the_role_of_an_agent(opened: Callable[[str], standfast.Standfast]) -> None:
    from tests.interfaces.test_mcp import Agent, talk

    async def story(ask: Agent) -> None:
        await ask("task_add", title="over MCP")
        asked = await ask("approval_request", tool="deploy", intent={"env": "staging"})
        assert asked["state"] == "requested", asked

    talk(opened("writer"), story)


def test_a_reader_reads_everything_and_an_auditor_no_payload(
    opened: Callable[[str], standfast.Standfast],
) -> None:
    """002-18: an auditor needs no payload, and cannot read it."""
    opened("writer").tasks.add("write it")
    reader, auditor = opened("reader"), opened("auditor")
    assert list(reader.rows("SELECT data FROM event"))
    assert list(auditor.rows("SELECT type, actor, summary FROM event"))
    with pytest.raises(standfast.StandfastError):
        list(auditor.rows("SELECT data FROM event"))
    for role in (reader, auditor):
        with pytest.raises(StorageError):
            role.tasks.add("no")


# -- the command ----------------------------------------------------------------------------------------------------


@pytest.fixture
def command(
    pg_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., Any]]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STANDFAST_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("STANDFAST_DB_URL", pg_database)
    prefix = prefix_of(pg_database)

    def run(*words: str, code: int = 0) -> Any:
        capsys.readouterr()
        ended = app.run([words[0], "--json", *words[1:]] if "--" in words else [*words, "--json"])
        out, err = capsys.readouterr()
        assert ended == code, f"{words}: {err}"
        return json.loads(out)["data"] if code == 0 else err

    yield run
    if prefix != PREFIX:
        dropped(pg_database, prefix)


def findings(run: Callable[..., Any]) -> dict[str, dict[str, str]]:
    return {row["id"]: row for row in run("doctor")}


def test_the_command_makes_them_twice_and_prints_before(command: Callable[..., Any], pg_database: str) -> None:
    prefix = prefix_of(pg_database)
    words = ("db", "roles", "--prefix", prefix)
    assert "none" in findings(command)["roles"]["text"]
    printed = command(*words, "--print")
    assert printed["changed"] is False
    assert f"CREATE ROLE {prefix}_writer NOLOGIN" in printed["statements"]
    assert "none" in findings(command)["roles"]["text"]
    first, second = command(*words), command(*words)
    assert len(first["created"]) == 6
    assert second["created"] == []
    found = findings(command)
    assert (found["roles"]["state"], found["owner"]["state"], found["locks"]["state"]) == ("ok", "ok", "ok")
    assert f"{prefix}_owner" in found["owner"]["text"]


def test_an_owner_of_the_database_that_is_no_superuser_makes_them(pg_database: str, tmp_path: Path) -> None:
    prefix, name = prefix_of(pg_database), f"ada_{prefix_of(pg_database)}"
    database = conninfo_to_dict(pg_database)["dbname"]
    sql(pg_database, f"CREATE ROLE {name} LOGIN CREATEROLE PASSWORD 'p'", f"ALTER DATABASE {database} OWNER TO {name}")
    url = re.sub(r"//[^@/]*@", f"//{name}:p@", pg_database)
    try:
        standfast.open(url, data_dir=tmp_path / "data").close()
        for created in (6, 0):
            assert len(roles.create(url, prefix).created) == created
        with standfast.open(url, data_dir=tmp_path / "data") as sf:
            sf.tasks.add("as the owner")
    finally:
        sql(pg_database, f"ALTER DATABASE {database} OWNER TO CURRENT_USER")
        dropped(pg_database, prefix)
        sql(pg_database, f"DROP OWNED BY {name} CASCADE", f"DROP ROLE {name}")


def test_an_agent_may_not_change_roles(
    command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, pg_database: str
) -> None:
    """R29: "changes roles" is on the list of methods that are refused to agents."""
    monkeypatch.setenv("CLAUDECODE", "1")
    assert "only a person changes roles" in str(command("db", "roles", "--prefix", prefix_of(pg_database), code=5))


WIDENED = {
    "GRANT UPDATE ON standfast.approval TO {p}_writer": "writer UPDATE on approval",
    "GRANT INSERT ON standfast.loop TO {p}_writer": "writer INSERT on loop",
    "GRANT SELECT ON standfast.message TO PUBLIC": "PUBLIC SELECT on message",
    "GRANT CREATE ON SCHEMA standfast TO {p}_writer": "writer CREATE on the schema",
    "DROP POLICY asked ON standfast.approval": "policy asked",
    "ALTER TABLE standfast.approval DISABLE ROW LEVEL SECURITY": "row security of approval is off",
    "REVOKE INSERT ON standfast.task FROM {p}_writer": "missing",
}
"""What `standfast db roles` puts right, with the words of the finding."""
NOT_PUT_RIGHT = {
    "GRANT {p}_approver TO {p}_writer": "is a member of",
    "ALTER ROLE {p}_writer BYPASSRLS": "BYPASSRLS",
    "CREATE POLICY more ON standfast.approval FOR UPDATE TO {p}_writer USING (true)": "policy more",
}


def test_doctor_finds_a_grant_that_is_too_wide_or_missing(command: Callable[..., Any], pg_database: str) -> None:
    prefix = prefix_of(pg_database)
    command("db", "roles", "--prefix", prefix)
    for change, words in WIDENED.items():
        sql(pg_database, change.replace("{p}", prefix))
        found = findings(command)["roles"]
        assert found["state"] == "warn", change
        assert words in found["text"]
        command("db", "roles", "--prefix", prefix)
        assert findings(command)["roles"]["state"] == "ok", change
    for change, words in NOT_PUT_RIGHT.items():
        sql(pg_database, change.replace("{p}", prefix))
        found = findings(command)["roles"]
        assert found["state"] == "warn", change
        assert words in found["text"]


def test_doctor_names_the_process_that_others_wait_for(
    command: Callable[..., Any], as_role: AsRole, pg_database: str
) -> None:
    """R25: a writer can hold locks; `doctor` says which process it is."""
    import threading

    url = re.sub(r"\?owner=.*", "", as_role("writer"))
    with psycopg.connect(url, application_name="stuck") as holder, psycopg.connect(pg_database) as waiter:
        pid = holder.info.backend_pid
        holder.execute("INSERT INTO standfast.lease (scope, name, fence) VALUES ('', 'x', 1)")
        insert = "INSERT INTO standfast.lease (scope, name, fence) VALUES ('', 'x', 1) ON CONFLICT DO NOTHING"
        waits = threading.Thread(target=lambda: waiter.execute(insert))
        waits.start()
        with psycopg.connect(pg_database, autocommit=True) as looks:
            while not looks.execute("SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'").fetchone():
                pass
        found = findings(command)["locks"]
        holder.rollback()
        waits.join()
    assert found["state"] == "warn"
    assert f"server process {pid}" in found["text"]
    assert "(stuck)" in found["text"]
    assert "pg_terminate_backend" in found["remedy"]


# -- a store of another role -----------------------------------------------------------------------------------------


@pytest.fixture
def low(pg_database: str) -> Iterator[str]:
    """The URL of a role that may create a schema but has no other right."""
    name = f"low_{prefix_of(pg_database)}"
    database = conninfo_to_dict(pg_database)["dbname"]
    sql(pg_database, f"CREATE ROLE {name} LOGIN PASSWORD 'p'", f"GRANT CREATE ON DATABASE {database} TO {name}")
    try:
        yield re.sub(r"//[^@/]*@", f"//{name}:p@", pg_database)
    finally:
        sql(pg_database, f"DROP OWNED BY {name} CASCADE", f"DROP ROLE {name}")


def test_a_store_of_a_role_that_one_does_not_belong_to_is_refused(low: str, pg_database: str, tmp_path: Path) -> None:
    """R28: its triggers would run with the rights of every later caller, also of a superuser."""
    standfast.open(low, data_dir=tmp_path / "low").close()
    name = conninfo_to_dict(low)["user"]
    sql(
        low,
        f"CREATE FUNCTION standfast.take() RETURNS trigger LANGUAGE plpgsql AS"
        f" $$ BEGIN ALTER ROLE {name} SUPERUSER; RETURN NEW; END $$",
        "CREATE TRIGGER take BEFORE INSERT ON standfast.task FOR EACH ROW EXECUTE FUNCTION standfast.take()",
    )
    with pytest.raises(StorageError) as caught:
        standfast.open(pg_database, data_dir=tmp_path / "data")
    assert caught.value.code == "foreign_owner"
    assert f"?owner={name}" in caught.value.hint
    with psycopg.connect(pg_database) as admin:
        assert admin.execute("SELECT rolsuper FROM pg_roles WHERE rolname = %s", (name,)).fetchone() == (False,)
        assert admin.execute("SELECT count(*) FROM standfast.task").fetchone() == (0,)


def test_a_store_of_a_superuser_is_open_to_other_roles(low: str, pg_database: str, tmp_path: Path) -> None:
    """A superuser could do the same without owning the store."""
    standfast.open(pg_database, data_dir=tmp_path / "data").close()
    name = conninfo_to_dict(low)["user"]
    sql(
        pg_database,
        f"GRANT USAGE ON SCHEMA standfast TO {name}; GRANT SELECT ON ALL TABLES IN SCHEMA standfast TO {name}",
    )
    with standfast.open(low, data_dir=tmp_path / "low") as sf:
        assert sf.tasks.list() == []


def test_an_empty_schema_of_another_role_is_refused(low: str, pg_database: str, tmp_path: Path) -> None:
    sql(low, "CREATE SCHEMA standfast")
    with pytest.raises(StorageError) as caught:
        standfast.open(pg_database, data_dir=tmp_path / "data")
    assert caught.value.code == "foreign_owner"


def test_a_named_owner_is_trusted_and_doctor_lists_objects_of_others(
    low: str, pg_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Callable[..., Any]
) -> None:
    """R28: confirmed by naming the role."""
    standfast.open(low, data_dir=tmp_path / "low").close()
    name = conninfo_to_dict(low)["user"]
    sql(
        low,
        "CREATE FUNCTION standfast.take() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$",
        "CREATE TRIGGER take BEFORE INSERT ON standfast.task FOR EACH ROW EXECUTE FUNCTION standfast.take()",
        "ALTER TABLE standfast.event DISABLE TRIGGER event_guard",
    )
    monkeypatch.setenv("STANDFAST_DB_URL", f"{pg_database}?owner={name}")
    found = findings(command)["owner"]
    assert found["state"] == "warn"
    for words in (f"role {name} owns the store", "trigger take on task", "function take", "event_guard on event"):
        assert words in found["text"]


def test_a_url_with_our_own_parameters_is_peeked_at(pg_database: str, tmp_path: Path) -> None:
    """`apply` looks up the schema before it opens the store."""
    from standfast.db.migrations import LATEST
    from standfast.db.schema_version import schema_version

    standfast.open(pg_database, data_dir=tmp_path / "data").close()
    assert schema_version("postgres", f"{pg_database}?owner=ada&pooler=none") == LATEST


def test_a_member_of_the_owner_opens_and_migrates_as_the_owner(
    opened: Callable[[str], standfast.Standfast], as_role: AsRole, pg_database: str
) -> None:
    """New objects of a later migration belong to the owner's role, not to the member that ran it."""
    from standfast.clock import SYSTEM
    from standfast.db.contract import Caller
    from standfast.db.migrations import LATEST, MIGRATIONS
    from standfast.db.migrations.migration import Migration
    from standfast.db.postgres.engine import PostgresEngine

    caller = Caller(actor="tester", holder="h", scope="", clock=SYSTEM)
    added = Migration(version=LATEST + 1, name="next", text="CREATE TABLE next_thing (key TEXT PRIMARY KEY);")
    PostgresEngine(as_role("owner"), caller, migrations=(*MIGRATIONS, added)).close()
    with psycopg.connect(pg_database) as admin:
        owner = "SELECT tableowner FROM pg_tables WHERE tablename = 'next_thing'"
        assert admin.execute(owner).fetchone() == (f"{prefix_of(pg_database)}_owner",)


# -- copies -----------------------------------------------------------------------------------------------------


def test_a_copy_by_a_role_is_whole_or_refused(opened: Callable[[str], standfast.Standfast], tmp_path: Path) -> None:
    """001-54, R25: roles that read every column can copy every row. The auditor cannot, and so gets no copy."""
    person = opened("daemon")
    with person.session("talk") as s:
        s.say("user", "hello")
    person.loops.add("nightly", ["true"], every="1d", cwd="/")
    counts = []
    for role in ("daemon", "writer"):
        copy = opened(role).backup(tmp_path / "copies")
        assert [
            check for check in opened(role).copies.test(copy.id, place=str(tmp_path / "copies")).checks if not check.ok
        ] == []
        counts.append(copy.seq)
    assert counts == sorted(counts)
    with pytest.raises(standfast.StorageError, match=r"the copy cpy_\w{26} was not written"):
        opened("auditor").backup(tmp_path / "copies")
