"""Notices: each event that needs a person starts the notify command once, whichever method finds the event.

test_notify.py tests the command itself. These tests call each method that can find such an event, and read the file
that the command writes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import standfast
from standfast.clock import ManualClock
from standfast_prove.faults.daemons import until
from tests.walks import Names, opened

Meet = Callable[[standfast.Standfast, ManualClock], str]
"""Let the event happen; the id that the notice must name."""

LEAVE_A_FILE = 'cat >"$0/$$.part" && mv "$0/$$.part" "$0/$$.json"'


def approval_of_an_effect(sf: standfast.Standfast, clock: ManualClock) -> str:
    with sf.session("fix-42") as s:
        with pytest.raises(standfast.ApprovalRequired) as caught:
            s.effect("deploy", {"to": "production"}, do=lambda call: 1, approve=True)
        s.pause("waits for a yes")
    return caught.value.approval_id


def approval_of_begin(sf: standfast.Standfast, clock: ManualClock) -> str:
    with pytest.raises(standfast.ApprovalRequired) as caught:
        sf.effects.begin("deploy", {"to": "production"}, key="k", approve=True)
    return caught.value.approval_id


def approval_by_request(sf: standfast.Standfast, clock: ManualClock) -> str:
    return sf.approvals.request(sf.effects.plan("deploy", {"to": "production"}, key="k").id).id


def effect_that_fails(sf: standfast.Standfast, clock: ManualClock) -> str:
    def fails(call: object) -> None:
        raise OSError("connection reset")

    with sf.session("fix-42") as s, pytest.raises(OSError, match="reset"):
        s.effect("mail.send", {"to": "ann"}, do=fails, key="k")
    return sf.effects.get("k").id


def effect_left_in_doubt(sf: standfast.Standfast, clock: ManualClock) -> str:
    """The first caller never returns. The second one finds the effect in doubt."""
    effect = sf.effects.begin("mail.send", {"to": "ann"}, key="k", holder="a:bob")
    clock.advance("2h")
    for _ in range(2):  # the second session finds a known doubt, which needs no notice
        with sf.session("fix-42") as s, pytest.raises(standfast.EffectInDoubt):
            s.effect("mail.send", {"to": "ann"}, do=lambda call: 1, key="k")
    return effect.id


def mail_refused(sf: standfast.Standfast, clock: ManualClock) -> str:
    id = sf.mail.send("reviewer", 1).id
    held = sf.mail.claim("reviewer")
    assert held is not None
    sf.mail.refuse(held, "not mine")
    return id


def mail_without_attempts_left(sf: standfast.Standfast, clock: ManualClock) -> str:
    id = sf.mail.send("reviewer", 1, attempts_max=1).id
    sf.mail.claim("reviewer")
    clock.advance("1h")
    assert sf.mail.claim("reviewer") is None
    return id


def mail_swept(sf: standfast.Standfast, clock: ManualClock) -> str:
    id = sf.mail.send("reviewer", 1, attempts_max=1).id
    sf.mail.claim("reviewer")
    clock.advance("1h")
    sf.mail.sweep()
    return id


def webhook_given_up(sf: standfast.Standfast, clock: ManualClock) -> str:
    id = sf.webhooks.receive("stripe", "evt-1", {}).id
    sf.webhooks.fail(sf.webhooks.claim(id), "bad payload", dead=True)
    return id


def webhook_without_attempts_left(sf: standfast.Standfast, clock: ManualClock) -> str:
    id = sf.webhooks.receive("stripe", "evt-1", {}, attempts_max=1).id
    sf.webhooks.claim(id)
    clock.advance("1h")
    assert sf.webhooks.claim() is None
    return id


def webhook_without_attempts_left_by_name(sf: standfast.Standfast, clock: ManualClock) -> str:
    id = sf.webhooks.receive("stripe", "evt-1", {}, attempts_max=1).id
    sf.webhooks.claim(id)
    clock.advance("1h")
    with pytest.raises(standfast.IllegalTransition):
        sf.webhooks.claim(id)
    return id


def run_missed(sf: standfast.Standfast, clock: ManualClock) -> str:
    loop = sf.loops.add("nightly", ["true"], every="1h", catch_up="none", cwd="/")
    clock.advance("3h")
    sf.loops.fire_due()
    return loop.id


def loop_paused(sf: standfast.Standfast, clock: ManualClock) -> str:
    loop = sf.loops.add("nightly", ["true"], every="1h", failures_max=1, cwd="/")
    run = sf.runs.ask("nightly")
    sf.runs.claim(host="here", run_id=run.id)
    sf.runs.finish(run.id, 1, exit_code=1, duration="1us")
    return loop.id


EVENTS: dict[str, list[Meet]] = {
    "approval.requested": [approval_of_an_effect, approval_of_begin, approval_by_request],
    "effect.in_doubt": [effect_that_fails, effect_left_in_doubt],
    "mail.dead": [mail_refused, mail_without_attempts_left, mail_swept],
    "webhook.dead": [webhook_given_up, webhook_without_attempts_left, webhook_without_attempts_left_by_name],
    "run.missed": [run_missed],
    "loop.paused": [loop_paused],
}
MEETINGS = [(event, meet) for event, ways in EVENTS.items() for meet in ways]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def left(tmp_path: Path) -> Path:
    (tmp_path / "left").mkdir()
    return tmp_path / "left"


@pytest.fixture
def sf(engine_url: str, tmp_path: Path, left: Path, clock: ManualClock) -> Iterator[standfast.Standfast]:
    (tmp_path / "data").mkdir(mode=0o700)
    command = ["/bin/sh", "-c", LEAVE_A_FILE, str(left)]
    (tmp_path / "data" / "config.toml").write_text(f"notify = {json.dumps(command)}\n")
    with opened(engine_url, tmp_path, Names(), clock=clock) as store:
        yield store


@pytest.mark.parametrize(("event", "meet"), MEETINGS, ids=[meet.__name__ for _, meet in MEETINGS])
def test_each_event_that_needs_a_person_starts_notify_once(
    sf: standfast.Standfast, clock: ManualClock, left: Path, event: str, meet: Meet
) -> None:
    """002-9: the notice has the event, its subject, and the command that settles it."""
    subject = meet(sf, clock)
    until(lambda: list(left.glob("*.json")), patience_s=30)
    (told,) = [json.loads(path.read_text()) for path in left.glob("*.json")]
    assert (told["event"], told["subject"]) == (event, subject)
    assert told["summary"]
    assert told["hint"].startswith("standfast ")
