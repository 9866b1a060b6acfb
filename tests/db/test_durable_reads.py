"""Reads that callers act on: a row younger than 1 s is on disk before a caller gets it.

Another process makes a commit visible shortly before its sync ends. The reader cannot know this, so it syncs
itself. The tests count the calls of os.fdatasync in each method whose result callers act on.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import standfast
from standfast.clock import ManualClock
from tests.walks import Names, granted, opened

Read = Callable[[], Any]
Prepare = Callable[[standfast.Standfast], Read]


def asked(sf: standfast.Standfast) -> str:
    planned = sf.effects.plan("shop.refund", {"order": 7}, key="k", approve=True)
    return sf.approvals.request(planned.id).id


def answered_approval(sf: standfast.Standfast) -> Read:
    granted(sf, id := asked(sf))
    return lambda: sf.approvals.get(id)


def waited_approval(sf: standfast.Standfast) -> Read:
    granted(sf, id := asked(sf))
    return lambda: sf.approvals.wait(id, timeout=0)


def used_approval(sf: standfast.Standfast) -> Read:
    granted(sf, id := asked(sf))
    sf._store.caller.clock.advance(60)  # type: ignore[attr-defined]  # the answer is old, its use is young
    sf.effects.begin("shop.refund", {"order": 7}, key="k", approve=True)
    assert sf.approvals.get(id).state == "consumed"
    return lambda: sf.approvals.get(id)


def polled(sf: standfast.Standfast) -> Read:
    sf.events.append("orders", "order.placed", {"id": 1})
    sf.events.consumer("billing", "orders")
    return lambda: sf.events.poll("billing", "orders").events


def polled_journal(sf: standfast.Standfast) -> Read:
    sf.events.consumer("billing")
    sf.events.append("orders", "order.placed", {"id": 1})
    return lambda: sf.events.poll("billing").events


def followed(sf: standfast.Standfast) -> Read:
    sf.events.append("orders", "order.placed", {"id": 1})

    def read() -> Any:
        with sf.events.follow("orders", after=0, idle=0) as following:
            return list(following)

    return read


def consumed(sf: standfast.Standfast) -> Read:
    sf.events.append("orders", "order.placed", {"id": 1})
    sf.events.consumer("billing", "orders")

    def read() -> Any:
        with sf.events.consume("billing", "orders", idle=0) as consuming:
            return next(consuming)

    return read


def waited_mail(sf: standfast.Standfast) -> Read:
    sent = sf.mail.send("reviewer", 1)
    sf.mail.done(sf.mail.read(sent.id))  # type: ignore[arg-type]
    return lambda: sf.mail.wait(sent, timeout=0)


def step(sf: standfast.Standfast) -> Read:
    with sf.session("fix-42") as s:
        s.step("build", lambda: 1)
    opened_again = sf.session("fix-42").__enter__()
    return lambda: opened_again.step("build", lambda: 2)


def effect(sf: standfast.Standfast) -> Read:
    with sf.session("fix-42") as s:
        s.effect("mail.send", {"to": "ann"}, do=lambda call: 1, key="k")
    opened_again = sf.session("fix-42").__enter__()
    return lambda: opened_again.effect("mail.send", {"to": "ann"}, do=lambda call: 2, key="k")


DOORS: dict[str, Prepare] = {
    "approvals.get": answered_approval,
    "approvals.get of a used one": used_approval,
    "approvals.wait": waited_approval,
    "events.poll": polled,
    "events.poll of the journal": polled_journal,
    "events.follow": followed,
    "events.consume": consumed,
    "mail.wait": waited_mail,
    "session.step": step,
    "session.effect": effect,
}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def sf(tmp_path: Path, clock: ManualClock) -> Iterator[standfast.Standfast]:
    """A store on SQLite only: a PostgreSQL server shows a commit only after it is on disk."""
    with opened(str(tmp_path / "standfast.db"), tmp_path, Names(), clock=clock, as_actor=False) as store:
        yield store


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list to which each sync of a file by this process is added."""
    files: list[int] = []
    sync = os.fdatasync

    def counted(fd: int) -> None:
        sync(fd)
        files.append(fd)

    monkeypatch.setattr(os, "fdatasync", counted)
    return files


@pytest.mark.parametrize("door", DOORS)
def test_a_young_row_is_synced_before_it_is_returned(
    sf: standfast.Standfast, clock: ManualClock, synced: list[int], door: str
) -> None:
    """000-1: the row is read less than 1 s after its commit."""
    read = DOORS[door](sf)
    clock.advance(0.9)
    synced.clear()
    assert read()
    assert len(synced) >= 1


OLD_IS_FREE = [door for door in DOORS if door not in ("mail.wait", "events.consume")]
"""Those that write nothing themselves, and look at the age of the row."""


@pytest.mark.parametrize("door", OLD_IS_FREE)
def test_an_old_row_costs_no_sync(sf: standfast.Standfast, clock: ManualClock, synced: list[int], door: str) -> None:
    """000-1: 1 s after its commit any writer has synced the row."""
    read = DOORS[door](sf)
    clock.advance(1.1)
    synced.clear()
    assert read()
    assert synced == []
