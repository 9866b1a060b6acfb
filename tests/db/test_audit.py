"""Audit without payloads: a role that may not read the payload columns can answer every question (002-36)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest

import standfast
from standfast.db.sqlite import readers
from standfast.db.sqlite.open_store import OpenStore
from standfast.serial import PAYLOAD_COLUMNS

DENIED = {tuple(name.split(".")) for name in PAYLOAD_COLUMNS}
PAGE = Path(__file__).parents[2] / "docs" / "operating" / "queries.md"
QUESTIONS = re.findall(r"```sql\n(.*?)```", PAGE.read_text(), re.DOTALL)
SECRET = "hunter2-in-a-payload"


def a_night(sf: standfast.Standfast) -> None:
    """Record a failure, a retry, a waiting request, a used exemption and a push to main, for the page's questions."""
    calls: list[int] = []

    def flaky(call: standfast.Call) -> str:
        calls.append(1)
        if len(calls) == 1:
            raise standfast.NotApplied("the network was down")
        return SECRET

    push = {"repo": "a/b", "branch": "main", "body": SECRET}
    with sf.session("deploy") as s:
        s.say("user", SECRET)
        s.step("plan", lambda: SECRET)
        with s.decide("push it", why="asked to", then="push"):
            with pytest.raises(standfast.NotApplied):
                s.effect("git.push", push, do=flaky, by=("repo", "branch"))
            s.effect("git.push", push, do=flaky, by=("repo", "branch"))
    with pytest.raises(ZeroDivisionError), sf.session("broken") as s:
        s.effect("mail.send", {"to": "x", "body": SECRET}, do=lambda call: 1 / 0, by=("to",))
    for key in ("waits", "exempted"):
        with pytest.raises(standfast.ApprovalRequired), sf.session(key) as s:
            s.effect("prod.drop", {"table": key, "body": SECRET}, do=lambda call: 1, by=("table",), approve=True)
    waiting = {
        row["key"]: row["id"]
        for row in sf.rows("SELECT a.id, s.key FROM approval a JOIN session s ON s.id = a.session_id")
    }
    sf.approvals.grant(waiting["exempted"], approver="a person", rationale="it is a copy")
    with sf.session("exempted") as s:
        s.effect("prod.drop", {"table": "exempted", "body": SECRET}, do=lambda call: 1, by=("table",), approve=True)


@pytest.fixture
def blind(engine_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[standfast.Standfast]:
    """The store with these records, opened by a role that may not read payloads."""
    with standfast.open(engine_url, data_dir=tmp_path / "data") as sf:
        a_night(sf)
        name = sf.engine.name
    url = engine_url if name == "sqlite" else role_without_payloads(engine_url)
    if name == "sqlite":
        monkeypatch.setattr(OpenStore, "connect", denying(OpenStore.connect))
        monkeypatch.setattr(readers, "reads_only", deny_payloads)
    with standfast.open(url, data_dir=tmp_path / "data") as sf:
        yield sf


def denying(connect: Callable[[OpenStore], apsw.Connection]) -> Callable[..., apsw.Connection]:
    def connected(store: OpenStore) -> apsw.Connection:
        connection = connect(store)
        connection.authorizer = deny_payloads
        return connection

    return connected


def deny_payloads(action: int, table: str | None, column: str | None, *_: str | None) -> int:
    denied = action == apsw.SQLITE_READ and (table, column) in DENIED
    return apsw.SQLITE_DENY if denied else apsw.SQLITE_OK


def role_without_payloads(url: str) -> str:
    import psycopg

    role = "auditor_" + url.rsplit("/", 1)[1].split("?")[0][-12:]
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {role} LOGIN".encode())
        admin.execute(f"GRANT USAGE ON SCHEMA standfast TO {role}".encode())
        columns = admin.execute(
            "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'standfast'"
        ).fetchall()
        for table, column in columns:
            if (table, column) not in DENIED:
                admin.execute(f'GRANT SELECT ("{column}") ON standfast."{table}" TO {role}'.encode())
    return re.sub(r"//[^@/]*@", f"//{role}@", url)


def test_the_denial_is_real(blind: standfast.Standfast) -> None:
    with pytest.raises(standfast.StandfastError):
        list(blind.rows("SELECT content FROM message"))
    with pytest.raises(standfast.StandfastError):
        (blind.sessions.get("deploy") and blind.effects.get("nope")) or list(blind.rows("SELECT result FROM effect"))


def test_the_timeline_and_the_report_need_no_payload(blind: standfast.Standfast) -> None:
    """002-19, 002-36: both read events only. 002-30: the auditor has a role of its own."""
    types = [entry.type for entry in blind.timeline(window="10m").entries]
    assert {"session.opened", "effect.dispatched", "effect.failed", "approval.granted", "decision.made"} <= set(types)
    assert types.index("decision.made") < types.index("effect.dispatched")
    kinds = {item.kind for item in blind.recovery.report().items}
    assert {"effect_in_doubt", "approval_waiting", "session_waiting"} <= kinds


def test_the_five_questions_are_answered_as_documented(blind: standfast.Standfast) -> None:
    """002-18: the auditor's queries return all five answers."""
    answers = [list(blind.rows(text, {"tool": "mail.send", "since_us": 0})) for text in QUESTIONS]
    failed, waiting, retries, exemptions, production = answers
    assert [(row["session"], row["state"]) for row in failed] == [("broken", "dispatched")]
    assert [row["session"] for row in waiting] == ["waits"]
    assert [row["retries"] for row in retries] == [1]
    assert [(row["tool"], row["approver"], row["rationale"]) for row in exemptions] == [
        ("prod.drop", "a person", "it is a copy")
    ]
    assert len(production) == 2
    assert SECRET not in str(answers)


def test_an_effect_without_by_puts_the_beginning_of_its_intent_into_its_summary(sf: standfast.Standfast) -> None:
    """The summary has exactly the part of the intent that the page names."""
    prose = {"body": f"{SECRET} " + "many words " * 100, "to": "x", "subject": "word " * 100, "cc": "word " * 100}
    with sf.session("mails") as s:
        s.effect("mail.send", prose, do=lambda call: 1)
        s.effect("mail.post", prose, do=lambda call: 1, by=("to",))
    without, named = list(sf.rows("SELECT summary FROM event WHERE type = 'effect.dispatched' ORDER BY seq"))
    assert without["summary"].startswith("mail.send body=hunter2-in-a-payload many words")
    assert len(without["summary"]) <= 200
    assert named["summary"] == "mail.post to=x"
    words = " ".join(PAGE.read_text().split())
    assert "An effect begun without `by=` puts the beginning of its whole intent into the summary" in words


def test_no_summary_carries_a_payload(sf: standfast.Standfast) -> None:
    a_night(sf)
    for row in sf.rows("SELECT type, summary FROM event"):
        assert SECRET not in (row["summary"] or "") or row["type"] == "message.said", row
