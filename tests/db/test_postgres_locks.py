"""Locks on PostgreSQL: one test for each, with two connections, the second one held at the statement that locks.

SQLite has one writer, so these statements lock nothing there. On PostgreSQL each lock is needed: without it two
callers read the same row, both decide, and one of them is wrong.

    waits      the first connection has the row locked; the method must wait at its own locking statement,
               before it has read anything: pg_stat_activity shows the statement it waits in
    passes by  the first connection has the next row locked; the method takes the one after it, and does not wait
"""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

import standfast
from standfast.clock import ManualClock
from standfast.config.scope import Label
from standfast.core import repositories
from standfast.db.postgres import copies, migrate
from standfast.db.postgres.migrate import LOCK_KEY
from standfast.db.sql import statement
from standfast.interchange.hooks.payloads import Heard
from standfast.interchange.hooks.record import Hooks
from standfast.record.conversations import Conversations, Line
from standfast.record.items import Change
from standfast.record.threads import Write
from standfast_prove.faults.daemons import until
from standfast_prove.postgres import fresh_database
from tests.walks import Names, opened

Handle = standfast.Standfast
Do = Callable[[], Any]
WAITING = """SELECT query FROM pg_stat_activity
             WHERE datname = current_database() AND wait_event_type = 'Lock' AND pid <> pg_backend_pid()"""


class Beside:
    """A call in a second thread."""

    def __init__(self, do: Do) -> None:
        self.answer: Any = None
        self._do = do
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.answer = self._do()
        except standfast.StandfastError as error:
            self.answer = error

    @property
    def ended(self) -> bool:
        return not self._thread.is_alive()

    def end(self) -> Any:
        self._thread.join(60)
        assert self.ended
        return self.answer


def waits_in(admin: psycopg.Connection[Any], beside: Beside) -> str:
    """The statement in which the other connection waits for a lock, or nothing if the call has ended.

    It is read twice, because the server reads the statement shortly before it reads the wait.
    """
    looks: list[list[str]] = [[]]

    def looked() -> bool:
        looks.append([" ".join(query.split()) for (query,) in admin.execute(WAITING).fetchall()])
        return looks[-1] == looks[-2] != [] or beside.ended

    until(looked, patience_s=60)
    return "" if beside.ended else looks[-1][0]


@contextmanager
def locked(url: str, table: str, where: str = "TRUE") -> Iterator[psycopg.Connection[Any]]:
    """Another connection locks these rows until the end of the block."""
    with (
        psycopg.connect(url, options="-c search_path=standfast") as holder,
        psycopg.connect(url, autocommit=True) as admin,
    ):
        assert holder.execute(f"SELECT 1 FROM {table} WHERE {where} FOR UPDATE".encode()).fetchall()
        yield admin
        holder.rollback()


# -- waits -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shared_url(pg_url: str) -> Iterator[str]:
    with fresh_database(pg_url) as url:
        yield url


@pytest.fixture(scope="module")
def shared(shared_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Handle]:
    with opened(shared_url, tmp_path_factory.mktemp("locks"), Names()) as sf:
        yield sf


def a_lock(sf: Handle) -> Do:
    sf.leases.release("deploy", sf.leases.acquire("deploy").fence)
    return lambda: sf.leases.acquire("deploy")


def a_lock_released(sf: Handle) -> Do:
    sf.leases.acquire("release me")
    return lambda: sf.leases.release("release me")


def an_effect_by_key(sf: Handle) -> Do:
    sf.effects.plan("mail.send", 1, key="by key")
    return lambda: sf.effects.begin("mail.send", 1, key="by key")


def an_effect_by_id(sf: Handle) -> Do:
    id = sf.effects.begin("mail.send", 1, key="by id").id
    return lambda: sf.effects.done(id, 1)


def a_webhook(sf: Handle) -> Do:
    id = sf.webhooks.receive("stripe", "evt-1", {}).id
    return lambda: sf.webhooks.claim(id)


def a_webhook_again(sf: Handle) -> Do:
    sf.webhooks.receive("stripe", "evt-2", {})
    return lambda: sf.webhooks.receive("stripe", "evt-2", {})


def an_agent(sf: Handle) -> Do:
    sf.agents.set("builder", status="idle")
    return lambda: sf.agents.set("builder", status="active")


