"""The page of all durable state: it lists every table with its role, and one task's rows are joined by id."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import standfast
from standfast.db.sql import statement
from standfast.db.tables import tables
from standfast.record.events import Event
from tests.db.test_migrations import expected_columns

DOCS = Path(__file__).resolve().parents[2] / "docs"
PACKAGE = DOCS.parent / "src" / "standfast"
PAGE = DOCS / "reference" / "tables.md"
QUESTIONS = DOCS / "guides" / "where-state-lives.md"
ROLES = ("record", "ledger", "checkpoint", "interchange")


def catalogue() -> dict[str, dict[str, str]]:
    """The table rows of the page's list, by table name."""
    lines = [
        [cell.strip() for cell in line.strip("| \n").split(" | ")]
        for line in PAGE.read_text().splitlines()
        if line.startswith("| ")
    ]
    head, *rows = lines
    assert head == ["table", "role", "holds", "lives", "written", "read by", "if it is lost", "stale"]
    found = {row[0].strip("`"): dict(zip(head, row, strict=True)) for row in rows}
    assert len(found) == len(rows)
    return found


def test_every_table_is_on_the_page_with_its_role_and_its_loss() -> None:
    """001-20, 001-30, 001-77, 002-1: category, contents, updates, access, loss, recovery, stale risk of each state."""
    found = catalogue()
    assert set(found) == {table for table, _ in expected_columns()}
    assert [cell for row in found.values() for cell in row.values() if not cell] == []
    assert {row["role"] for row in found.values()} == set(ROLES)
    assert {table.name: table.role for table in tables()} == {name: row["role"] for name, row in found.items()}


def test_a_table_is_written_only_by_the_package_of_its_role() -> None:
    """002-1, 002-8, 002-32: each package writes only the tables of its role. Importers write records of other
    programs.
    """
    core = {"event": "ledger", "lease": "record", "artifact": "record", "artifact_chunk": "record"}
    core |= {"repository": "record", "removed": "ledger", "digest": "ledger"}
    # Folds and credits keep snapshots, undo and copies keep their rows; a resolved doubt makes an answer ready.
    allowed = {
        ("snapshot", "record"),
        ("snapshot", "ledger"),
        ("copy", "admin"),
        ("removed", "admin"),
        ("mail", "ledger"),
    }
    roles = {table: row["role"] for table, row in catalogue().items()} | {"search_words": "checkpoint"}
    assert {table: roles[table] for table in core} == core
    strangers = []
    for file in PACKAGE.rglob("*.sql"):
        resource = file.relative_to(PACKAGE).parts[0]
        if resource == "db":  # migrations: the schema and its triggers
            continue
        if file.parent.name == "admin" and file.name in (
            "restore_gap.sql",
            "move.sql",
        ):  # a restore and a move write all rows
            continue
        for table in re.findall(r"\b(?:INSERT INTO|UPDATE|DELETE FROM)\s+([a-z_]+)", file.read_text()):
            own = "core" if table in core else roles[table]
            if resource not in (own, "interchange") and (table, resource) not in allowed:
                strangers.append((table, str(file.relative_to(PACKAGE))))
    assert strangers == []


def test_what_the_page_calls_a_checkpoint_can_be_emptied(sf: standfast.Standfast) -> None:
    """002-1, 002-14: derived state is separate from the record. If it is lost, only time is lost."""

    def count(total: int, event: Event) -> int:
        return total + 1

    with sf.session("talk") as s:
        for n in range(10):
            s.say("user", f"line {n} about the parser")
        s.fold(lambda messages: " ".join(message.content for message in messages), keep_last=2)
    sf.events.append_many("orders", [("placed", n) for n in range(10)])

    def answers() -> tuple[object, ...]:
        said = [message.content for message in sf.sessions.messages("talk")]
        counted = sf.events.fold("orders", count, 0, name="count", snapshot_every=5).state
        return said, counted, sf.search("parser"), sf.sessions.get("talk")

    before = answers()
    sf.search_index.catch_up()
    tables = [table for table, row in catalogue().items() if row["role"] == "checkpoint"]
    for table in tables:
        assert next(sf.rows(f"SELECT count(*) AS n FROM {table}"))["n"] > 0, table
        delete = statement(f"DELETE FROM {table}")
        sf._store.write(lambda tx, delete=delete: tx.run(delete))  # type: ignore[misc]
    assert len(tables) == 4
    assert answers() == before


