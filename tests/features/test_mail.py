"""Mail: sent once, taken by one reader, done once, or a dead letter with a reason. Every verb on both engines."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import standfast
from standfast import config, handle, when
from standfast.clock import HOUR_US, ManualClock
from standfast.core import authors, leases
from standfast.errors import (
    Conflict,
    IllegalTransition,
    InProgress,
    InvalidInput,
    KeyConflict,
    LeaseLost,
    NotFound,
)
from standfast.record.mail import Mail, rendered
from standfast.record.mail.addresses import checked
from standfast.record.mail.models import Swept
from tests.others import Other

Open = Callable[..., standfast.Standfast]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def place(engine_url: str, tmp_path: Path, clock: ManualClock) -> Iterator[Open]:
    """Open handles on one store: `place("ann")` is ann at a command line, `place()` is this process."""
    handles: list[standfast.Standfast] = []

    def enter(actor: str | None = None, scope: str | None = None) -> standfast.Standfast:
        settings = config.load(engine_url, data_dir=tmp_path / "data", actor=actor, scope=scope)
        handles.append(handle.connect(settings, clock=clock, as_actor=actor is not None))
        return handles[-1]

    yield enter
    for store in handles:
        store.close()


@pytest.fixture
def ann(place: Open) -> standfast.Standfast:
    return place("ann")


@pytest.fixture
def bob(place: Open) -> standfast.Standfast:
    return place("bob")


def events(sf: standfast.Standfast, mail: Mail | str) -> list[str]:
    return [event.type.removeprefix("mail.") for event in sf.mail.history(mail)]


def outcomes(sf: standfast.Standfast, mail: Mail | str) -> list[tuple[str | None, str | None]]:
    return [(one.outcome, one.reason) for one in sf.mail.delivered(mail).attempts]


def taken(sf: standfast.Standfast, to: str | None = None) -> Mail:
    found = sf.mail.claim(to)
    assert found is not None
    return found


# -- sending -------------------------------------------------------------------------------------------


def test_a_mail_to_an_unrelated_agent_is_read_done_and_receipted(
    ann: standfast.Standfast, bob: standfast.Standfast
) -> None:
    """000-38, 000-41: an agent sends mail to another one and gets a receipt when it is done."""
    sent = ann.mail.send("bob", {"pr": 42}, subject="please look")
    assert (sent.state, sent.sender, sent.box, sent.thread_id) == ("sent", "ann", "bob", sent.id)
    assert "the box 'bob' has never been read" in ann.mail.delivered(sent).words
    read = bob.mail.read()
    assert read is not None
    assert (read.id, read.body, read.state, read.attempts, read.fence) == (sent.id, {"pr": 42}, "read", 1, 1)
    assert ann.mail.delivered(sent).state == "read"
    done = bob.mail.done(read.id, note="merged")
    assert (done.state, done.reason, done.holder, done.agent) == ("done", "merged", None, "bob")
    receipt = ann.mail.delivered(sent)
    assert (receipt.state, receipt.by, receipt.settled) == ("done", "bob", True)
    assert receipt.sent_us <= (receipt.leased_us or 0) <= (receipt.read_us or 0) <= (receipt.ended_us or 0)
    assert outcomes(ann, sent) == [("done", "merged")]
    assert events(ann, sent) == ["sent", "leased", "done"]
    assert [one.id for one in ann.mail.receipts()] == [sent.id]


def test_one_key_sends_once_and_another_mail_under_it_is_a_conflict(sf: standfast.Standfast) -> None:
    first = sf.mail.send("bob", [1, 2], key="k", subject="s")
    again = sf.mail.send("bob", [1, 2], key="k", subject="s", priority=0)
    assert (again.id, again.replayed, again.priority) == (first.id, True, first.priority)
    for other in ({"to": "eve"}, {"body": [2, 1]}, {"subject": "t"}):
        asked = {"to": "bob", "body": [1, 2], "subject": "s"} | other
        with pytest.raises(KeyConflict, match="differs in"):
            sf.mail.send(asked["to"], asked["body"], key="k", subject=asked["subject"])  # type: ignore[arg-type]
    sf.mail.done(first.id)
    assert sf.mail.send("bob", [1, 2], key="k", subject="s").state == "done"
    assert len(sf.mail.list(state="any")) == 1


def test_the_returned_mail_equals_the_stored_one(sf: standfast.Standfast) -> None:
    body = {"b": [1, 2.5, None, True], "a": "ünïcode \x1b[31m \u202e"}
    sent = sf.mail.send("bob", body)
    assert sent.body == sf.mail.get(sent.id).body == taken(sf, "bob").body == body


BAD_ADDRESSES = ["", "  ", "a\nb", "role:", "session: ", "x" * 600, "a\x00b", 7, None]
GARBAGE: list[dict[str, object]] = [
    {"body": float("nan")},
    {"body": {1: 2}},
    {"body": "x" * 1_100_000},
    {"body": "\ud800"},
    {"body": object()},
    {"key": ""},
    {"key": "a\nb"},
    {"subject": "x" * 400},
    {"subject": ""},
    {"priority": -1},
    {"priority": 1.5},
    {"attempts_max": 0},
    {"attempts_max": True},
    {"for_": 0},
    {"for_": 1, "expires": "1h"},
    {"sender": "role:"},
]


def test_garbage_is_refused_and_nothing_is_sent(sf: standfast.Standfast) -> None:
    for bad in BAD_ADDRESSES:
        with pytest.raises(InvalidInput):
            sf.mail.send(bad, "hi")  # type: ignore[arg-type]
    for asked in GARBAGE:
        with pytest.raises(InvalidInput):
            sf.mail.send("bob", **({"body": "hi"} | asked))  # type: ignore[arg-type]
    assert sf.mail.list(state="any") == []


def test_addresses_are_agents_roles_and_sessions() -> None:
    assert checked("reviewer") == checked("agent:reviewer") == checked(" reviewer ") == "reviewer"
    assert checked("role:reviewer") == "role:reviewer"
    assert checked("session:fix-42") == "session:fix-42"
    assert checked("claude-code:abc") == "claude-code:abc"
    assert checked("agent:role:x") == "agent:role:x"


def test_one_reader_of_a_role_gets_each_mail(ann: standfast.Standfast, bob: standfast.Standfast) -> None:
    sent = [ann.mail.send("role:reviewer", n).id for n in range(2)]
    assert [taken(sf, "role:reviewer").id for sf in (bob, ann)] == sent
    assert ann.mail.claim("role:reviewer") is None
    assert ann.mail.claim("reviewer") is None


def test_a_session_is_reached_by_key_and_by_id_from_another_scope(place: Open) -> None:
    """000-38: the session belongs to an unrelated repository."""
    here, there = place("ann", scope="here"), place("bob", scope="there")
    with there.session("fix-42") as s:
        id = s.id
    by_id = here.mail.send(id, "hello", sender="ann")
    assert (by_id.scope, by_id.box) == ("there", "session:fix-42")
    got = taken(there, "session:fix-42")
    assert (got.body, got.provenance["scope"]) == ("hello", "here")
    answer = there.mail.reply(got, "hi", done=True)
    assert (answer.scope, answer.box, answer.sender) == ("here", "ann", "session:fix-42")
    assert taken(here, "ann").body == "hi"
    with pytest.raises(NotFound):
        here.mail.send("ses_01m7gqy8f6eaxverjy656n8rw9", "hello")


def test_provenance_is_ours_to_write(sf: standfast.Standfast) -> None:
    """000-18: standfast writes the provenance, because the claims of a sender are the least trusted source."""
    with sf.session("fix-42"):
        sent = sf.mail.send("bob", "hi", sender="the president", session="fix-42")
    assert sent.sender == "the president"
    about = sent.provenance
    assert (about["actor"], about["pid"], about["session"]) == (sf.agent, os.getpid(), "fix-42")
    assert about["host"] == os.uname().nodename
    assert sent.session_id is not None
    assert f'from "the president", written by {authors.of(sf.agent)}, process {os.getpid()}' in rendered(sent)
    with pytest.raises(NotFound):
        sf.mail.send("bob", "hi", session="no such")


# -- threads -------------------------------------------------------------------------------------------


def test_a_reply_goes_to_the_sender_in_the_thread_and_can_finish_the_question(
    ann: standfast.Standfast, bob: standfast.Standfast
) -> None:
    question = ann.mail.send("bob", "which?", subject="colour", priority=1)
    asked = taken(bob)
    answer = bob.mail.reply(asked, "blue", done=True)
    assert (answer.box, answer.sender, answer.subject, answer.priority) == ("ann", "bob", "colour", 1)
    assert (answer.thread_id, answer.reply_to_id) == (question.id, question.id)
    assert ann.mail.delivered(question).words.endswith("answered")
    other = ann.mail.send("ann", "unrelated", priority=0)
    assert [one.body for one in [taken_in(ann, question)]] == ["blue"]
    assert taken(ann).id == other.id
    back = ann.mail.reply(answer.id, "sure?")
    assert [one.body for one in bob.mail.thread(answer.id)] == ["which?", "blue", "sure?"]
    assert back.box == "bob"


def taken_in(sf: standfast.Standfast, thread: Mail) -> Mail:
    found = sf.mail.claim(thread=thread)
    assert found is not None
    return found


def test_a_reply_that_cannot_end_the_question_is_not_sent(ann: standfast.Standfast, bob: standfast.Standfast) -> None:
    ann.mail.send("bob", "which?")
    asked = taken(bob)
    ann.mail.release(bob.mail.release(asked), reason="again")
    with pytest.raises(LeaseLost):
        bob.mail.reply(asked, "blue", done=True)
    assert ann.mail.list("ann") == []


# -- delivery ------------------------------------------------------------------------------------------


def test_the_most_urgent_first_then_the_oldest(sf: standfast.Standfast) -> None:
    for body, priority in (("c", 2), ("d", 2), ("a", 0), ("b", 1)):
        sf.mail.send("bob", body, priority=priority)
    assert [one.body for one in sf.mail.list("bob")] == list("abcd")
    assert [taken(sf, "bob").body for _ in range(4)] == list("abcd")
    assert sf.mail.claim("bob") is None


def test_a_mail_not_done_is_returned_after_its_lease(
    ann: standfast.Standfast, bob: standfast.Standfast, clock: ManualClock
) -> None:
    sent = ann.mail.send("bob", "hi")
    first = bob.mail.read(for_="1m")
    assert first is not None
    assert bob.mail.claim() is None
    clock.advance(59)
    assert bob.mail.claim() is None
    clock.advance(2)
    second = taken(ann, "bob")
    assert (second.id, second.fence, second.attempts) == (sent.id, first.fence + 2, 2)
    with pytest.raises(LeaseLost):
        bob.mail.done(first)
    with pytest.raises(LeaseLost, match="held by ann"):
        bob.mail.done(sent.id)
    assert ann.mail.done(second).state == "done"
    assert [outcome for outcome, _ in outcomes(ann, sent)] == ["lost", "done"]
    assert "bob had it until" in str(outcomes(ann, sent)[0][1])


def test_a_clock_that_is_set_back_hides_nothing(ann: standfast.Standfast, clock: ManualClock) -> None:
    sent = ann.mail.send("bob", "hi")
    clock.jump("-1h")
    assert taken(ann, "bob").id == sent.id


def test_a_late_reader_may_finish_a_mail_that_no_other_reader_has(bob: standfast.Standfast, clock: ManualClock) -> None:
    bob.mail.send("bob", "hi")
    late = taken(bob)
    clock.advance(3600)
    assert bob.mail.done(late).state == "done"
    assert bob.mail.done(late).state == "done"
    assert bob.mail.done(late.id).state == "done"


def test_done_counts_once_for_one_holder(ann: standfast.Standfast, bob: standfast.Standfast) -> None:
    sent = ann.mail.send("bob", "hi")
    bob.mail.done(taken(bob), note="first")
    assert bob.mail.done(sent.id, note="second").reason == "first"
    with pytest.raises(IllegalTransition, match="was done by bob"):
        ann.mail.done(sent.id)
    for verb in (ann.mail.read, ann.mail.release):
        with pytest.raises(IllegalTransition, match="is done"):
            verb(sent.id)
    assert events(ann, sent).count("done") == 1


def test_done_by_id_takes_a_mail_that_no_reader_has(ann: standfast.Standfast) -> None:
    sent = ann.mail.send("bob", "hi")
    assert ann.mail.done(sent.id[-8:]).attempts == 1
    assert outcomes(ann, sent) == [("done", None)]


def test_a_mail_of_a_live_reader_is_not_read_by_another(ann: standfast.Standfast, bob: standfast.Standfast) -> None:
    sent = ann.mail.send("bob", "hi")
    taken(bob)
    with pytest.raises(InProgress, match="held by bob"):
        ann.mail.read(sent.id)
    assert bob.mail.read(sent.id).attempts == 1  # type: ignore[union-attr]
    ann.mail.get(sent.id)
    ann.mail.show(sent.id)
    assert ann.mail.list("bob")[0].agent == "bob"


def test_deferred_it_waits_and_its_sender_sees_why(
    ann: standfast.Standfast, bob: standfast.Standfast, clock: ManualClock
) -> None:
    sent = ann.mail.send("bob", "hi")
    given = bob.mail.defer(taken(bob), for_="1h", reason="CI is red")
    assert (given.state, given.ready_us, given.reason) == ("sent", clock.now_us() + HOUR_US, "CI is red")
    assert bob.mail.claim() is None
    assert "deferred for 1h, came back 1×: CI is red" in ann.mail.delivered(sent).words
    clock.advance(3601)
    assert taken(bob).attempts == 2
    assert bob.mail.defer(sent.id, until=when.utc(clock.now_us() + 5)).ready_us == clock.now_us() + 5
    with pytest.raises(InvalidInput, match="defer needs one of"):
        bob.mail.defer(sent.id)


def test_an_old_fence_is_refused_by_every_verb(ann: standfast.Standfast, bob: standfast.Standfast) -> None:
    ann.mail.send("bob", "hi")
    old = taken(bob)
    bob.mail.release(old)
    for verb in (
        bob.mail.done,
        bob.mail.release,
        bob.mail.renew,
        lambda mail: bob.mail.defer(mail, for_="1us"),
        lambda mail: bob.mail.refuse(mail, "no"),
    ):
        with pytest.raises(LeaseLost):
            verb(old)
    assert [one.outcome for one in bob.mail.delivered(old).attempts] == ["returned"]


def test_renewed_it_stays(ann: standfast.Standfast, bob: standfast.Standfast, clock: ManualClock) -> None:
    ann.mail.send("bob", "hi")
    mine = bob.mail.claim(for_="1m")
    assert mine is not None
    clock.advance(50)
    assert bob.mail.renew(mine, for_="1h").lease_until_us == clock.now_us() + HOUR_US
    clock.advance(3000)
    leases.renew_actor_leases(bob._store)  # as every command of bob's does
    clock.advance(3000)
    assert ann.mail.claim("bob") is None
    with pytest.raises(LeaseLost, match="not by ann"):
        ann.mail.renew(mine.id)


def test_mail_of_a_dead_process_is_ready_at_once(engine_url: str, tmp_path: Path, sf: standfast.Standfast) -> None:
    sent = sf.mail.send("bob", "hi")
    with Other(engine_url, tmp_path / "data", "say(sf.mail.claim('bob').body)\nwait()") as other:
        other.hear("hi")
        assert sf.mail.claim("bob") is None
        other.kill()
    again = taken(sf, "bob")
    assert (again.attempts, again.fence) == (2, 3)
    assert outcomes(sf, sent)[0] == ("lost", f"process {other.pid} on {os.uname().nodename} died with it")


def test_after_its_readers_died_five_times_it_is_a_dead_letter(
    engine_url: str, tmp_path: Path, sf: standfast.Standfast
) -> None:
    """000-40: a mail whose readers died is delivered no more, and its dead letter says which process died."""
    sent = sf.mail.send("bob", "poison", attempts_max=2)
    behind = sf.mail.send("bob", "fine")
    for _ in range(2):
        with Other(engine_url, tmp_path / "data", "say(sf.mail.claim('bob').body)\nwait()") as other:
            other.hear("poison")
            other.kill()
    assert taken(sf, "bob").id == behind.id
    (letter,) = sf.mail.dead()
    assert (letter.subject, letter.attempts) == (sent.id, 2)
    assert "2 attempts, the last one lost" in letter.reason
    assert "died with it" in letter.reason
    assert [one.outcome for one in sf.mail.delivered(sent).attempts] == ["lost", "lost"]


# -- dead letters ----------------------------------------------------------------------------------------


def test_after_its_attempts_it_is_a_dead_letter_that_can_be_retried(
    ann: standfast.Standfast, bob: standfast.Standfast
) -> None:
    """000-39, 000-40: the mail never vanishes. It is listed with its reason and can be retried."""
    sent = ann.mail.send("bob", "hi", attempts_max=2)
    bob.mail.release(taken(bob), reason="not now")
    dead = bob.mail.release(taken(bob), reason="still not")
    assert (dead.state, dead.reason) == ("dead", "2 attempts, the last one returned: still not")
    assert bob.mail.claim() is None
    (letter,) = ann.mail.dead()
    assert (letter.subject, letter.kind, letter.reason) == (sent.id, "mail", dead.reason)
    assert ann.mail.delivered(sent).dead_letter == letter
    with pytest.raises(IllegalTransition, match="is dead"):
        bob.mail.done(sent.id)
    again = ann.mail.retry(letter, attempts=1, note="try bob again")
    assert (again.state, again.attempts_max, again.reason) == ("sent", 3, "try bob again")
    assert ann.mail.dead() == []
    assert [one.settlement for one in ann.mail.dead(settled=True)] == ["retried"]
    assert bob.mail.done(taken(bob)).attempts == 3
    assert events(ann, sent) == ["sent", "leased", "returned", "leased", "dead", "retried", "leased", "done"]
    with pytest.raises(IllegalTransition, match="is done, not a dead letter"):
        ann.mail.retry(sent.id)


def test_a_refused_mail_is_a_dead_letter_at_once_and_can_be_resolved(
    ann: standfast.Standfast, bob: standfast.Standfast
) -> None:
    sent = ann.mail.send("bob", "hi")
    assert bob.mail.refuse(taken(bob), "no such repository").state == "dead"
    resolved = ann.mail.resolve(sent.id, note="called him")
    assert (resolved.settlement, resolved.settled_by, resolved.note) == ("resolved", "ann", "called him")
    assert ann.mail.dead() == []
    assert "resolved by ann: called him" in ann.mail.delivered(sent).words
    with pytest.raises(IllegalTransition, match="was resolved by ann"):
        ann.mail.resolve(sent.id)
    assert ann.mail.retry(sent.id).state == "sent"
    with pytest.raises(IllegalTransition, match="not a dead letter"):
        ann.mail.resolve(sent.id)
    with pytest.raises(InvalidInput, match="reason is empty"):
        bob.mail.refuse(sent.id, "  ")


def test_a_dead_letter_starts_the_notify_command(sf: standfast.Standfast, tmp_path: Path) -> None:
    told = tmp_path / "notified"
    os.mkfifo(told)
    sf._store.notify = ("sh", "-c", f'echo "$STANDFAST_EVENT $STANDFAST_HINT" > {told}')
    sent = sf.mail.send("bob", "hi")
    sf.mail.refuse(sent.id, "no")
    assert told.read_text() == f"mail.dead standfast mail show {sent.id[-6:]}\n"


# -- expiry, sweeping --------------------------------------------------------------------------------------


def test_an_expired_mail_is_not_delivered_and_its_state_is_expired(
    ann: standfast.Standfast, bob: standfast.Standfast, clock: ManualClock
) -> None:
    sent = ann.mail.send("bob", "build is red", for_="1h")
    kept = ann.mail.send("bob", "hi", expires=when.utc(clock.now_us() + 2 * HOUR_US))
    clock.advance(3600)
    assert taken(bob).id == kept.id
    assert ann.mail.get(sent.id).state == "expired"
    assert "expired" in ann.mail.delivered(sent).words
    with pytest.raises(IllegalTransition, match="is expired"):
        bob.mail.read(sent.id)
    swept = ann.mail.sweep()
    assert (swept.expired, swept.returned, swept.more) == ((sent.id,), (), False)
    assert ann.mail.sweep().expired == ()
    assert ann.mail.list("bob", state="expired")[0].reason.startswith("its time was over at")  # type: ignore[union-attr]
    assert ann.mail.retry(sent.id, for_="1h").expires_us == clock.now_us() + HOUR_US
    assert events(ann, sent) == ["sent", "expired", "retried"]


def test_an_expired_mail_that_no_sweep_has_seen_can_be_retried(ann: standfast.Standfast, clock: ManualClock) -> None:
    sent = ann.mail.send("bob", "hi", for_="1us")
    clock.advance(1)
    assert ann.mail.retry(sent.id).expires_us is None
    assert taken(ann, "bob").id == sent.id


def test_a_reader_whose_lease_expired_may_finish_the_mail_it_still_has(
    bob: standfast.Standfast, clock: ManualClock
) -> None:
    bob.mail.send("bob", "hi", for_="1m")
    mine = taken(bob)
    clock.advance(120)
    assert bob.mail.sweep().expired == ()
    assert bob.mail.done(mine).state == "done"


def test_a_sweep_returns_mail_of_dead_holders_in_every_scope(place: Open, clock: ManualClock) -> None:
    here, there = place("ann", scope="here"), place("bob", scope="there")
    ids = [sf.mail.send("x", n, attempts_max=1 + n).id for n in range(2) for sf in (here, there)]
    for sf in (here, there):
        taken(sf, "x"), taken(sf, "x")
    clock.advance(3600)
    sweeps = [here.mail.sweep(limit=1)]
    while sweeps[-1].more:
        sweeps.append(here.mail.sweep(limit=1))
    assert len(sweeps) == 5
    assert {id for swept in sweeps for id in swept.dead} == set(ids[:2])
    assert {id for swept in sweeps for id in swept.returned} == set(ids[2:])
    assert [one.subject for one in there.mail.dead()] == [ids[1]]
    assert here.mail.sweep() == Swept((), (), (), False)


def test_what_a_sweep_gave_back_is_lost_to_its_old_holder(bob: standfast.Standfast, clock: ManualClock) -> None:
    bob.mail.send("bob", "hi")
    late = taken(bob)
    clock.advance(3600)
    assert bob.mail.sweep().returned == (late.id,)
    with pytest.raises(LeaseLost):
        bob.mail.done(late)
    assert bob.mail.done(late.id).attempts == 2


# -- bounds --------------------------------------------------------------------------------------------


def test_a_full_box_refuses_by_name_and_both_sides_see_it(sf: standfast.Standfast) -> None:
    """000-40: mail that does not fit is refused with an error. No accepted mail is dropped."""
    sf.mail.bound("bob", 2)
    first = sf.mail.send("bob", 1, key="one")
    sf.mail.send("bob", 2)
    with pytest.raises(Conflict, match="the box 'bob' is full: it holds 2 of at most 2") as refused:
        sf.mail.send("bob", 3)
    assert refused.value.code == "box_full"
    assert "standfast mail list bob" in refused.value.hint
    assert sf.mail.send("bob", 1, key="one").replayed  # the box has this mail already
    assert [*sf.rows("SELECT bound, refused FROM mail_box WHERE box = 'bob'")] == [{"bound": 2, "refused": 1}]
    sf.mail.done(first.id)
    dead = sf.mail.refuse(sf.mail.send("bob", 3).id, "no")
    sf.mail.send("bob", 4)
    with pytest.raises(Conflict, match="is full"):
        sf.mail.retry(dead)
    sf.mail.bound("bob", None)
    assert sf.mail.retry(dead).state == "sent"
    assert [*sf.rows("SELECT bound FROM mail_box WHERE box = 'bob'")] == [{"bound": None}]


# -- following -------------------------------------------------------------------------------------------


def test_following_leases_going_on_marks_read_and_done_is_explicit(
    ann: standfast.Standfast, bob: standfast.Standfast, clock: ManualClock
) -> None:
    ids = [ann.mail.send("bob", n).id for n in range(3)]
    follow = bob.mail.follow(for_="1m", timeout=0)
    first = next(follow)
    assert (first.body, ann.mail.get(ids[0]).state) == (0, "leased")
    second = next(follow)
    assert ann.mail.get(ids[0]).state == "read"
    bob.mail.done(second)
    assert next(follow).body == 2
    assert list(follow) == []
    assert [ann.mail.get(id).state for id in ids] == ["read", "done", "read"]
    leases.renew_actor_leases(bob._store)  # bob's other commands do not renew the mail that he continued
    clock.advance(61)
    assert [one.id for one in bob.mail.follow(timeout=0)] == [ids[0], ids[2]]


def test_a_process_renews_what_it_works_on_and_not_what_it_went_on_from(place: Open, clock: ManualClock) -> None:
    sf, bob = place(), place("bob")
    ids = [sf.mail.send("x", n).id for n in range(2)]
    follow = sf.mail.follow("x", timeout=0)
    next(follow), next(follow)
    for _ in range(4):
        clock.advance(20)
        sf._store.write(leases.renew_all)
    assert taken(bob, "x").id == ids[0]
    assert bob.mail.claim("x") is None
    follow.close()  # the second one is not mentioned
    clock.advance(61)
    sf._store.write(leases.renew_all)
    assert taken(bob, "x").id == ids[1]


def test_a_follower_in_another_process_is_woken(engine_url: str, tmp_path: Path, sf: standfast.Standfast) -> None:
    """001-49: agents in different processes get mail when it arrives."""
    code = """
        say("ready")
        for m in sf.mail.follow("bob"):
            sf.mail.reply(m, {"got": m.body}, done=True)
            say(m.body)
            if m.body == "last":
                break
    """
    with Other(engine_url, tmp_path / "data", code) as other:
        other.hear("ready")
        for body in ("first", "last"):
            sent = sf.mail.send("bob", body, sender="ann")
            other.hear(body)
            assert sf.mail.wait(sent, timeout=30).state == "done"
        other.end()
    assert [one.body for one in sf.mail.follow("ann", timeout=0)] == [{"got": "first"}, {"got": "last"}]


def test_waiting_for_a_receipt_ends_with_the_mail(ann: standfast.Standfast, bob: standfast.Standfast) -> None:
    """000-41: a sender can wait for the outcome."""
    sent = ann.mail.send("bob", "hi", key="k")
    with pytest.raises(InProgress, match="is not done yet: waiting"):
        ann.mail.wait("k", timeout=0)
    mine = taken(bob)
    assert ann.mail.wait(sent, until="leased", timeout=0).state == "leased"
    with pytest.raises(InProgress, match="not read yet"):
        ann.mail.wait(sent, until="read", timeout=0)
    bob.mail.read(mine)
    assert ann.mail.wait(sent, until="read", timeout=0).state == "read"
    bob.mail.refuse(mine, "no")
    assert ann.mail.wait(sent, timeout=0).state == "dead"
    with pytest.raises(InvalidInput):
        ann.mail.wait(sent, until="never")
    with pytest.raises(NotFound):
        ann.mail.wait("nothing", timeout=0)


class Passing(ManualClock):
    """A clock: each reading of the time awake advances it by one of `steps`."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[str] = []

    def mono_us(self) -> int:
        if self.steps:
            self.advance(self.steps.pop(0))
        return super().mono_us()


