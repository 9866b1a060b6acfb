"""The gap of a restored store: standfast does not resend an effect that may have been sent in the gap."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import standfast
from standfast import Applied, EffectInDoubt, NotApplied
from standfast.admin import restore_gap
from standfast.admin.restore_gap import Epochs
from standfast.clock import HOUR_US
from standfast.core.gap import Gap
from standfast.db.sql import statement
from standfast.db.store_memory import replaced

Reopen = Callable[..., standfast.Standfast]


class Outside:
    """The outside system. It remembers all requests, also after the store is restored from a copy."""

    def __init__(self) -> None:
        self.got: list[str] = []

    def send(self, name: str) -> Callable[[Any], str]:
        def do(call: Any) -> str:
            self.got.append(name)
            return name

        return do

    def probe(self, name: str) -> Callable[[Any], Any]:
        return lambda call: Applied(name) if name in self.got else NotApplied()


@pytest.fixture
def outside() -> Outside:
    return Outside()


@pytest.fixture
def reopen(engine_url: str, tmp_path: Path) -> Reopen:
    return lambda: standfast.open(engine_url, data_dir=tmp_path / "data")


def put_back(sf: standfast.Standfast, *, carried: bool = False, seen: int = 5000, ago_us: int = HOUR_US) -> Gap:
    """Open a gap as a restore does. The handle still has the old epoch."""
    store, engine = sf._store, sf.engine
    salt = restore_gap.salt()

    def body(tx: Any) -> Gap:
        gap = restore_gap.of_store(tx, "cpy_1", seen)._replace(from_us=tx.now_us() - ago_us, carried=carried)
        assert restore_gap.open_gap(tx, gap, Epochs(engine.epoch, engine.epoch + 1), salt)
        assert not restore_gap.open_gap(tx, gap, Epochs(engine.epoch, engine.epoch + 1), salt)
        return gap

    gap = store.write(body)
    engine.dead = replaced("here", store.pin, (store.pin[0], engine.epoch + 1))
    return gap


def test_an_effect_that_the_store_does_not_know_is_in_doubt(
    sf: standfast.Standfast, reopen: Reopen, outside: Outside
) -> None:
    """003-42: the effect is replayed, found by its probe, or in doubt. A doubt stops the session."""
    with sf.session("pay") as s:
        s.effect("charge", {"n": 1}, do=outside.send("one"))
    put_back(sf)
    with reopen() as again:
        with again.session("pay") as s:
            assert s.effect("charge", {"n": 1}, do=outside.send("one")) == "one"  # the call is replayed
            with pytest.raises(EffectInDoubt, match="may have been sent between") as caught:
                s.effect("charge", {"n": 2}, do=outside.send("two"))
            assert "a person runs: standfast restore finish" in caught.value.hint
            with pytest.raises(EffectInDoubt):
                s.effect("other", {}, do=outside.send("other"))
        assert outside.got == ["one"]
        found = restore_gap.look(again._store)
        assert [effect.tool for effect in found.effects] == ["charge"]
        again.effects.resolve(found.effects[0].id, "applied", result="two", evidence="seen there")
        with again.session("pay") as s:
            assert s.effect("charge", {"n": 2}, do=outside.send("two")) == "two"
        restore_gap.nothing_was_sent(again._store)
        with again.session("pay") as s:
            assert s.effect("charge", {"n": 3}, do=outside.send("three")) == "three"
        with pytest.raises(standfast.Conflict, match="no gap is open"):
            restore_gap.nothing_was_sent(again._store)
    assert outside.got == ["one", "three"]


def test_a_probe_decides_in_the_gap(sf: standfast.Standfast, reopen: Reopen, outside: Outside) -> None:
    """003-42: the probe of a known action runs before anything is sent."""
    with sf.session("pay"):
        pass
    put_back(sf)
    outside.got.append("sent in the gap")
    with reopen() as again, again.session("pay") as s:
        for name in ("sent in the gap", "not sent"):
            do, probe = outside.send(name), outside.probe(name)
            assert s.effect("charge", {"n": name}, do=do, probe=probe, settle=0) == name
    assert outside.got == ["sent in the gap", "not sent"]


def test_closing_the_gap_settles_effects_that_are_in_doubt_only_because_of_it(
    sf: standfast.Standfast, reopen: Reopen, outside: Outside
) -> None:
    put_back(sf)
    with reopen() as again:
        with again.session("pay") as s, pytest.raises(EffectInDoubt):
            s.effect("charge", {}, do=outside.send("one"))
        restore_gap.nothing_was_sent(again._store)
        assert again.effects.in_doubt() == []
        with again.session("pay") as s:
            assert s.effect("charge", {}, do=outside.send("one")) == "one"
    assert outside.got == ["one"]


@pytest.mark.parametrize("known", [True, False])
def test_the_same_key_is_sent_again_only_if_it_is_the_same(
    sf: standfast.Standfast, reopen: Reopen, outside: Outside, known: bool
) -> None:
    """A lost session gets another id. Its effects then get other keys, which the remote does not know."""
    if known:
        with sf.session("pay"):
            pass
    put_back(sf, ago_us=0 if known else HOUR_US)
    with reopen() as again, again.session("pay") as s:
        if known:
            assert s.effect("charge", {}, do=outside.send("one"), idempotent=True) == "one"
        else:
            with pytest.raises(EffectInDoubt):
                s.effect("charge", {}, do=outside.send("one"), idempotent=True)
            s.proceed()
            assert s.effect("mine", {}, do=outside.send("two"), key="k", idempotent=timedelta(hours=2)) == "two"
            with pytest.raises(EffectInDoubt):  # the first request may be older than the remote's memory of keys
                s.effect("old", {}, do=outside.send("two"), key="l", idempotent=timedelta(minutes=59))


def test_a_probe_by_the_key_of_a_lost_session_answers_unknown(
    sf: standfast.Standfast, reopen: Reopen, outside: Outside
) -> None:
    put_back(sf)
    with reopen() as again, again.session("pay") as s, pytest.raises(EffectInDoubt, match="search by the intent"):
        s.effect("charge", {}, do=outside.send("one"), probe=lambda call: NotApplied(call.key), settle=0)
    assert outside.got == []


def test_what_was_planned_or_had_failed_may_have_been_sent(
    sf: standfast.Standfast, reopen: Reopen, outside: Outside
) -> None:
    """The copy says planned or failed, but the lost rows may contain a later attempt."""
    planned = sf.effects.begin("deploy", {}, key="d", plan=True)
    failed = sf.effects.begin("push", {}, key="p")
    sf.effects.fail(failed.id, "refused")
    put_back(sf, ago_us=0)
    with reopen() as again:
        for which in (planned, failed):
            with pytest.raises(EffectInDoubt):
                again.effects.dispatch(which.id)
        again.effects.resolve(failed.id, "not_applied", evidence="not there")
        assert again.effects.dispatch(failed.id).attempt == 3
        planned = again.effects.begin("late", {}, key="l", plan=True)
        with pytest.raises(EffectInDoubt):
            again.effects.dispatch(planned.id)


def test_leases_end_loops_pause_and_their_slots_are_one_row(sf: standfast.Standfast, reopen: Reopen) -> None:
    """000-37: slots in the gap are abandoned and never caught up. No sequence number is used twice."""
    sf.loops.add("nightly", ["true"], every="1h", catch_up="all")
    ago = {"us": sf._store.caller.clock.now_us() - 6 * HOUR_US}
    sf._store.write(
        lambda tx: tx.run(statement("UPDATE loop SET next_slot_us = :us, anchor_us = :us - 3600000000"), **ago)
    )
    sf.tasks.add("one")
    claimed = sf.tasks.claim()
    assert claimed is not None
    put_back(sf, seen=7000)
    with reopen() as again:
        assert again.tasks.get(claimed.id).standing != "held"
        assert again.tasks.add("two").receipt.seq > 7001
        loop = again.loops.get("nightly")
        assert (loop.state, "restored from cpy_1" in (loop.reason or "")) == ("paused", True)
        again.loops.resume("nightly")
        runs = [(run.state, run.slots) for run in again.runs.list("nightly")]
        assert runs == [("abandoned", 7)]
        assert again.engine.epoch == 2
        assert again.journal.check().findings == []
        assert [event.type for event in again.journal.about("cpy_1")] == ["store.restored"]


def test_credits_and_webhooks_wait_unless_the_ledger_was_carried_over(sf: standfast.Standfast, reopen: Reopen) -> None:
    """003-42: credits and webhooks that may have changed in the gap are refused until the gap is closed."""
    sf.webhooks.receive("stripe", "evt_0", {})
    put_back(sf)
    with reopen() as again:
        event = again.webhooks.receive("stripe", "evt_1", {})
        for refused in (lambda: again.credits.grant("ann", 5, key="t"), lambda: again.webhooks.claim(event.id)):
            with pytest.raises(standfast.Conflict) as caught:
                refused()
            assert caught.value.code == "gap_open"
        assert again.webhooks.claim() is None
        put_back(again, carried=True)
    with reopen() as open_still:
        assert open_still.webhooks.claim() is None  # the ledger was not carried over the first gap
        restore_gap.nothing_was_sent(open_still._store)
        put_back(open_still, carried=True)
    with reopen() as last:
        assert last.webhooks.claim() is not None
        assert last.credits.grant("ann", 5, key="t").fresh