def test_the_rows_of_one_piece_of_work_lead_to_each_other(sf: standfast.Standfast) -> None:
    """001-42, 002-8, 002-40, 002-41: session, decision, task, effect, approval, events: plain columns, joined by id."""
    intent = {"to": "production"}
    with sf.session("fix-42", agent="coder") as s:
        task = sf.tasks.add("deploy it", session="fix-42")
        s.decide("deploy 1.2", why="the tests are green", then="deploy").done("deployed")
        sf.artifacts.put(b"log", name="build.log", session=s)
    of = {"session": "fix-42", "task": task.id[-6:]}
    with pytest.raises(standfast.ApprovalRequired) as asked:
        sf.effects.begin("deploy", intent, key="d-1", approve=True, why="asked to", gate="deploy*", **of)
    sf.approvals.grant(asked.value.approval_id, approver="ada", rationale="it is monday")
    effect = sf.effects.begin("deploy", intent, key="d-1", session="fix-42", approve=True)
    sf.effects.done("d-1", {"ok": True}, external_ref="run/7")

    (row,) = sf.rows(
        "SELECT s.key AS session, s.state AS session_state, s.agent, d.what, d.why, d.position, t.id AS task,"
        " e.tool, e.key, e.intent_hash, e.state, e.external_ref, e.planned_us, e.dispatched_us, e.ended_us,"
        " a.gate, a.requester, a.approver, a.state AS answer, a.rationale, a.requested_us, a.answered_us, f.digest"
        " FROM session s JOIN decision d ON d.session_id = s.id JOIN effect e ON e.session_id = s.id"
        " JOIN task t ON t.id = e.task_id AND t.session_id = s.id JOIN approval a ON a.effect_id = e.id"
        " JOIN artifact f ON f.session_id = s.id"
    )
    assert (row["session"], row["session_state"], row["agent"], row["task"]) == (
        "fix-42",
        "completed",
        "coder",
        task.id,
    )
    assert (row["what"], row["why"], row["position"]) == ("deploy 1.2", "the tests are green", 1)
    assert (row["tool"], row["key"], row["state"], row["external_ref"]) == ("deploy", "d-1", "acknowledged", "run/7")
    assert row["intent_hash"].startswith("h1:")
    assert row["planned_us"] <= row["dispatched_us"] <= row["ended_us"]
    assert (row["gate"], row["requester"], row["approver"]) == ("deploy*", sf.agent, "ada")
    assert (row["answer"], row["rationale"]) == ("consumed", "it is monday")
    assert row["requested_us"] <= row["answered_us"]
    events = list(sf.rows("SELECT type, data FROM event WHERE subject = :id ORDER BY seq", {"id": effect.id}))
    assert [event["type"] for event in events][-2:] == ["effect.dispatched", "effect.acknowledged"]
    assert all(json.loads(event["data"])["attempt"] in (0, 1) for event in events)


# This uses stock sqlite3 and the file, and imports nothing of standfast.
READ = """
import json, sqlite3, sys
c = sqlite3.connect(sys.argv[1])
ask = lambda text: [list(row) for row in c.execute(text)]
print(json.dumps([
    ask("SELECT key FROM session"), ask("SELECT name FROM node WHERE name <> ''"),
    ask("SELECT n.name, m.content FROM message m JOIN node n ON n.id = m.node_id ORDER BY m.seq"),
    ask("SELECT summary FROM checkpoint"), ask("SELECT count(*), min(applied_us) > 0 FROM migration"),
]))
"""


def test_one_file_holds_it_all_and_a_copy_of_it_is_a_store(tmp_path: Path) -> None:
    """003-9: conversations, messages, checkpoints, nodes, their messages and the ledger of migrations are in one
    file.

    002-27: one process, one file, and a directory of artifacts beside the file. 001-54: the page promises that
    `.backup` during writes makes a complete copy.
    """
    path, copy = tmp_path / "standfast.db", tmp_path / "there" / "standfast.db"
    copy.parent.mkdir()
    with standfast.open(path, data_dir=tmp_path) as sf:
        with sf.session("talk") as s:
            s.say("user", "hello")
            s.subagent("reviewer").say("assistant", "looks good")
            s.checkpoint(summary="greeted")
        kept = sf.artifacts.put(b"x" * 100_000, name="log")
        read = subprocess.run([sys.executable, "-c", READ, str(path)], capture_output=True, text=True, check=True)
        sessions, nodes, messages, checkpoints, ((applied, timed),) = json.loads(read.stdout)
        assert (sessions, nodes, checkpoints) == ([["talk"]], [["reviewer"]], [["greeted"]])
        assert messages == [["", "hello"], ["reviewer", "looks good"]]
        assert (applied, timed) == (sf.engine.schema_version(), 1)

        backup = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).backup(sqlite3.connect(sys.argv[2]))"
        subprocess.run([sys.executable, "-c", backup, str(path), str(copy)], check=True)
        sf.tasks.add("after the copy")
    shutil.copytree(tmp_path / "artifacts", copy.parent / "artifacts")
    with standfast.open(copy, data_dir=copy.parent) as sf:
        assert [message.content for message in sf.sessions.messages("talk")] == ["hello"]
        assert sf.tasks.list() == []
        assert sf.artifacts.get(kept.id) == b"x" * 100_000
        sf.tasks.add("it goes on")
    assert ".backup" in (DOCS / "operating" / "queries.md").read_text()


# -- the pages ---------------------------------------------------------------------------------------------


def test_the_ten_questions_have_an_answer_that_leads_on() -> None:
    """001-81: the page has an answer with a link to each of the ten questions."""
    parts = re.split(r"^## (\d+)\. (.+\?.*)$", QUESTIONS.read_text(), flags=re.MULTILINE)[1:]
    assert parts[::3] == [str(n) for n in range(1, 11)]
    for answer in parts[2::3]:
        assert re.search(r"\]\([^)]+\.md", answer), answer