def a_loop(sf: Handle) -> Do:
    sf.loops.add("paused", ["true"], every="1h", cwd="/")
    return lambda: sf.loops.pause("paused", "holidays")


def a_loop_again(sf: Handle) -> Do:
    sf.loops.add("added", ["true"], every="1h", cwd="/")
    return lambda: sf.loops.add("added", ["false"], every="1h", cwd="/")


def a_run(sf: Handle) -> Do:
    sf.loops.add("claimed", ["true"], every="1h", cwd="/")
    id = sf.runs.ask("claimed").id
    return lambda: sf.runs.claim(host="here", run_id=id)


def a_run_cancelled(sf: Handle) -> Do:
    sf.loops.add("cancelled", ["true"], every="1h", cwd="/")
    id = sf.runs.ask("cancelled").id
    return lambda: sf.runs.cancel(id, "not today")


def a_task(sf: Handle) -> Do:
    id = sf.tasks.add("parser is flaky").id
    return lambda: sf.tasks.claim(id)


def an_absent_task(sf: Handle) -> Do:
    sf.tasks.add("gone", source="ci")
    for _ in range(2):
        sf.tasks.sweep("ci", seen=[])
    return lambda: sf.tasks.sweep("ci", seen=[])


def a_mail(sf: Handle) -> Do:
    id = sf.mail.send("reviewer", 1).id
    return lambda: sf.mail.read(id)


def a_session(sf: Handle) -> Do:
    sf.sessions.end(sf.sessions.open("opened again").record.id)
    return lambda: sf.sessions.open("opened again")


def a_session_ended(sf: Handle) -> Do:
    id = sf.sessions.open("ended").record.id
    return lambda: sf.sessions.end(id)


def a_message(sf: Handle) -> Do:
    id = sf.sessions.open("spoken in").record.id
    sf.sessions.say(id, "user", "hello")
    return lambda: sf.sessions.say(id, "user", "again", key="1")


def a_conversation_taken_back(sf: Handle) -> Do:
    resource = Conversations(sf._store)
    resource.add("talk", [Line("user", '"hello"', "h1:1", "hello")])
    return lambda: resource.take_back("talk")


def a_conversation_cleared(sf: Handle) -> Do:
    resource = Conversations(sf._store)
    resource.add("talk two", [Line("user", '"hello"', "h1:1", "hello")])
    return lambda: resource.clear("talk two")


def a_thread_pruned(sf: Handle) -> Do:
    put_thread(sf, "pruned")
    return lambda: sf.threads.prune("pruned")


def a_thread_written_to(sf: Handle) -> Do:
    put_thread(sf, "written to")
    return lambda: sf.threads.put_writes("written to", "1", [Write("task", "", 0, "a", ("json", b"1"))])


def put_thread(sf: Handle, thread: str) -> None:
    sf.threads.put(thread, "1", header=b"{}", values={"a": False}, value_of=lambda channel: ("json", b"1"))


def an_artifact_again(sf: Handle) -> Do:
    sf.artifacts.put(b"log", name="build.log", retention="scratch")
    return lambda: sf.artifacts.put(b"log", name="build.log", retention="keep")


def the_bytes_of_an_artifact(sf: Handle) -> Do:
    sf.artifacts.put(b"same bytes", name="one")
    return lambda: sf.artifacts.put(b"same bytes", name="two")


def a_value_with_a_schema(sf: Handle) -> Do:
    """A state value with a schema. The schema is read under the lock, and only a second write is checked by it."""
    sf.state.set("branch", "a", json_schema={"type": "string"})
    return lambda: sf.state.swap("branch", "b", version=1)


def a_hook(sf: Handle) -> Do:
    hooks = Hooks(sf._store)
    hooks.keep(Heard("claude-code", "prompt", "UserPromptSubmit", "native", 1))
    return lambda: hooks.keep(Heard("claude-code", "prompt", "UserPromptSubmit", "native", 2))


def a_call_past_a_gate(sf: Handle) -> Do:
    begun = sf.effects.begin("Bash", {"command": "git push"})
    hooks = Hooks(sf._store)
    return lambda: hooks.pass_once(begun.id, begun.attempt, "gate", "git push*", lambda: True)