def test_without_a_timeout_a_wait_ends_after_a_day(
    engine_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """000-1: every wait has a deadline. The mail itself is not removed."""
    monkeypatch.setattr("standfast.record.mail.resource.LOOK_AGAIN_S", 0.01)
    clock = Passing()
    with handle.connect(config.load(engine_url, data_dir=tmp_path), clock=clock) as sf:
        sent = sf.mail.send("bob", "hi")
        began_us = clock.now_us()
        clock.steps = ["0s", "23h 59m", "30s", "30s"]
        with pytest.raises(InProgress, match="is not done yet"):
            sf.mail.wait(sent)
        assert clock.now_us() - began_us == 24 * HOUR_US
        assert sf.mail.get(sent).state == "sent"


# -- in transactions with other features -------------------------------------------------------------------


def test_inside_a_transaction_everything_or_nothing(sf: standfast.Standfast) -> None:
    with pytest.raises(ZeroDivisionError), sf.transaction() as tx:  # noqa: PT012  # the block is rolled back
        tx.tasks.add("look")
        tx.mail.send("bob", "hi")
        raise ZeroDivisionError
    assert sf.mail.list() == []
    with sf.transaction() as tx:
        sent = tx.mail.send("bob", "hi")
        mine = tx.mail.claim("bob")
        assert mine is not None
        tx.tasks.add("look")
        tx.mail.done(mine)
        with pytest.raises(InvalidInput, match="inside a transaction"):
            tx.mail.follow("bob")
        with pytest.raises(InvalidInput, match="inside a transaction"):
            tx.mail.wait(sent)
    assert sf.mail.get(sent.id).state == "done"
    assert len(sf.tasks.list()) == 1


def test_the_same_names_awaited(engine_url: str, tmp_path: Path) -> None:
    async def both() -> list[object]:
        async with standfast.aopen(engine_url, data_dir=tmp_path / "data") as sf:
            sent = await sf.mail.send("bob", 1)
            await asyncio.gather(*(sf.mail.send("bob", n) for n in range(2, 6)))
            got: list[object] = []
            async for mail in sf.mail.follow("bob", timeout=0):
                got.append(mail.body)
                await sf.mail.done(mail)
            assert (await sf.mail.wait(sent, timeout=1)).state == "done"
            return got

    assert sorted(asyncio.run(both()), key=str) == [1, 2, 3, 4, 5]


def test_an_async_follower_that_is_cancelled_gives_up_nothing(engine_url: str, tmp_path: Path) -> None:
    async def follow() -> None:
        async with standfast.aopen(engine_url, data_dir=tmp_path / "data") as sf:

            async def wait_for_mail() -> None:
                async for mail in sf.mail.follow("bob"):
                    await sf.mail.done(mail)

            task = asyncio.create_task(wait_for_mail())
            first = await sf.mail.send("bob", 1)
            await sf.mail.wait(first, timeout=30)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await sf.mail.send("bob", 2)
            assert (await sf.mail.claim("bob")).body == 2

    asyncio.run(follow())


# -- lists and counts ----------------------------------------------------------------------------------


def test_lists_are_pages_that_lose_nothing_and_mark_nothing(sf: standfast.Standfast) -> None:
    for n in range(7):
        sf.mail.send("bob" if n % 2 else "eve", n, priority=n % 3)
    for id in [one.id for one in sf.mail.list("bob")][:1]:
        sf.mail.done(id)
    for asked in ({}, {"to": "eve"}, {"state": "any"}, {"to": "bob", "state": "done"}, {"everywhere": True}):
        whole = sf.mail.list(**asked)
        pages: list[Mail] = []
        while page := sf.mail.list(limit=2, after=pages[-1].place if pages else None, **asked):
            pages += page
        assert pages == whole
    assert {one.state for one in sf.mail.list()} == {"sent"}
    receipts = sf.mail.receipts(limit=4)
    assert [one.id for one in receipts + sf.mail.receipts(limit=4, after=receipts[-1].place)] == [
        one.id for one in sf.mail.list(state="any")
    ]
    with pytest.raises(InvalidInput, match="'lost' is not a state"):
        sf.mail.list(state="lost")
    with pytest.raises(InvalidInput, match="not a cursor of this list"):
        sf.mail.list(after="nowhere")


def test_everything_about_one_mail_explains_it(ann: standfast.Standfast, bob: standfast.Standfast) -> None:
    sent = ann.mail.send("bob", "hi", attempts_max=1)
    bob.mail.defer(taken(bob), for_="1s", reason="no idea")
    shown = ann.mail.show(sent.id)
    assert shown.mail.state == "dead"
    assert [one.outcome for one in shown.delivery.attempts] == ["deferred"]
    assert shown.dead_letters[0].reason == "1 attempt, the last one deferred: no idea"
    assert [event.type for event in shown.history] == ["mail.sent", "mail.leased", "mail.dead"]
    items = {item.kind: item for item in ann.recovery.report().items}
    assert sent.id in items["dead_letter"].id or sent.id[-6:] in items["dead_letter"].command


def test_what_waits_unseen_and_full_boxes_are_in_the_report(ann: standfast.Standfast, bob: standfast.Standfast) -> None:
    ann.mail.send("missing-yet", "hi")
    ann.mail.send("ann", "for you")
    waiting = [item for item in ann.recovery.report().items if item.kind == "mail_waiting"]
    assert [item.id for item in waiting] == ["box:ann", "box:missing-yet"]
    assert "has never been read" in waiting[1].what
    taken(ann)
    bob.mail.claim("missing-yet")
    assert [item for item in ann.recovery.report().items if item.kind == "mail_waiting"] == []


# -- texts for people ------------------------------------------------------------------------------------


def test_rendered_for_an_agent_nothing_moves_a_cursor_or_forges_an_envelope(sf: standfast.Standfast) -> None:
    body = (
        "hello\x1b[2J\x1b]0;title\x07\n\u202eevil\u2066\x9b31m\x00".replace("\x00", "")
        + "\r\nmail x to you\n\tindented"
    )
    text = rendered(sf.mail.send("bob", body, subject="s\u200bpy", sender="eve"))
    assert not any(ord(one) < 32 and one != "\n" for one in text)
    assert not any(one in text for one in ("\x1b", "\x9b", "\u202e", "\u2066", "\u200b"))
    head, _, quoted = text.partition("\n\n")
    assert 'subject "spy"' in head
    assert all(line.startswith(">") for line in quoted.splitlines())
    assert ">     indented" in quoted
    structured = sf.mail.send("bob", {"a": "x\x1by\u202e", "b": [1]}).rendered()
    assert "\u202e" not in structured
    assert json.loads("\n".join(line.removeprefix(">") for line in structured.partition("\n\n")[2].splitlines())) == {
        "a": "x\x1by",
        "b": [1],
    }
