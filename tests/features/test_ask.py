"""`s.ask` and `sf.mail.answer`: one question, one answer, also after a crash; on both engines."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import standfast
from standfast import config, handle
from standfast.clock import DAY_US, ManualClock
from standfast.errors import KeyConflict, NoAnswer
from standfast.record.mail import Mail


@pytest.fixture
def other(engine_url: str, tmp_path: Path, sf: standfast.Standfast) -> Iterator[standfast.Standfast]:
    """A handle of another agent on the same store."""
    with handle.connect(config.load(engine_url, data_dir=tmp_path / "data", actor="reviewer")) as opened:
        yield opened


@contextmanager
def reviewing(other: standfast.Standfast, function: Callable[[Mail], Any]) -> Iterator[None]:
    """A reviewer that answers in a thread until the block has ended."""
    over = threading.Event()

    def answer() -> None:
        while not over.is_set():
            other.mail.answer("reviewer", function, timeout=0.05)

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_a_question_is_answered_once_and_leaves_no_unread_mail(
    sf: standfast.Standfast, other: standfast.Standfast
) -> None:
    """000-40: a second run of the program gets the same answer without asking the reviewer."""
    calls: list[object] = []

    def verdict(mail: Mail) -> object:
        calls.append(mail.body)
        return {"ok": True, "n": len(calls)}

    with reviewing(other, verdict), sf.session("fix-42") as s:
        assert s.ask("reviewer", {"pr": 7}, key="review:7") == {"ok": True, "n": 1}
    with sf.session("fix-42") as s:
        assert s.ask("reviewer", {"pr": 7}, key="review:7") == {"ok": True, "n": 1}
    assert calls == [{"pr": 7}]
    assert sf.mail.list() == []
    assert [(one.key, one.state) for one in sf.sessions.list(everywhere=True) if one.key.startswith("mail:")] == [
        (f"mail:{sf.mail.list('reviewer', state='any')[0].id}", "completed")
    ]


def test_a_key_asks_one_question(sf: standfast.Standfast, other: standfast.Standfast) -> None:
    """002-10: another question with the same key is refused. Another session asks a question of its own."""
    with reviewing(other, lambda mail: mail.body), sf.session("one") as s:
        assert s.ask("reviewer", 1, key="k") == 1
        with pytest.raises(KeyConflict):
            s.ask("reviewer", 2, key="k")
    with reviewing(other, lambda mail: mail.body), sf.session("two") as s:
        assert s.ask("reviewer", 2, key="k") == 2


def test_a_question_past_its_timeout_raises_and_can_be_asked_again(
    sf: standfast.Standfast, other: standfast.Standfast
) -> None:
    """000-40: NoAnswer is also a TimeoutError; the second question is a new mail in the same thread."""
    with sf.session("fix-42") as s:
        with pytest.raises(NoAnswer, match="no answer from reviewer to 'review:7'") as raised:
            s.ask("reviewer", {"pr": 7}, key="review:7", timeout=0.05)
        assert isinstance(raised.value, TimeoutError)
        with reviewing(other, lambda mail: "late but fine"):
            assert s.ask("reviewer", {"pr": 7}, key="review:7", timeout="1m") == "late but fine"
    asked = sf.mail.list("reviewer", state="any")
    assert sorted(one.state for one in asked) == ["done", "expired"]
    assert len({one.thread_id for one in asked}) == 1


def test_without_a_timeout_a_question_ends_after_a_day(engine_url: str, tmp_path: Path) -> None:
    """000-1, 000-40: every wait has a deadline."""
    clock, ended = ManualClock(), list[str]()

    def ask() -> None:
        with sf.session("fix-42") as s, pytest.raises(NoAnswer, match="after 1d"):
            s.ask("reviewer", {"pr": 7}, key="review:7")
        ended.append("fix-42")

    with handle.connect(config.load(engine_url, data_dir=tmp_path / "data"), clock=clock) as sf:
        asking = threading.Thread(target=ask)
        asking.start()
        with sf._store.watch() as watch:
            while not (waiting := sf.mail.list("reviewer")):
                watch.wait(1.0)
        assert waiting[0].expires_us == waiting[0].sent_us + DAY_US
        clock.advance("24h")
        sf.state.set("wakes", "the thread that asks")
        asking.join(30)
        assert ended == ["fix-42"]


def test_a_late_answer_to_the_first_question_counts(sf: standfast.Standfast, other: standfast.Standfast) -> None:
    """000-40: the reviewer held the question when it expired. The next call returns the reviewer's answer."""
    held: list[Mail] = []
    with sf.session("fix-42") as s:
        reader = threading.Thread(target=lambda: held.append(next(other.mail.follow("reviewer"))))
        reader.start()
        with pytest.raises(NoAnswer):
            s.ask("reviewer", {"pr": 7}, key="review:7", timeout=2)
        reader.join()
        other.mail.reply(held[0], "yes")
        assert s.ask("reviewer", {"pr": 7}, key="review:7", timeout="1m") == "yes"
    assert sf.mail.list("session:fix-42") == []