def an_import(sf: Handle) -> Do:
    place = Path(sf.settings.data_dir) / "projects"
    place.mkdir(parents=True)
    said = {"type": "user", "uuid": "1", "sessionId": "s", "timestamp": "2026-11-03T02:00:00Z", "cwd": "/"}
    said["message"] = {"role": "user", "content": "hello"}  # type: ignore[assignment]
    (place / "s.jsonl").write_text(json.dumps(said) + "\n")
    return lambda: sf.imports.run("claude-code", place)


def an_item(sf: Handle) -> Do:
    sf.items.change([Change(("memory",), "k", {"a": 1})])
    return lambda: sf.items.change([Change(("memory",), "k", {"a": 2})])


def a_value_undone(sf: Handle) -> Do:
    sf.state.set("undone", "a")
    receipt = sf.state.set("undone", "b").receipt
    return lambda: sf.undo(receipt)


def an_edit_undone(sf: Handle) -> Do:
    receipt = sf.tasks.edit(sf.tasks.add("undone").id, priority=1).receipt
    return lambda: sf.undo(receipt)


def a_budget_again(sf: Handle) -> Do:
    sf.budgets.set("set again", tokens=100)
    return lambda: sf.budgets.set("set again", tokens=50)


def the_budgets_of_a_call(sf: Handle) -> Do:
    sf.budgets.set("reserved", tokens=100)
    return lambda: sf.budgets.reserve("reserved", tokens=10)


def a_hold_settled(sf: Handle) -> Do:
    sf.budgets.set("settled", tokens=100)
    hold = sf.budgets.reserve("settled", tokens=10)
    return lambda: sf.budgets.settle(hold, tokens=5)


def a_fact_forgotten(sf: Handle) -> Do:
    id = sf.knowledge.add("CI needs node 20").id
    return lambda: sf.knowledge.forget(id)


WAITS: dict[Callable[[Handle], Do], tuple[str, str]] = {
    a_budget_again: ("budget", "FROM budget"),
    the_budgets_of_a_call: ("budget", "FROM chain"),
    a_hold_settled: ("hold", "FROM hold"),
    a_fact_forgotten: ("knowledge", "FROM knowledge"),
    a_lock: ("lease", "FROM lease"),
    a_lock_released: ("lease", "FROM lease"),
    an_effect_by_key: ("effect", "FROM effect"),
    an_effect_by_id: ("effect", "FROM effect"),
    a_webhook: ("webhook_event", "FROM webhook_event"),
    a_webhook_again: ("webhook_event", "FROM webhook_event"),
    an_agent: ("agent", "FROM agent"),
    a_loop: ("loop", "FROM loop"),
    a_loop_again: ("loop", "FROM loop"),
    a_run: ("run", "FROM run"),
    a_run_cancelled: ("run", "FROM run"),
    a_task: ("task", "FROM task"),
    an_absent_task: ("task", "FROM task"),
    a_mail: ("mail", "FROM mail"),
    a_session: ("session", "FROM session"),
    a_session_ended: ("session", "FROM session"),
    a_message: ("node", "FROM node"),
    a_conversation_taken_back: ("node", "FROM node"),
    a_conversation_cleared: ("node", "FROM node"),
    a_thread_pruned: ("thread", "FROM thread"),
    a_thread_written_to: ("thread", "FROM thread"),
    an_artifact_again: ("artifact", "FROM artifact"),
    the_bytes_of_an_artifact: ("artifact_chunk", "FROM artifact_chunk"),
    a_value_with_a_schema: ("state", "FROM state"),
    a_hook: ("session", "FROM session"),
    a_call_past_a_gate: ("effect", "FROM effect"),
    an_import: ("meta", "FROM meta"),
    an_item: ("item", "FROM item"),
    a_value_undone: ("state", "FROM state"),
    an_edit_undone: ("task", "FROM task"),
}


@pytest.mark.parametrize("case", WAITS, ids=lambda case: case.__name__)
def test_a_method_waits_at_the_statement_that_locks_its_row(
    shared: Handle, shared_url: str, case: Callable[[Handle], Do]
) -> None:
    """002-25: no other process can change the rows between the read and the decision."""
    table, text = WAITS[case]
    do = case(shared)
    with locked(shared_url, table) as admin:
        beside = Beside(do)
        waiting = waits_in(admin, beside)
    answer = beside.end()
    assert not isinstance(answer, standfast.StandfastError), answer
    assert waiting.startswith(("SELECT", "WITH")), waiting or "it did not wait"
    assert text in waiting
    assert waiting.endswith(("FOR UPDATE", "FOR SHARE"))


