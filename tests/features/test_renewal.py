"""Renewal: one thread per process renews all leases of the process. The first lease starts the thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import standfast
from standfast.clock import SECOND_US, ManualClock
from standfast.core import leases
from standfast_prove.faults.daemons import until
from tests.holds import HOLDS
from tests.walks import Names, opened

Held = Callable[[standfast.Standfast, ExitStack], object]


def by_claim(kind: str) -> Held:
    def hold(sf: standfast.Standfast, stack: ExitStack) -> None:
        HOLDS[kind].take(sf, HOLDS[kind].make(sf))

    return hold


def claim_next_mail(sf: standfast.Standfast, stack: ExitStack) -> None:
    sf.mail.send("reviewer", 1)
    assert sf.mail.claim("reviewer") is not None


def claim_in_a_transaction(sf: standfast.Standfast, stack: ExitStack) -> None:
    id = HOLDS["task"].make(sf)
    with sf.transaction() as tx:
        tx.tasks.claim(id)


def kept_session(sf: standfast.Standfast, stack: ExitStack) -> None:
    sf.sessions.open("fix-42")
    sf.sessions.keep()


def effect_by_hand(sf: standfast.Standfast, stack: ExitStack) -> None:
    sf.effects.begin("mail.send", {"to": "ann"}, key="k")


def adopted_run(sf: standfast.Standfast, stack: ExitStack) -> None:
    HOLDS["run"].take(sf, id := HOLDS["run"].make(sf))
    leases.renewer(sf._store).stop()
    sf._store.companions.clear()  # as in a process that has taken no lease yet
    sf.runs.adopt(id, 1)


HELD: dict[str, tuple[str, Held]] = {
    "session": ("session", lambda sf, stack: stack.enter_context(sf.session("fix-42"))),
    "session kept": ("session", kept_session),
    "lock": ("lease", lambda sf, stack: stack.enter_context(sf.leases.hold("deploy"))),
    "task": ("task", by_claim("task")),
    "task in a transaction": ("task", claim_in_a_transaction),
    "mail read": ("mail", by_claim("mail")),
    "mail claimed": ("mail", claim_next_mail),
    "run": ("run", by_claim("run")),
    "run adopted": ("run", adopted_run),
    "webhook": ("webhook_event", by_claim("webhook")),
    "effect": ("effect", effect_by_hand),
}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def worker(engine_url: str, tmp_path: Path, clock: ManualClock) -> Iterator[standfast.Standfast]:
    with opened(engine_url, tmp_path, Names(), clock=clock, as_actor=False) as sf:
        yield sf


@pytest.mark.parametrize("kind", HELD)
def test_what_a_process_holds_is_renewed_by_the_thread_for_three_terms_of_work(
    worker: standfast.Standfast, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """001-63: taking this one hold starts the thread, which renews it more often than once per term."""
    monkeypatch.setattr(leases, "RENEW_EVERY_S", 0.005)
    table, hold = HELD[kind]

    def left_us() -> int:
        row = next(worker.rows(f"SELECT lease_until_us AS until_us FROM {table} WHERE holder IS NOT NULL"), None)
        assert row is not None, "it has no holder"
        return int(row["until_us"]) - clock.now_us()

    with ExitStack() as stack:
        hold(worker, stack)
        assert left_us() == leases.PROCESS_US
        for _ in range(5):
            clock.advance(40)  # of the 60 seconds of a lease
            until(lambda: left_us() == leases.PROCESS_US, patience_s=20)
        assert leases.renewer(worker._store).trusted


def test_a_thread_that_cannot_renew_reports_it_before_the_lease_ends(
    worker: standfast.Standfast, clock: ManualClock
) -> None:
    """001-63: 5 s before its leases end by its own clock, the process reports that other processes may take them."""
    with worker.leases.hold("deploy"):
        renewer = leases.renewer(worker._store)
        clock.advance((leases.PROCESS_US - leases.MARGIN_US) // SECOND_US - 1)
        assert renewer.trusted
        clock.advance(1)
        assert not renewer.trusted
        renewer.renew()
        assert renewer.trusted


def test_the_renewal_of_one_process_leaves_the_leases_of_others_as_they_are(
    worker: standfast.Standfast, engine_url: str, tmp_path: Path, clock: ManualClock
) -> None:
    """001-63: otherwise a process would renew the leases of a suspended process, and no other process could take
    them over.
    """
    with opened(engine_url, tmp_path, Names(actor="bob"), clock=clock) as bob:
        bob.leases.acquire("bob's", for_="1m")
        bob.tasks.claim(bob.tasks.add("bob's").id, for_="1m")
        worker.leases.acquire("mine")
        clock.advance(30)
        leases.renewer(worker._store).renew()
        clock.advance(30)
        assert [(one.name, one.standing) for one in worker.leases.list()] == [("bob's", "over"), ("mine", "live")]
        assert worker.tasks.claim(source="") is not None


@pytest.mark.parametrize("kind", [kind for kind, hold in HOLDS.items() if "renew" in hold.ends])
def test_a_hold_renewed_by_hand_lasts_from_then_on(
    engine_url: str, tmp_path: Path, clock: ManualClock, kind: str
) -> None:
    """001-63: the renewed hold lasts past its old end, and ends at its new end."""
    hold = HOLDS[kind]
    with (
        opened(engine_url, tmp_path, Names(actor="ann"), clock=clock) as ann,
        opened(engine_url, tmp_path, Names(actor="bob"), clock=clock) as bob,
    ):
        held = hold.take(ann, id := hold.make(ann))
        clock.advance("10m")
        hold.ends["renew"](ann, held)
        clock.advance("14m")  # 14 of 15 minutes since the renewal, 24 since it was taken
        with pytest.raises(standfast.InProgress):
            hold.take(bob, id)
        clock.advance("2m")
        assert hold.take(bob, id) is not None
