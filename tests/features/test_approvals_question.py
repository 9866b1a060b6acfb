"""One question, one grant: an approval is bound to everything that its approver reads."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import standfast
from standfast import serial
from standfast.errors import ApprovalRequired, Conflict, InvalidInput
from standfast_prove.planned import dispatch, plan

MAIN = "import sys; from standfast.cli import main; sys.exit(main())"
RESULT = 'open(sys.argv[1], "a").write("PAID\\n"); sys.exit(1)'


def refused(call: Any) -> ApprovalRequired:
    with pytest.raises(ApprovalRequired) as caught:
        call()
    return caught.value


def test_the_question_names_tool_scope_key_attempts_and_action(sf: standfast.Standfast) -> None:
    """002-25: the stored text is the hashed text, and nothing changes it afterwards."""
    asked = refused(lambda: sf.effects.begin("shop.refund", {"cents": 4200}, key="r:1", approve=True, attempts=3))
    question = sf.approvals.pose(asked.approval_id)
    assert question.text is not None
    assert json.loads(question.text) == {
        "action": {"cents": 4200},
        "attempts": 3,
        "key": "r:1",
        "request": {
            "requester": sf.agent,
            "requested_us": question.approval.requested_us,
            "expires_us": question.approval.expires_us,
        },
        "scope": sf.scope,
        "tool": "shop.refund",
    }
    assert question.text == serial.canonical(json.loads(question.text))
    assert question.approval.question_hash == serial.hash_text(question.text)
    assert (question.intent, question.exact) == ('{"cents":4200}', True)
    sf.approvals.grant(asked.approval_id, approver="ada")
    sf.effects.begin("shop.refund", {"cents": 4200}, key="r:1", approve=True, attempts=3)
    assert sf.approvals.question(asked.approval_id).text == question.text


def test_one_grant_pays_for_one_dispatch(sf: standfast.Standfast) -> None:
    """R14: an effect that failed needs another grant."""

    def begin() -> standfast.Effect:
        return sf.effects.begin("shop.refund", {"cents": 4200}, key="r:1", approve=True)

    first = refused(begin).approval_id
    sf.approvals.grant(first, approver="ada")
    begun = begin()
    assert sf.approvals.get(first).state == "consumed"
    sf.effects.fail(begun.id, "no network")
    second = refused(begin)
    assert (second.fresh, second.approval_id != first) == (True, True)
    refused(lambda: sf.effects.dispatch(begun.id))
    sf.approvals.grant(second.approval_id, approver="ada")
    assert begin().attempt == 2


def test_a_grant_for_three_attempts_allows_three_dispatches(sf: standfast.Standfast) -> None:
    """R14: the approver reads the number of attempts, and the store counts them."""

    def begin() -> standfast.Effect:
        return sf.effects.begin("shop.refund", {"cents": 4200}, key="r:1", approve=True, attempts=3)

    id = refused(begin).approval_id
    sf.approvals.grant(id, approver="ada")
    for n in (1, 2, 3):
        begun = begin()
        found = sf.approvals.get(id)
        assert (begun.attempt, found.attempts, found.attempts_used) == (n, 3, n)
        assert found.state == ("consumed" if n == 3 else "granted")
        sf.effects.fail(begun.id, "no network")
    assert refused(begin).approval_id != id
    used = [event for event in sf.journal.about(id) if event.type == "approval.consumed"]
    assert len(used) == 3


def test_a_grant_for_one_attempt_is_none_for_three(sf: standfast.Standfast) -> None:
    def begin(attempts: int) -> standfast.Effect:
        return sf.effects.begin("shop.refund", {"cents": 4200}, key="r:1", approve=True, attempts=attempts)

    first = refused(lambda: begin(1)).approval_id
    sf.approvals.grant(first, approver="ada")
    assert refused(lambda: begin(3)).approval_id != first


@pytest.mark.parametrize("attempts", [0, 11, "3", True])
def test_the_number_of_attempts_is_between_1_and_10(sf: standfast.Standfast, attempts: Any) -> None:
    with pytest.raises(InvalidInput, match="attempts"):
        sf.effects.begin("shop.refund", {}, approve=True, attempts=attempts)
    with pytest.raises(InvalidInput, match="attempts"):
        sf.effects.begin("shop.refund", {}, approve=True, context={"attempts": attempts})
    assert list(sf.rows("SELECT id FROM effect")) == []


def test_a_grant_for_one_tool_or_key_is_none_for_another(sf: standfast.Standfast) -> None:
    """R13: a request that was made for another tool under the same intent does not count."""
    effect = plan(sf, {"cents": 1}, tool="shop.refund")
    other = plan(sf, {"cents": 1}, tool="preview.form")
    id = refused(lambda: dispatch(sf, other)).approval_id
    sf._store.write(lambda tx: tx.run(_statement("UPDATE approval SET effect_id = :effect"), effect=effect))
    sf.approvals.grant(id, approver="ada")
    assert refused(lambda: dispatch(sf, effect)).approval_id != id
    assert sf.approvals.get(id).state == "expired"


def test_a_question_that_was_changed_in_the_store_is_not_granted(sf: standfast.Standfast) -> None:
    """R13: the text that an approver reads and the hash that the dispatch compares belong together."""
    id = refused(lambda: dispatch(sf, plan(sf, {"to": "PRODUCTION"}))).approval_id
    sf._store.write(lambda tx: tx.run(_statement("UPDATE approval SET question = :text"), text='{"action":"staging"}'))
    for verb in (sf.approvals.pose, lambda id: sf.approvals.grant(id, approver="ada")):
        with pytest.raises(Conflict) as caught:
            verb(id)
        assert caught.value.code == "question_changed"
    assert sf.approvals.deny(id, approver="ada").state == "denied"


def test_the_request_in_the_question_is_the_one_that_was_made(sf: standfast.Standfast) -> None:
    """R13: requester, reason and deadline come from the hashed text, not from rows that an agent may have changed."""
    with sf.session("night", agent="coder") as s:
        s.decide("refund it", why="order 1042 was lost")
        description = {"description": "Refund the customer " + "x" * 1000}
        id = refused(
            lambda: sf.effects.begin(
                "shop.refund", {"cents": 1}, key="r:1", session=s.id, approve=True, why="ticket 7", context=description
            )
        ).approval_id
        question = sf.approvals.pose(id)
        for change in (
            "UPDATE session SET key = 'day', agent = 'ada'",
            "UPDATE decision SET what = 'x', why = 'y'",
            "UPDATE effect SET context = '{}'",
            "UPDATE approval SET requester = 'ada', why = 'x', gate = 'y', requested_us = 1",
        ):
            sf._store.write(lambda tx, change=change: tx.run(_statement(change)))
        now = sf.approvals.pose(id)
    assert now.replace(approval=question.approval) == question
    assert (now.requester, now.why, now.session_key, now.agent) == (sf.agent, "ticket 7", "night", "coder")
    assert now.decision == "refund it, because order 1042 was lost"
    assert now.description == description["description"][:500]
    sf._store.write(lambda tx: tx.run(_statement("UPDATE approval SET expires_us = expires_us + 1")))
    with pytest.raises(Conflict, match="was changed after it was asked"):
        sf.approvals.grant(id, approver="ada")


def test_requests_at_once_make_one_question(engine_url: str, tmp_path: Path) -> None:
    """002-25: callers that ask for one effect at the same time get the same approval, on both engines."""
    with standfast.open(engine_url, data_dir=tmp_path / "data") as sf:
        for number in range(10):
            effect = plan(sf, {"n": number})
            with ThreadPoolExecutor(4) as pool:
                made = list(pool.map(lambda who, id=effect: sf.approvals.request(id, why=who).id, "abcd"))
            assert len(set(made)) == 1
            assert [one.id for one in sf.approvals.list(state="requested", limit=1)] == made[:1]


@pytest.mark.parametrize("forged", ["attempts = 9", "attempts_used = -9"])
def test_a_forged_number_of_attempts_allows_nothing(sf: standfast.Standfast, forged: str) -> None:
    """R14: the number in the question limits the dispatches, not the number in the row."""

    def begin() -> standfast.Effect:
        return sf.effects.begin("shop.refund", {"cents": 4200}, key="r:1", approve=True)

    id = refused(begin).approval_id
    sf._store.write(lambda tx: tx.run(_statement(f"UPDATE approval SET {forged}")))
    with pytest.raises(Conflict) as caught:
        sf.approvals.grant(id, approver="ada")
    assert caught.value.code == "question_changed"
    sf._store.write(lambda tx: tx.run(_statement("UPDATE approval SET attempts = 1, attempts_used = 0")))
    sf.approvals.grant(id, approver="ada")
    sf._store.write(lambda tx: tx.run(_statement("UPDATE approval SET attempts = 9")))
    sf.effects.fail(begin().id, "no network")
    assert refused(begin).approval_id != id


def test_the_answer_records_how_it_was_obtained(sf: standfast.Standfast) -> None:
    id = refused(lambda: dispatch(sf, plan(sf))).approval_id
    assert sf.approvals.get(id).method is None
    assert sf.approvals.grant(id, approver="ada").method == "api"
    (granted,) = [event for event in sf.journal.about(id) if event.type == "approval.granted"]
    assert granted.data is not None
    assert granted.data["method"] == "api"


def test_the_directory_of_a_command_is_part_of_its_question(engine_url: str, tmp_path: Path) -> None:
    """R13: a grant for `./run.sh` in one directory does not run the one in another."""
    for name in ("d1", "d2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.sh").write_text(f"#!/bin/sh\necho {name}\n")
        (tmp_path / name / "run.sh").chmod(0o755)

    def once(name: str) -> subprocess.CompletedProcess[str]:
        return _once(tmp_path / name, tmp_path, engine_url, "k", "--approve", "--", "./run.sh")

    assert once("d1").returncode == 5
    with standfast.open(engine_url, data_dir=tmp_path / "data") as sf:
        (first,) = sf.approvals.list(everywhere=True)
        assert sf.approvals.question(first.id).directory == str(tmp_path / "d1")
        sf.approvals.grant(first.id, approver="ada")
    elsewhere = once("d2")
    assert (elsewhere.returncode, elsewhere.stdout) == (5, "")
    with standfast.open(engine_url, data_dir=tmp_path / "data") as sf:
        second = sf.approvals.list(everywhere=True)[0]
        assert sf.approvals.question(first.id).directory == str(tmp_path / "d1")
        assert sf.approvals.question(second.id).directory == str(tmp_path / "d2")
        sf.approvals.grant(second.id, approver="ada")
    assert once("d1").returncode == 5
    with standfast.open(engine_url, data_dir=tmp_path / "data") as sf:
        sf.approvals.grant(sf.approvals.list(everywhere=True)[0].id, approver="ada")
    ran = once("d1")
    assert (ran.returncode, ran.stdout) == (0, "d1\n")


def test_until_ok_does_not_pay_twice_with_one_grant(engine_url: str, tmp_path: Path) -> None:
    """R14: `--until-ok` alone asks for one attempt; `--attempts 2` asks for two."""
    paid = tmp_path / "paid"

    def pay(*more: str) -> int:
        command = (sys.executable, "-c", f"import sys; {RESULT}", str(paid))
        return _once(tmp_path, tmp_path, engine_url, "pay", "--approve", *more, "--", *command).returncode

    def grant() -> None:
        with standfast.open(engine_url, data_dir=tmp_path / "data") as sf:
            sf.approvals.grant(sf.approvals.list(everywhere=True)[0].id, approver="ada")

    assert pay("--until-ok") == 5
    grant()
    assert [pay("--until-ok") for _ in range(3)] == [1, 5, 5]
    assert paid.read_text() == "PAID\n"
    assert pay("--until-ok", "--attempts", "2") == 5
    grant()
    assert [pay("--until-ok", "--attempts", "2") for _ in range(3)] == [1, 1, 5]
    assert paid.read_text() == "PAID\n" * 3


def _once(cwd: Path, root: Path, url: str, *words: str) -> subprocess.CompletedProcess[str]:
    import os

    variables = {**os.environ, "STANDFAST_DATA_DIR": str(root / "data"), "STANDFAST_DB_URL": url}
    return subprocess.run(
        [sys.executable, "-c", MAIN, "once", *words], cwd=cwd, env=variables, capture_output=True, text=True, timeout=60
    )


def _statement(text: str) -> Any:
    from standfast.db.sql import statement

    return statement(text)