def test_a_step_is_recorded_after_a_process_that_takes_its_session(pg_database: str, tmp_path: Path) -> None:
    """002-25: otherwise the new owner would not see the step yet, and run it again."""
    with opened(pg_database, tmp_path, Names()) as sf, sf.session("takeover") as s:
        with locked(pg_database, "session", f"id = '{s.id}'") as admin:
            beside = Beside(lambda: s.step("build", lambda: 1))
            waiting = waits_in(admin, beside)
        assert beside.end() == 1
        assert waiting.startswith("INSERT INTO step"), waiting or "it did not wait"


# -- two calls that must not decide at the same time -------------------------------------------------------


def pair(sf: Handle, name: str) -> tuple[str, str]:
    return sf.tasks.add(f"{name} a").id, sf.tasks.add(f"{name} b").id


def test_two_needs_at_once_do_not_make_a_circle(shared: Handle, shared_url: str) -> None:
    """002-25: two connections add "a needs b" and "b needs a": one is refused, and one of the tasks can be done."""
    a, b = pair(shared, "need")
    with psycopg.connect(shared_url, autocommit=True) as admin:
        with shared.transaction() as tx:
            tx.tasks.need(a, b)
            beside = Beside(lambda: shared.tasks.need(b, a))
            waiting = waits_in(admin, beside)
        assert isinstance(beside.end(), standfast.Conflict)
    assert "pg_advisory_xact_lock" in waiting
    assert shared.tasks.claim(b) is not None


def test_two_parents_at_once_do_not_make_a_circle(shared: Handle, shared_url: str) -> None:
    """002-25: the same for a task below another one."""
    a, b = pair(shared, "parent")
    with psycopg.connect(shared_url, autocommit=True) as admin:
        with shared.transaction() as tx:
            tx.tasks.edit(a, parent=b)
            beside = Beside(lambda: shared.tasks.edit(b, parent=a))
            waiting = waits_in(admin, beside)
        assert isinstance(beside.end(), standfast.Conflict)
    assert "pg_advisory_xact_lock" in waiting


def test_two_reports_of_one_problem_at_once_are_one_task(shared: Handle, shared_url: str) -> None:
    """002-25: the second call counts the task that the first call opens."""
    with psycopg.connect(shared_url, autocommit=True) as admin:
        with shared.transaction() as tx:
            first = tx.tasks.add("seen by two")
            beside = Beside(lambda: shared.tasks.add("seen by two"))
            waiting = waits_in(admin, beside)
        second = beside.end()
    assert "pg_advisory_xact_lock" in waiting
    assert (second.id, second.occurrences) == (first.id, 2)


def test_the_last_free_entry_of_a_box_is_given_once(shared: Handle, shared_url: str) -> None:
    """002-25: two senders write to a box that can take one more message."""
    shared.mail.bound("full", 1)
    with psycopg.connect(shared_url, autocommit=True) as admin:
        with shared.transaction() as tx:
            tx.mail.send("full", 1)
            beside = Beside(lambda: shared.mail.send("full", 2))
            waiting = waits_in(admin, beside)
        answer = beside.end()
    assert "pg_advisory_xact_lock" in waiting
    assert isinstance(answer, standfast.Conflict)
    assert answer.code == "box_full"


def test_the_last_credit_is_spent_once(shared: Handle, shared_url: str) -> None:
    """002-25: the balance covers either of two spends, but not both."""
    shared.credits.grant("acme", 10, key="grant")
    with psycopg.connect(shared_url, autocommit=True) as admin:
        with shared.transaction() as tx:
            tx.credits.spend("acme", 10, key="one")
            beside = Beside(lambda: shared.credits.spend("acme", 10, key="two"))
            waiting = waits_in(admin, beside)
        answer = beside.end()
    assert "pg_advisory_xact_lock" in waiting
    assert isinstance(answer, standfast.Conflict)