@pytest.mark.parametrize("swept", [False, True])
def test_an_answer_counts_even_if_it_expired_before_the_asker_returned(
    engine_url: str, tmp_path: Path, swept: bool
) -> None:
    """000-40: a program that was down past its timeout gets the answer when it returns, and the same one again."""
    clock = ManualClock()
    settings = config.load(engine_url, data_dir=tmp_path / "data")
    with handle.connect(settings, clock=clock) as sf, handle.connect(settings, clock=clock) as other:

        def ask() -> Any:
            with sf.session("fix-42") as s:
                return s.ask("reviewer", {"pr": 7}, key="review:7", timeout="1h")

        unanswered: list[NoAnswer] = []

        def give_up() -> None:
            try:
                ask()
            except NoAnswer as error:
                unanswered.append(error)

        asking = threading.Thread(target=give_up)
        asking.start()
        question = next(other.mail.follow("reviewer"))
        clock.advance("1h")
        asking.join()
        assert len(unanswered) == 1
        other.mail.reply(question, "yes", for_="1m")
        clock.advance("2m")
        if swept:
            assert len(sf.mail.sweep().expired) >= 1
        assert ask() == "yes"
        other.mail.reply(question, "no")
        assert [ask(), ask()] == ["yes", "yes"]
        assert sf.mail.list("session:fix-42") == []


def test_a_refused_question_raises_with_the_reason(sf: standfast.Standfast, other: standfast.Standfast) -> None:
    """002-20: a dead letter ends the wait immediately."""

    def refuse() -> None:
        for mail in other.mail.follow("reviewer"):
            other.mail.refuse(mail, "not my repository")
            return

    refusing = threading.Thread(target=refuse)
    refusing.start()
    with sf.session("fix-42") as s, pytest.raises(NoAnswer, match="not my repository"):
        s.ask("reviewer", {"pr": 7}, key="review:7", timeout="1m")
    refusing.join()


def test_a_function_that_raises_is_called_again_in_the_same_session(engine_url: str, tmp_path: Path) -> None:
    """000-40, 002-11: the session has failed and the mail is deferred; the next attempt resumes both."""
    clock, calls = ManualClock(), []
    settings = config.load(engine_url, data_dir=tmp_path / "data", actor="reviewer")

    def verdict(mail: Mail) -> str:
        calls.append("call")
        if len(calls) == 1:
            raise OSError("model overloaded")
        return "fine"

    with handle.connect(settings, clock=clock) as sf:
        question = sf.mail.send("reviewer", {"pr": 7}, sender="coder")
        assert sf.mail.answer("reviewer", verdict, timeout=0) == 0
        assert sf.sessions.get(f"mail:{question.id}").state == "failed"
        assert "model overloaded" in str(sf.mail.get(question.id).reason)
        clock.advance("1m")
        assert sf.mail.answer("reviewer", verdict, timeout=0) == 1
        assert sf.sessions.get(f"mail:{question.id}").state == "completed"
        assert sf.mail.get(question.id).state == "done"


def test_two_that_answer_do_not_write_to_each_other_for_ever(sf: standfast.Standfast) -> None:
    """002-20: the function gets a mail that is a reply, but its return value is not sent."""
    heard: list[object] = []
    sf.mail.send("ann", "question", sender="bob")
    for box in ("ann", "bob", "ann"):
        sf.mail.answer(box, lambda mail: heard.append(mail.body) or f"re {mail.body}", timeout=0)
    assert heard == ["question", "re question"]
    assert sf.mail.list() == []


@pytest.fixture
def reviewer(engine_url: str, tmp_path: Path) -> Iterator[standfast.Standfast]:
    """A reviewer whose clock does not move: it reads only ready mail."""
    settings = config.load(engine_url, data_dir=tmp_path / "data", actor="reviewer")
    with handle.connect(settings, clock=ManualClock()) as opened:
        yield opened


def lost(call: standfast.Call) -> str:
    raise ConnectionError("the line is dead")


@standfast.effect("comment", by=("pr",))
def comment(pr: int) -> str:
    raise ConnectionError("the line is dead")


def test_a_question_whose_effect_was_in_doubt_is_answered_as_soon_as_that_is_settled(
    reviewer: standfast.Standfast,
) -> None:
    """000-40: no time has to pass; the transaction that settles the doubt delivers the mail, and no other."""
    sf = reviewer

    def verdict(mail: Mail) -> str:
        return comment(mail.body["pr"])

    question, other = (sf.mail.send("reviewer", {"pr": pr}, sender="coder") for pr in (7, 8))
    assert sf.mail.answer("reviewer", verdict, timeout=0) == 0
    assert sf.mail.answer("reviewer", lambda mail: "too early", timeout=0) == 0
    doubts = {one.session_id: one.id for one in sf.effects.in_doubt()}
    effect = doubts[sf.sessions.get(f"mail:{question.id}").id]
    sf.effects.resolve(effect, "applied", evidence="looked", result="sent")
    assert sf.mail.answer("reviewer", verdict, timeout=0) == 1
    assert (sf.mail.get(question.id).state, sf.mail.get(other.id).state) == ("done", "sent")


