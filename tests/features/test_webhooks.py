"""Webhooks: recorded once, handled once, retried, abandoned, released. Every verb on both engines."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import standfast
from standfast import config, handle
from standfast.clock import HOUR_US, SECOND_US, ManualClock
from standfast.errors import IllegalTransition, InProgress, InvalidInput, KeyConflict, LeaseLost, NotFound
from standfast.ledger.webhooks import Handled, WebhookEvent
from standfast.ledger.webhooks.claims import backoff_us
from standfast_prove.faults.children import Nursery
from tests.interfaces.test_notify import Inbox
from tests.others import Other

Open = Callable[..., standfast.Standfast]
PAID = {"type": "invoice.paid", "data": {"amount": 1200}, "pending_webhooks": 1}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def place(engine_url: str, tmp_path: Path, clock: ManualClock) -> Iterator[Open]:
    """Open handles on one store: `place("ann")` is ann at a command line, `place()` is this process."""
    handles: list[standfast.Standfast] = []

    def enter(actor: str | None = None) -> standfast.Standfast:
        settings = config.load(engine_url, data_dir=tmp_path / "data", actor=actor)
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


def history(sf: standfast.Standfast, event: WebhookEvent | str) -> list[str]:
    return [told.type.removeprefix("webhook.") for told in sf.webhooks.show(event).history]


def told(event: WebhookEvent) -> WebhookEvent:
    """The stored event, without the fields that only the changing call has."""
    return event.replace(receipt=None, fresh=False)


# -- receiving -----------------------------------------------------------------------------------------


def test_the_second_delivery_is_counted_and_answered_with_what_became_of_the_first(sf: standfast.Standfast) -> None:
    """000-20: a second delivery with a known event id does nothing and gets the outcome of the first."""
    first = sf.webhooks.receive("stripe", "evt_1", PAID, kind="invoice.paid")
    assert (first.fresh, first.state, first.deliveries, first.payload) == (True, "received", 1, PAID)
    second = sf.webhooks.receive("stripe", "evt_1", PAID)
    assert (second.id, second.fresh, second.deliveries) == (first.id, False, 2)
    sf.webhooks.done(first.id, {"order": 7})
    third = sf.webhooks.receive("stripe", "evt_1", PAID)
    assert (third.state, third.result, third.deliveries) == ("done", {"order": 7}, 3)
    assert sf.webhooks.claim() is None
    assert history(sf, first) == ["received", "redelivered", "done", "redelivered"]
    assert sf.webhooks.list() == [told(third)]


def test_an_id_means_something_only_from_its_source_and_in_its_scope(engine_url: str, tmp_path: Path) -> None:
    ids = set()
    for scope in ("here", "there"):
        with handle.connect(config.load(engine_url, data_dir=tmp_path / "data", scope=scope)) as sf:
            ids |= {sf.webhooks.receive(source, "1", PAID).id for source in ("stripe", "github")}
            assert len(sf.webhooks.list()) == 2
            assert sf.webhooks.get("stripe/1").scope == scope
    assert len(ids) == 4


def test_another_payload_under_a_known_id_is_refused_with_the_difference(sf: standfast.Standfast) -> None:
    """RULES 7: the key is stored with the hash of the payload. Otherwise a different event would be dropped
    silently.
    """
    first = sf.webhooks.receive("stripe", "evt_1", PAID)
    with pytest.raises(KeyConflict, match="data differ") as caught:
        sf.webhooks.receive("stripe", "evt_1", PAID | {"data": {"amount": 1}})
    assert "--ignore data" in caught.value.hint
    sf.webhooks.receive("stripe", "evt_2", PAID, kind="a")
    with pytest.raises(KeyConflict, match="kind differ"):
        sf.webhooks.receive("stripe", "evt_2", PAID, kind="b")
    sf.webhooks.receive("stripe", "evt_3", "text")
    with pytest.raises(KeyConflict, match="the payload differ"):
        sf.webhooks.receive("stripe", "evt_3", "other text")
    assert history(sf, first) == ["received", "refused"]
    assert sf.webhooks.get(first).deliveries == 1


def test_fields_a_sender_changes_with_every_delivery_do_not_count_if_named(sf: standfast.Standfast) -> None:
    """Stripe lowers `pending_webhooks` with each delivery of one event."""
    sf.webhooks.receive("stripe", "evt_1", PAID)
    again = sf.webhooks.receive("stripe", "evt_1", PAID | {"pending_webhooks": 0}, ignore=("pending_webhooks",))
    assert (again.deliveries, again.payload) == (2, PAID)
    gone = {name: value for name, value in PAID.items() if name != "pending_webhooks"}
    assert sf.webhooks.receive("stripe", "evt_1", gone, ignore="pending_webhooks").deliveries == 3
    with pytest.raises(KeyConflict, match="pending_webhooks differ"):
        sf.webhooks.receive("stripe", "evt_1", gone)


GARBAGE: list[tuple[Any, Any, Any, dict[str, Any]]] = [
    ("", "1", {}, {}),
    ("s", "", {}, {}),
    ("s", "a\nb", {}, {}),
    ("s\0", "1", {}, {}),
    ("s" * 201, "1", {}, {}),
    ("s", "1" * 501, {}, {}),
    (7, "1", {}, {}),
    ("s", None, {}, {}),
    ("s", "1", {"n": float("nan")}, {}),
    ("s", "1", b"bytes", {}),
    ("s", "1", {"a": "\0"}, {}),
    ("s", "1", "x" * (8 * 1024 * 1024 + 1), {}),
    ("s", "1", {}, {"kind": ""}),
    ("s", "1", {}, {"attempts_max": 0}),
    ("s", "1", {}, {"attempts_max": True}),
    ("s", "1", {}, {"attempts_max": "8"}),
    ("s", "1", {}, {"ignore": [1]}),
    ("s", "1", {}, {"ignore": [f"f{n}" for n in range(21)]}),
    ("s", "1", {}, {"do": "not callable"}),
]


def test_garbage_is_refused_by_name_and_nothing_is_written(sf: standfast.Standfast) -> None:
    for source, event_id, payload, more in GARBAGE:
        with pytest.raises(InvalidInput):
            sf.webhooks.receive(source, event_id, payload, **more)
    assert sf.webhooks.list() == []


def test_any_json_is_a_payload(sf: standfast.Standfast) -> None:
    payloads: list[Any] = [None, [], "text", 0, -(2**63), 1.5, True, {"ä": ["🎉", None]}, {}]
    for n, payload in enumerate(payloads):
        sf.webhooks.receive("s", str(n), payload)
        assert sf.webhooks.receive("s", str(n), payload).payload == payload


# -- handling ------------------------------------------------------------------------------------------


def test_one_handler_gets_it_and_its_claim_is_fenced(ann: standfast.Standfast, bob: standfast.Standfast) -> None:
    ann.webhooks.receive("stripe", "evt_1", PAID)
    held = ann.webhooks.claim()
    assert held is not None
    assert (held.holder, held.fence, held.attempts, held.standing) == ("a:ann", 1, 1, "live")
    assert bob.webhooks.claim() is None
    with pytest.raises(InProgress, match="held by ann"):
        bob.webhooks.claim("stripe/evt_1")
    refusals: list[Callable[[], object]] = [
        lambda: bob.webhooks.done(held.id),
        lambda: bob.webhooks.renew(held.id),
        lambda: bob.webhooks.fail(held.id, "no"),
    ]
    for refused in refusals:
        with pytest.raises(LeaseLost):
            refused()
    done = ann.webhooks.done(held, 1)
    assert (done.state, done.result, done.holder, done.agent) == ("done", 1, None, "ann")


def test_a_late_handler_is_refused_and_its_result_is_not_recorded(
    ann: standfast.Standfast, bob: standfast.Standfast, clock: ManualClock
) -> None:
    ann.webhooks.receive("stripe", "evt_1", PAID)
    late = ann.webhooks.claim()
    assert late is not None
    clock.advance("16m")
    taken = bob.webhooks.claim()
    assert taken is not None
    assert (taken.fence, taken.attempts) == (2, 2)
    assert "ann let its lease run out" in (taken.error or "")
    refusals: list[Callable[[], object]] = [
        lambda: ann.webhooks.done(late, "mine"),
        lambda: ann.webhooks.fail(late, "x"),
    ]
    for refused in refusals:
        with pytest.raises(LeaseLost):
            refused()
    bob.webhooks.done(taken, "bob's")
    with pytest.raises(LeaseLost):
        ann.webhooks.done(late, "mine")
    assert ann.webhooks.get(late).result == "bob's"
    assert history(ann, late) == ["received", "claimed", "taken_over", "done"]


def test_a_worker_that_takes_over_from_a_late_holder_fences_it_off(
    ann: standfast.Standfast, bob: standfast.Standfast, clock: ManualClock
) -> None:
    late = {}
    for n in ("1", "2"):
        ann.webhooks.receive("s", n, {})
        late[n] = ann.webhooks.claim(f"s/{n}")
    clock.advance("16m")
    with pytest.raises(LeaseLost, match="held by ann"):
        bob.webhooks.fail("s/1", "an attempt that was not bob's")
    with pytest.raises(LeaseLost, match="held by ann"):
        bob.webhooks.renew("s/1")
    bob.webhooks.done("s/1", "bob's")
    bob.webhooks.retry("s/2")
    with pytest.raises(LeaseLost):
        ann.webhooks.done(late["1"], "mine")
    with pytest.raises(LeaseLost):
        ann.webhooks.fail(late["2"], "mine")
    assert [ann.webhooks.get(f"s/{n}").fence for n in ("1", "2")] == [2, 2]


def test_done_twice_by_the_same_claim_is_accepted_and_by_another_refused(
    ann: standfast.Standfast, bob: standfast.Standfast
) -> None:
    ann.webhooks.receive("s", "1", {})
    held = ann.webhooks.claim("s/1")
    first = ann.webhooks.done(held, "first")
    assert ann.webhooks.done(held, "second") == told(first)
    assert ann.webhooks.done("s/1", "third").result == "first"
    with pytest.raises(IllegalTransition, match="by ann"):
        bob.webhooks.done("s/1", "other")
    with pytest.raises(IllegalTransition):
        bob.webhooks.claim("s/1")


def test_unclaimed_it_may_be_done_but_not_failed(ann: standfast.Standfast) -> None:
    ann.webhooks.receive("s", "1", {})
    with pytest.raises(LeaseLost, match="not held by ann"):
        ann.webhooks.fail("s/1", "why")
    assert ann.webhooks.done("s/1").state == "done"
    with pytest.raises(IllegalTransition):
        ann.webhooks.fail("s/1", "why")


def test_a_failure_waits_twice_as_long_each_time_and_ends_as_a_dead_letter(
    ann: standfast.Standfast, clock: ManualClock
) -> None:
    """A failed event is retried with backoff, then becomes a dead letter."""
    ann.webhooks.receive("s", "1", {}, attempts_max=3)
    for attempt, wait_s in ((1, 30), (2, 60)):
        held = ann.webhooks.claim()
        assert held is not None
        failed = ann.webhooks.fail(held, f"503 #{attempt}")
        assert (failed.attempts, failed.error, failed.holder) == (attempt, f"503 #{attempt}", None)
        assert failed.ready_us == clock.now_us() + wait_s * SECOND_US
        assert ann.webhooks.fail(held, "again") == told(failed), "failed twice with one claim: the first call counts"
        clock.advance(wait_s - 1)
        assert ann.webhooks.claim() is None
        clock.advance(1)
    dead = ann.webhooks.fail(ann.webhooks.claim("s/1"), "503 #3")
    assert (dead.state, dead.ended_us) == ("dead", clock.now_us())
    assert ann.webhooks.claim() is None
    (letter,) = ann.webhooks.dead()
    assert (letter.subject, letter.reason, letter.attempts, letter.kind) == (dead.id, "503 #3", 3, "webhook")
    assert [item.command for item in ann.recovery.report().of("dead_letter")] == [
        f"standfast webhook retry {dead.id[-6:]}"
    ]
    assert ann.webhooks.list(state="dead") == [told(dead)]
    assert ann.webhooks.receive("s", "1", {}).state == "dead", "delivered again it is recorded and stays dead"


def test_backoff_is_bounded() -> None:
    assert [backoff_us(n) // SECOND_US for n in (0, 1, 2, 3, 7, 8, 10_000)] == [30, 30, 60, 120, 1920, 3600, 3600]


def test_a_dead_letter_is_retried_with_all_its_attempts(ann: standfast.Standfast, bob: standfast.Standfast) -> None:
    ann.webhooks.receive("s", "1", {}, attempts_max=1)
    ann.webhooks.fail(ann.webhooks.claim("s/1"), "no")
    with pytest.raises(IllegalTransition, match="webhook retry"):
        ann.webhooks.claim("s/1")
    again = bob.webhooks.retry(ann.webhooks.dead()[0].id, note="the API is back")
    assert (again.state, again.attempts, again.error) == ("received", 0, "no")
    assert ann.webhooks.dead() == []
    (settled,) = ann.webhooks.dead(settled=True)
    assert (settled.settlement, settled.settled_by, settled.note) == ("retried", "bob", "the API is back")
    assert ann.webhooks.done(ann.webhooks.claim("s/1"), "ok").state == "done"
    with pytest.raises(IllegalTransition):
        ann.webhooks.retry("s/1")
    assert history(ann, "s/1") == ["received", "claimed", "died", "retried", "claimed", "done"]


def test_a_dead_letter_is_resolved_with_a_name_and_a_note(ann: standfast.Standfast) -> None:
    ann.webhooks.receive("s", "1", {})
    with pytest.raises(IllegalTransition, match="only a dead one"):
        ann.webhooks.resolve("s/1", note="by hand")
    ann.webhooks.fail(ann.webhooks.claim("s/1"), "unknown customer", dead=True)
    with pytest.raises(InvalidInput, match="needs --note"):
        ann.webhooks.resolve("s/1", note="  ")
    resolved = ann.webhooks.resolve("s/1", note="refunded by hand", result={"refund": 1})
    assert (resolved.state, resolved.result) == ("done", {"refund": 1})
    assert ann.webhooks.receive("s", "1", {}).result == {"refund": 1}
    shown = ann.webhooks.show("s/1")
    assert shown.letter is not None
    assert (shown.letter.settlement, shown.letter.note) == ("resolved", "refunded by hand")


def test_retry_ends_the_wait_of_an_event_that_is_not_dead_or_held(
    ann: standfast.Standfast, bob: standfast.Standfast
) -> None:
    ann.webhooks.receive("s", "1", {})
    ann.webhooks.fail(ann.webhooks.claim("s/1"), "no", again="1d")
    assert ann.webhooks.claim() is None
    assert ann.webhooks.retry("s/1").attempts == 1
    assert ann.webhooks.claim() is not None
    with pytest.raises(InProgress):
        bob.webhooks.retry("s/1")


def test_the_event_that_waited_longest_comes_first_by_source_and_kind(
    ann: standfast.Standfast, clock: ManualClock
) -> None:
    for n, (source, kind) in enumerate([("a", "x"), ("b", "x"), ("a", "y"), ("b", "y")]):
        ann.webhooks.receive(source, str(n), {}, kind=kind)
        clock.advance(1)
    names = [one.name for one in (ann.webhooks.claim(source="b"), ann.webhooks.claim(kind="y")) if one]
    assert names == ["b/1", "a/2"]
    assert [one.name for one in (ann.webhooks.claim(), ann.webhooks.claim()) if one] == ["a/0", "b/3"]
    assert ann.webhooks.claim() is None
    assert [one.name for one in ann.webhooks.list(state="received", source="a")] == ["a/2", "a/0"]
    assert [one.name for one in ann.webhooks.list(kind="x", limit=1)] == ["b/1"]
    assert ann.webhooks.list(state="done") == []


def test_an_actor_keeps_what_it_claimed_by_its_next_commands(ann: standfast.Standfast, clock: ManualClock) -> None:
    from standfast.core.leases import renew_actor_leases

    ann.webhooks.receive("s", "1", {})
    held = ann.webhooks.claim("s/1")
    clock.advance("14m")
    renew_actor_leases(ann._store)
    clock.advance("14m")
    assert ann.webhooks.get(held).standing == "live"
    assert ann.webhooks.claim(held.id).fence == held.fence, "asked again it keeps its fence"
    renewed = ann.webhooks.renew(held, for_="1h")
    assert renewed.lease_until_us == clock.now_us() + HOUR_US


def test_a_dead_process_loses_its_event_at_once_and_the_attempt_is_counted(
    sf: standfast.Standfast, engine_url: str, tmp_path: Path
) -> None:
    """The attempt counts, so that an event which kills its handler is not retried forever."""
    sf.webhooks.receive("s", "1", {}, attempts_max=2)
    for attempt in (1, 2):
        code = "event = sf.webhooks.claim()\nsay(event.attempts)\nwait()"
        with Other(engine_url, tmp_path / "data", code) as other:
            other.hear(str(attempt))
            other.kill()
    assert sf.webhooks.claim() is None
    (letter,) = sf.webhooks.dead()
    assert (letter.attempts, "died before it was done" in letter.reason) == (2, True)
    assert history(sf, "s/1") == ["received", "claimed", "taken_over", "died"]


def test_the_named_one_whose_last_handler_died_is_given_up_too(
    sf: standfast.Standfast, engine_url: str, tmp_path: Path
) -> None:
    sf.webhooks.receive("s", "1", {}, attempts_max=1)
    with Other(engine_url, tmp_path / "data", "sf.webhooks.claim()\nsay('held')\nwait()") as other:
        other.hear("held")
        with pytest.raises(InProgress):
            sf.webhooks.claim("s/1")
        other.kill()
    with pytest.raises(IllegalTransition, match="is dead"):
        sf.webhooks.claim("s/1")
    assert len(sf.webhooks.dead()) == 1


def deliver_and_handle(url: str, data: str, number: int, log: str) -> None:
    """In a child process: deliver all events in a random order and handle ready ones. Some processes die in the
    handler.
    """
    chance = random.Random(number)

    def handler(event: WebhookEvent) -> int:
        with open(log, "a") as file:
            file.write(f"{event.event_id} {event.fence}\n")
        if event.fence == 1 and int(event.event_id) % 5 == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return event.fence

    with standfast.open(url, data_dir=data) as sf:
        for n in chance.sample(range(20), 20):
            sf.webhooks.receive("s", str(n), {"n": n})
            sf.webhooks.handle("s", handler, limit=2)


def test_delivered_and_handled_by_several_processes_some_killed_each_is_done_once(
    engine_url: str, tmp_path: Path
) -> None:
    data, log = str(tmp_path / "data"), tmp_path / "log"
    log.touch()
    with Nursery() as nursery:
        asked: dict[str, object] = {"url": engine_url, "data": data, "log": str(log)}
        pids = nursery.race(
            "tests.features.test_webhooks:deliver_and_handle", [asked | {"number": n} for n in range(4)]
        )
        codes = [nursery.wait(pid, 120) for pid in pids]
    assert set(codes) <= {0, -9}
    with standfast.open(engine_url, data_dir=data) as sf:
        deliver_and_handle(engine_url, data, 99, str(log))
        sf.webhooks.handle("s", lambda event: event.fence)
        events = sf.webhooks.list(limit=1000)
        assert sorted(int(event.event_id) for event in events) == list(range(20))
        handled = Counter(line.split()[0] for line in log.read_text().splitlines())
        for event in events:
            assert (event.state, event.result) == ("done", event.fence), "by its last holder"
            assert history(sf, event).count("done") == 1
            assert handled[event.event_id] <= event.attempts
            assert event.deliveries == 1 + history(sf, event).count("redelivered")


# -- handlers in Python ----------------------------------------------------------------------------------


def test_handle_calls_for_each_that_is_ready_and_records_how_it_ended(sf: standfast.Standfast) -> None:
    for n in range(5):
        sf.webhooks.receive("s", str(n), {"n": n}, attempts_max=1 if n == 3 else 8)
    sf.webhooks.receive("other", "1", {})
    seen: list[int] = []

    def handler(event: WebhookEvent) -> dict[str, int]:
        seen.append(event.payload["n"])
        if event.payload["n"] in (1, 3):
            raise ValueError(f"cannot do {event.payload['n']}")
        return {"did": event.payload["n"]}

    assert sf.webhooks.handle("s", handler) == Handled(done=3, failed=1, dead=1, lost=0)
    assert seen == [0, 1, 2, 3, 4]
    assert sf.webhooks.get("s/4").result == {"did": 4}
    assert sf.webhooks.get("s/1").error == "ValueError: cannot do 1"
    assert sf.webhooks.handle("s", handler) == Handled(0, 0, 0, 0)
    assert sf.webhooks.get("other/1").state == "received"


def test_a_result_that_cannot_be_stored_is_a_failure_of_the_handler(sf: standfast.Standfast) -> None:
    sf.webhooks.receive("s", "1", {})
    assert sf.webhooks.handle("s", lambda event: object()).failed == 1
    event = sf.webhooks.get("s/1")
    assert (event.holder, "is not a value" in (event.error or "")) == (None, True)


def test_ctrl_c_in_a_handler_releases_the_event_and_is_raised_again(sf: standfast.Standfast) -> None:
    sf.webhooks.receive("s", "1", {})

    def handler(event: WebhookEvent) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sf.webhooks.handle("s", handler)
    assert (sf.webhooks.get("s/1").holder, sf.webhooks.get("s/1").attempts) == (None, 1)


def test_a_handler_that_lost_its_event_records_nothing(
    sf: standfast.Standfast, engine_url: str, tmp_path: Path
) -> None:
    sf.webhooks.receive("s", "1", {})

    def handler(event: WebhookEvent) -> str:
        code = """
            from standfast.db.sql import statement
            over = statement("UPDATE webhook_event SET lease_until_us = 0, lease_mono_us = 0")
            sf._store.write(lambda tx: tx.run(over))
            sf.webhooks.done(sf.webhooks.claim("s/1"), "theirs")
            say("done")
            """
        with Other(engine_url, tmp_path / "data", code) as other:
            other.hear("done")
        return "mine"

    assert sf.webhooks.handle("s", handler) == Handled(0, 0, 0, lost=1)
    assert sf.webhooks.get("s/1").result == "theirs"


def test_received_with_a_function_it_is_handled_at_once_and_once(sf: standfast.Standfast) -> None:
    """000-20: a second delivery returns the first result."""
    calls: list[str] = []

    @dataclass
    class Order:
        number: int

    def handler(event: WebhookEvent) -> Order:
        calls.append(event.event_id)
        return Order(7)

    first = sf.webhooks.receive("s", "1", PAID, do=handler)
    again = sf.webhooks.receive("s", "1", PAID, do=handler)
    assert (first.fresh, first.result, again.fresh, again.result) == (True, {"number": 7}, False, {"number": 7})
    assert calls == ["1"]


def test_an_exception_of_the_handler_is_raised_and_the_next_delivery_tries_again(sf: standfast.Standfast) -> None:
    answers = iter([ConnectionError("down"), ConnectionError("down")])

    def handler(event: WebhookEvent) -> str:
        raise next(answers)

    for note in ("it will be tried again", "it is a dead letter now"):
        with pytest.raises(ConnectionError) as caught:
            sf.webhooks.receive("s", "1", PAID, attempts_max=2, do=handler)
        assert note in caught.value.__notes__[0]
    with pytest.raises(IllegalTransition, match="is dead"):
        sf.webhooks.receive("s", "1", PAID, do=handler)
    sf.webhooks.retry("s/1")
    assert sf.webhooks.receive("s", "1", PAID, do=lambda event: "ok").result == "ok"


def test_two_deliveries_at_once_are_handled_by_one(sf: standfast.Standfast, engine_url: str, tmp_path: Path) -> None:
    def handler(event: WebhookEvent) -> str:
        with Other(
            engine_url,
            tmp_path / "data",
            """
            try:
                sf.webhooks.receive("s", "1", {}, do=lambda event: "theirs")
            except standfast.InProgress as error:
                say(error.code)
            """,
        ) as other:
            other.hear("in_progress")
        return "mine"

    assert sf.webhooks.receive("s", "1", {}, do=handler).result == "mine"
    assert sf.webhooks.get("s/1").deliveries == 2


def test_the_result_and_its_writes_are_one_transaction(sf: standfast.Standfast) -> None:
    sf.webhooks.receive("stripe", "evt_1", PAID)
    held = sf.webhooks.claim()
    assert held is not None

    def half() -> None:
        with sf.transaction() as tx:
            tx.credits.grant("ada", 1200, key="topup:evt_1")
            tx.webhooks.done(held, "granted")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        half()
    assert (sf.webhooks.get(held).state, sf.credits.balance("ada").balance) == ("received", 0)
    with sf.transaction() as tx:
        tx.credits.grant("ada", 1200, key="topup:evt_1")
        tx.webhooks.done(held, "granted")
    assert (sf.webhooks.get(held).state, sf.credits.balance("ada").balance) == ("done", 1200)


def test_foreign_code_is_refused_inside_a_transaction(sf: standfast.Standfast) -> None:
    with sf.transaction() as tx:
        with pytest.raises(InvalidInput, match="inside a transaction"):
            tx.webhooks.handle("s", lambda event: None)
        with pytest.raises(InvalidInput, match="inside a transaction"):
            tx.webhooks.receive("s", "1", {}, do=lambda event: None)
        assert tx.webhooks.receive("s", "1", {}).fresh
        assert tx.webhooks.claim("s/1").attempts == 1


def test_awaited_the_names_are_the_same_and_a_handler_may_be_async(engine_url: str, tmp_path: Path) -> None:
    async def handler(event: WebhookEvent) -> str:
        await asyncio.sleep(0)
        return event.event_id

    async def main() -> None:
        async with standfast.aopen(engine_url, data_dir=tmp_path / "data") as sf:
            assert (await sf.webhooks.receive("s", "1", {}, do=handler)).result == "1"
            await sf.webhooks.receive("s", "2", {})
            assert (await sf.webhooks.handle("s", handler)).done == 1
            held = await sf.webhooks.receive("s", "3", {})
            held = await sf.webhooks.claim(held.id)
            assert (await sf.webhooks.fail(held, "no", dead=True)).state == "dead"
            assert [letter.reason for letter in await sf.webhooks.dead()] == ["no"]
            assert len(await sf.webhooks.list()) == 3

    asyncio.run(main())


def test_an_async_handler_without_a_loop_is_refused_before_an_attempt_is_spent(sf: standfast.Standfast) -> None:
    async def handler(event: WebhookEvent) -> None: ...

    sf.webhooks.receive("s", "1", {})
    for refused in (
        lambda: sf.webhooks.handle("s", handler),
        lambda: sf.webhooks.receive("s", "1", {}, do=handler),
    ):
        with pytest.raises(InvalidInput, match="is async"):
            refused()
    assert sf.webhooks.get("s/1").attempts == 0


def test_a_dead_letter_starts_the_notify_command_once(engine_url: str, tmp_path: Path) -> None:
    """Every dead letter starts `notify` once."""
    inbox = Inbox(tmp_path / "inbox")
    (tmp_path / "data").mkdir(mode=0o700)
    (tmp_path / "data" / "config.toml").write_text(f"notify = {json.dumps(inbox.command)}\n")
    with standfast.open(engine_url, data_dir=tmp_path / "data") as sf:
        sf.webhooks.receive("s", "1", {}, attempts_max=1)
        dead = sf.webhooks.fail(sf.webhooks.claim("s/1"), "boom")
        (notice,) = inbox.wait()
        assert notice["stdin"] == {
            "event": "webhook.dead",
            "subject": dead.id,
            "summary": f"webhook {dead.id[-6:]} was given up after 1 attempt: boom",
            "hint": f"standfast webhook show {dead.id[-6:]}",
        }


# -- lists and clean-up --------------------------------------------------------------------------------


def test_an_event_is_found_by_any_name_it_has(sf: standfast.Standfast) -> None:
    event = told(sf.webhooks.receive("github/acme", "push/7", {}))
    for name in (event.id, event.id[-6:], f"WHK_{event.id[-8:].upper()}", "github/acme/push/7", event):
        assert sf.webhooks.get(name) == event
    for name in ("", "nope", "github/acme", "whk_" + "0" * 26, "ddl_" + "0" * 26, "/", "a" * 10_000, "\0"):
        with pytest.raises(NotFound, match="webhook list"):
            sf.webhooks.get(name)
    with pytest.raises(InvalidInput):
        sf.webhooks.get(7)  # type: ignore[arg-type]


def test_each_page_of_events_begins_after_the_last_one(sf: standfast.Standfast) -> None:
    ids = [sf.webhooks.receive("s", str(n), {}).id for n in range(5)]
    for state in (None, "received"):
        first = sf.webhooks.list(state=state, limit=3)
        rest = sf.webhooks.list(state=state, limit=3, after=first[-1].id)
        assert [one.id for one in first + rest] == ids[::-1]
    with pytest.raises(InvalidInput, match="the state of a webhook event is one of"):
        sf.webhooks.list(state="open")


def test_no_reason_keeps_an_event_from_failing(sf: standfast.Standfast) -> None:
    for n, reason in enumerate(("", "x" * 100_000, "a\0b\x1b[2J\ud800", "line\nline")):
        sf.webhooks.receive("s", str(n), {}, attempts_max=2)
        assert sf.webhooks.fail(sf.webhooks.claim(f"s/{n}"), reason).error
        assert sf.webhooks.fail(sf.webhooks.claim(f"s/{n}"), reason).state == "dead"


def test_times_and_reasons_that_make_no_sense_are_refused(sf: standfast.Standfast) -> None:
    sf.webhooks.receive("s", "1", {})
    held = sf.webhooks.claim("s/1")
    for again in (-1, "31d"):
        with pytest.raises(InvalidInput):
            sf.webhooks.fail(held, "x", again=again)
    with pytest.raises(InvalidInput):
        sf.webhooks.fail(held, None)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput):
        sf.webhooks.renew(held, for_=-60)
    with pytest.raises(InvalidInput):
        sf.webhooks.done(held, float("inf"))
    assert sf.webhooks.get(held).standing == "live"