def test_two_labels_of_one_repository_at_once_get_one_id(shared: Handle, shared_url: str) -> None:
    """002-25: the second label shares a part with the first, and gets the same id."""
    one, two = Label("/shop/.git"), Label("/shop/.git", "github.com/a/two")
    with psycopg.connect(shared_url, autocommit=True) as admin:
        with shared._store.transaction() as tx:
            id = repositories.registered(tx, one)
            beside = Beside(lambda: shared._store.write(lambda tx: repositories.registered(tx, two)))
            waiting = waits_in(admin, beside)
        assert beside.end() == id
    assert "pg_advisory_xact_lock" in waiting


def test_a_move_waits_for_the_process_that_makes_the_tables(shared: Handle, shared_url: str) -> None:
    """003-18: no migration and no load of the same database overlaps it."""

    def move() -> None:
        with copies.locked(shared_url):
            pass

    with psycopg.connect(shared_url) as holder, psycopg.connect(shared_url, autocommit=True) as admin:
        holder.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK_KEY,))
        beside = Beside(move)
        waiting = waits_in(admin, beside)
        holder.rollback()
        assert beside.end() is None
    assert "pg_advisory_xact_lock" in waiting


def test_the_line_behind_another_cluster_is_drawn_by_one(shared: Handle, shared_url: str) -> None:
    """002-25: the second process reads the cluster id after the first one has written it."""

    def settle() -> None:
        with psycopg.connect(shared_url, autocommit=True) as connection:
            migrate.settle(connection, "")

    with locked(shared_url, "meta", "key = 'cluster'") as admin:
        beside = Beside(settle)
        waiting = waits_in(admin, beside)
    assert beside.end() is None
    assert waiting.endswith("FOR UPDATE"), waiting or "it did not wait"


@pytest.mark.without_store
def test_two_that_open_a_new_store_make_its_tables_one_after_the_other(pg_database: str, tmp_path: Path) -> None:
    """003-18: the second process waits for the first, then finds the tables."""
    with psycopg.connect(pg_database) as holder, psycopg.connect(pg_database, autocommit=True) as admin:
        holder.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK_KEY,))
        beside = Beside(lambda: opened(pg_database, tmp_path, Names()).close())
        waiting = waits_in(admin, beside)
        holder.rollback()
        assert beside.end() is None
    assert waiting  # the statement it waits in is longer than 1,024 bytes, so its lock clause is cut off


# -- a commit waits ----------------------------------------------------------------------------------------


def test_nothing_is_committed_before_the_schema_is_known_to_be_ours(pg_database: str, tmp_path: Path) -> None:
    """002-25: a transaction that only writes does not read the schema first. `min_writer` is checked before COMMIT."""
    put = statement("INSERT INTO meta (key, value) VALUES ('late', '1')", name="put")
    with opened(pg_database, tmp_path, Names()) as sf, psycopg.connect(pg_database, autocommit=True) as admin:
        admin.execute("UPDATE standfast.meta SET value = '99999' WHERE key = 'min_writer'")
        with pytest.raises(standfast.SchemaTooNew):
            sf._store.write(lambda tx: tx.run(put))
        assert admin.execute("SELECT 1 FROM standfast.meta WHERE key = 'late'").fetchall() == []


def test_a_follower_from_now_on_gets_events_of_transactions_that_were_open(pg_database: str, tmp_path: Path) -> None:
    """002-25: an older transaction is open while a newer one commits; its events come after `now()`, and are read."""
    event = """INSERT INTO standfast.event (time_us, occurred_us, scope, actor, holder, source, type, subject)
               VALUES (1, 1, '', 'a', 'h', 'seen', 'x.y', 'early')"""
    with opened(pg_database, tmp_path, Names()) as sf, psycopg.connect(pg_database) as slow:
        slow.execute(event)
        sf.events.append("orders", "order.placed")
        cursor = sf.journal.now()
        slow.commit()
        assert "early" in [event.subject for event in sf.journal.tail(cursor).events]


def test_a_run_of_a_dead_worker_that_another_worker_handles_is_skipped(pg_database: str, tmp_path: Path) -> None:
    """002-25: one of two runs of a dead process is locked; the other run is ended, and no caller waits."""
    with opened(pg_database, tmp_path, Names()) as sf, subprocess.Popen(["cat"], stdin=subprocess.PIPE) as child:
        first, second = asked_runs(sf)
        with opened(pg_database, tmp_path, Names(actor="worker"), pid=child.pid) as worker:
            for id in (first, second):
                worker.runs.claim(host="here", run_id=id)
        child.kill()
        child.wait()
        with locked(pg_database, "run", f"id = '{first}'") as admin:
            beside = Beside(lambda: [run.id for run in sf.runs.abandon_dead()])
            waiting = waits_in(admin, beside)
        assert (waiting, beside.end()) == ("", [second])