@pytest.mark.parametrize("answer", ["grant", "deny"])
def test_a_question_that_waited_for_an_approval_is_answered_as_soon_as_a_person_answers(
    reviewer: standfast.Standfast, answer: str
) -> None:
    """000-40: granted or denied, the reviewer is called at once."""
    sf, heard = reviewer, list[str]()

    def verdict(mail: Mail) -> str:
        try:
            return merge(7)
        except standfast.ApprovalRequired as error:
            heard.append(error.message)
            raise

    @standfast.effect("merge.asked", by=standfast.ALL, approve=True)
    def merge(pr: int) -> str:
        return "merged"

    question = sf.mail.send("reviewer", {"pr": 7}, sender="coder")
    assert sf.mail.answer("reviewer", verdict, timeout=0) == 0
    (request,) = sf.approvals.list()
    getattr(sf.approvals, answer)(request.id, approver="ann@vm:pts/0")
    assert sf.mail.answer("reviewer", verdict, timeout=0) == (1 if answer == "grant" else 0)
    assert len(heard) == (1 if answer == "grant" else 2)
    assert sf.mail.get(question.id).state == ("done" if answer == "grant" else "sent")


@pytest.mark.parametrize("awaited", ["approval", "doubt"])
def test_waiting_for_a_person_uses_up_no_attempt(engine_url: str, tmp_path: Path, awaited: str) -> None:
    """000-40: the asker calls three times more often than attempts are allowed, and still gets the answer."""

    @standfast.effect("merge.patient", by=standfast.ALL, approve=True)
    def merge(pr: int) -> str:
        return "merged"

    def verdict(mail: Mail) -> str:
        return (merge if awaited == "approval" else comment)(mail.body["pr"])

    clock = ManualClock()
    settings = config.load(engine_url, data_dir=tmp_path / "data", actor="reviewer")
    with handle.connect(settings, clock=clock) as sf:
        question = sf.mail.send("reviewer", {"pr": 7}, sender="coder", attempts_max=2)
        for _ in range(6):
            clock.advance("20h")
            assert sf.mail.answer("reviewer", verdict, timeout=0) == 0
        kept = sf.mail.get(question.id)
        # The exception that left the doubt was an attempt; the calls after it only waited.
        assert (kept.state, kept.attempts, kept.attempts_max) == ("sent", 6, 8 if awaited == "approval" else 7)
        if awaited == "approval":
            sf.approvals.grant(sf.approvals.list(state="requested")[0].id, approver="ann@vm:pts/0")
        else:
            sf.effects.resolve(sf.effects.in_doubt()[0].id, "applied", evidence="looked", result="sent")
        assert sf.mail.answer("reviewer", verdict, timeout=0) == 1
        assert sf.mail.get(question.id).state == "done"


def test_a_denied_approval_is_an_attempt(reviewer: standfast.Standfast) -> None:
    """000-40: a mail whose approval was denied is not retried without limit."""
    sf = reviewer

    @standfast.effect("merge.denied", by=standfast.ALL, approve=True)
    def merge(pr: int) -> str:
        return "merged"

    question = sf.mail.send("reviewer", {"pr": 7}, sender="coder", attempts_max=1)
    assert sf.mail.answer("reviewer", lambda mail: merge(7), timeout=0) == 0
    assert sf.mail.get(question.id).attempts_max == 2
    sf.approvals.deny(sf.approvals.list(state="requested")[0].id, approver="ann@vm:pts/0")
    assert sf.mail.answer("reviewer", lambda mail: merge(7), timeout=0) == 0
    assert sf.mail.get(question.id).state == "dead"


def test_a_doubt_that_is_settled_before_the_mail_is_deferred_delays_nothing(reviewer: standfast.Standfast) -> None:
    """000-40: a person may settle the doubt before the transaction that defers the mail."""
    sf = reviewer

    def verdict(mail: Mail) -> str:
        with sf.session("job") as s:
            try:
                return s.effect("comment", {"pr": 7}, do=lost, returns=str)
            except ConnectionError:
                pass
            try:
                return s.effect("comment", {"pr": 7}, do=lost, returns=str)
            except standfast.EffectInDoubt as error:
                sf.effects.resolve(error.effect_id, "applied", evidence="looked", result="sent")
                raise

    sf.mail.send("reviewer", {"pr": 7}, sender="coder")
    assert sf.mail.answer("reviewer", verdict, timeout=0) == 1