# -- passes by ---------------------------------------------------------------------------------------------


def next_task(sf: Handle, clock: ManualClock) -> tuple[str, str, Do, Any]:
    first, second = pair(sf, "next")
    return "task", first, lambda: sf.tasks.claim().id, second  # type: ignore[union-attr]


def next_mail(sf: Handle, clock: ManualClock) -> tuple[str, str, Do, Any]:
    first, second = (sf.mail.send("reviewer", n).id for n in (1, 2))
    return "mail", first, lambda: sf.mail.claim("reviewer").id, second  # type: ignore[union-attr]


def next_webhook(sf: Handle, clock: ManualClock) -> tuple[str, str, Do, Any]:
    first, second = (sf.webhooks.receive("stripe", f"evt-{n}", {}).id for n in (1, 2))
    return "webhook_event", first, lambda: sf.webhooks.claim().id, second  # type: ignore[union-attr]


def next_run(sf: Handle, clock: ManualClock) -> tuple[str, str, Do, Any]:
    first, second = asked_runs(sf)
    return "run", first, lambda: sf.runs.claim(host="here").id, second  # type: ignore[union-attr]


def asked_runs(sf: Handle) -> list[str]:
    for name in ("one", "two"):
        sf.loops.add(name, ["true"], every="1h", cwd="/")
    return [sf.runs.ask(name).id for name in ("one", "two")]


def runs_out_of_time(sf: Handle, clock: ManualClock) -> tuple[str, str, Do, Any]:
    first, second = asked_runs(sf)
    for id in (first, second):
        sf.runs.claim(host="here", run_id=id)
    clock.advance("1h")
    return "run", first, lambda: [run.id for run in sf.runs.abandon_dead()], [second]


def due_loops(sf: Handle, clock: ManualClock) -> tuple[str, str, Do, Any]:
    first, second = (sf.loops.add(name, ["true"], every="1h", cwd="/").id for name in ("one", "two"))
    clock.advance("2h")
    return "loop", first, lambda: {run.loop_id for run in sf.loops.fire_due()}, {second}


def lapsed_mail(sf: Handle, clock: ManualClock) -> tuple[str, str, Do, Any]:
    first, second = (sf.mail.send("reviewer", n, attempts_max=1).id for n in (1, 2))
    sf.mail.claim("reviewer"), sf.mail.claim("reviewer")
    clock.advance("1h")
    return "mail", first, lambda: (sf.mail.sweep(), sf.mail.get(second).state)[1], "dead"


def overdue_mail(sf: Handle, clock: ManualClock) -> tuple[str, str, Do, Any]:
    first, second = (sf.mail.send("reviewer", n, for_="1m").id for n in (1, 2))
    clock.advance("1h")
    return "mail", first, lambda: (sf.mail.sweep(), sf.mail.get(second).state)[1], "expired"


def expired_values(sf: Handle, clock: ManualClock) -> tuple[str, str, Do, Any]:
    for key in ("one", "two"):
        sf.state.set(key, 1, for_="1m")
    clock.advance("1h")
    return "state", "one", sf.state.expire, 1


PASSES_BY = [
    next_task,
    next_mail,
    next_webhook,
    next_run,
    runs_out_of_time,
    due_loops,
    lapsed_mail,
    overdue_mail,
    expired_values,
]


@pytest.mark.parametrize("case", PASSES_BY, ids=lambda case: case.__name__)
def test_a_method_that_takes_any_row_passes_by_one_that_is_locked(
    pg_database: str, tmp_path: Path, case: Callable[[Handle, ManualClock], tuple[str, str, Do, Any]]
) -> None:
    """002-25: otherwise all workers would wait for the slowest one."""
    clock = ManualClock()
    with opened(pg_database, tmp_path, Names(), clock=clock) as sf:
        table, first, do, expected = case(sf, clock)
        with locked(pg_database, table, f"{'key' if table == 'state' else 'id'} = '{first}'") as admin:
            beside = Beside(do)
            waiting = waits_in(admin, beside)
        answer = beside.end()
        assert (waiting, answer) == ("", expected)
