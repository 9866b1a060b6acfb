"""Killed at every crash point around request, answer, consumption and deed, and again in the recovery.

The oracle is a file outside the store: a person writes down what they said yes to, and the world what
reached it. Whatever was killed: at most one deed, never without a yes to exactly those bytes, and
after the last recovery exactly one.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

import pytest

import standfast
from standfast import crash, serial
from standfast.errors import ApprovalRequired, EffectInDoubt

# Loaded once here, or each of hundreds of children would load them again.
LOADED = (
    "standfast.handle",
    "standfast.db.sqlite.registry",
    "standfast.db.postgres.engine",
    "standfast.footings.journal",
    "standfast.ledger.approvals",
    "standfast.ledger.effects.performing",
    "standfast.ledger.effects.room",
    "standfast.record.live",
)
for name in LOADED:
    import_module(name)

TABLES = "session, node, message, step, effect, decision, approval, event, state"
TRIES_MAX = 12


class World:
    """An agent that needs a yes, a person who gives it, and a world that counts."""

    def __init__(self, url: str, root: Path, *, probed: bool = False, answer: str = "granted") -> None:
        self.url = url
        self.root = root
        self.log = root / "oracle.log"
        self.probed = probed
        self.answer = answer

    # -- the oracle ------------------------------------------------------------------------------

    def note(self, what: str, bytes: str) -> None:
        fd = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(fd, f"{what} {bytes}\n".encode())
        os.close(fd)

    def noted(self) -> list[tuple[str, str]]:
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [(what, bytes) for what, _, bytes in (line.partition(" ") for line in lines)]

    @property
    def sent(self) -> list[str]:
        return [bytes for what, bytes in self.noted() if what == "sent"]

    # -- the program -----------------------------------------------------------------------------

    @contextmanager
    def store(self) -> Iterator[standfast.Standfast]:
        with standfast.open(self.url, data_dir=self.root / "data") as sf:
            yield sf

    def agent(self, sf: standfast.Standfast, words: str) -> None:
        intent = {"branch": "fix-42", "body": words}

        def do(call: standfast.Call) -> str:
            self.note("sent", serial.canonical(call.intent))
            return "done"

        def probe(_: standfast.Call) -> standfast.Applied | standfast.NotApplied:
            return standfast.Applied("done") if self.sent else standfast.NotApplied()

        with sf.session("night") as s:
            asking = probe if self.probed else None
            assert s.effect("open_pr", intent, by=("branch",), do=do, probe=asking, approve=True) == "done"

    def person(self, sf: standfast.Standfast) -> None:
        """Reads what is to be done, decides, and answers; a doubt is settled by looking at the world."""
        for doubt in sf.effects.in_doubt():
            if self.sent:
                sf.effects.resolve(doubt.id, "applied", result="done", evidence="looked: it is there")
            else:
                sf.effects.resolve(doubt.id, "not_applied", evidence="looked: it is not there")
        for waiting in sf.approvals.list(state="requested"):
            question = sf.approvals.pose(waiting.id)
            assert question.exact
            verb = sf.approvals.grant if self.answer == "granted" else sf.approvals.deny
            self.note("yes" if self.answer == "granted" else "no", question.intent or "")
            verb(waiting.id, approver="ada")

    def night(self, words: str) -> None:
        """The agent and the person in turns, until it is done or denied."""
        with self.store() as sf:
            for _ in range(TRIES_MAX):
                try:
                    return self.agent(sf, words)
                except ApprovalRequired as error:
                    if error.code == "approval_denied":
                        return None
                except EffectInDoubt:
                    pass
                self.person(sf)
        raise AssertionError("neither done nor denied")

    def check(self, schedule: crash.Schedule) -> None:
        said: set[str] = set()
        for what, bytes in self.noted():
            if what == "yes":
                said.add(bytes)
            elif what == "sent":
                assert bytes in said, f"{bytes} was done without a yes to it"
        with self.store() as sf:
            (effect,) = sf.rows("SELECT id, state, intent_hash, approval_id, attempt FROM effect")
            if self.answer == "denied":
                assert self.sent == []
                assert effect["state"] == "planned"
                return
            assert len(self.sent) == 1, f"{schedule}: done {len(self.sent)} times"
            assert effect["state"] == "acknowledged"
            assert serial.hash_text(self.sent[0]) == effect["intent_hash"]
            used = sf.approvals.get(effect["approval_id"])
            assert (used.state, used.intent_hash, used.effect_id) == ("consumed", effect["intent_hash"], effect["id"])
            types = [event.type for event in sf.journal.about(used.id)]
            assert types == ["approval.requested", "approval.granted", "approval.consumed"]
            assert sf.approvals.list(state="requested") == []


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path, Callable[[], None]]:
    """(url, root, reset): the parent never opens the store."""
    root = tmp_path / "place"
    if request.param == "sqlite":
        template, url = tmp_path / "template", str(root / "standfast.db")
        _in_a_child(lambda: standfast.open(template / "standfast.db", data_dir=template / "data").close())

        def copied() -> None:
            shutil.rmtree(root, ignore_errors=True)
            shutil.copytree(template, root)

        return url, root, copied
    url = request.getfixturevalue("pg_database")
    _in_a_child(lambda: standfast.open(url, data_dir=root / "data").close())

    def emptied() -> None:
        import psycopg

        root.mkdir(exist_ok=True)
        (root / "oracle.log").unlink(missing_ok=True)
        with psycopg.connect(url, autocommit=True) as connection:
            tables = ", ".join(f"standfast.{name}" for name in TABLES.split(", "))
            connection.execute(f"TRUNCATE {tables}".encode())

    return url, root, emptied


Place = tuple[str, Path, Callable[[], None]]


@pytest.mark.parametrize("probed", [False, True], ids=["plain", "probed"])
def test_killed_anywhere_it_is_done_once_and_with_a_yes(place: Place, probed: bool) -> None:
    url, root, reset = place
    world = World(url, root, probed=probed)
    night = lambda: world.night("fixes the parser")  # noqa: E731
    count = crash.sweep(night, night, world.check, reset=reset, max_schedules=100)
    assert count == 100


def test_killed_anywhere_and_worded_differently_it_needs_its_own_yes(place: Place) -> None:
    url, root, reset = place
    world = World(url, root)
    count = crash.sweep(
        lambda: world.night("fixes the parser"),
        lambda: world.night("repairs the parser, and more"),
        world.check,
        reset=reset,
        max_schedules=60,
    )
    assert count == 60


def test_killed_anywhere_a_no_stays_a_no(place: Place) -> None:
    url, root, reset = place
    world = World(url, root, answer="denied")
    night = lambda: world.night("drops the database")  # noqa: E731
    assert crash.sweep(night, night, world.check, reset=reset, max_schedules=40) == 40


def test_the_sweep_passes_every_point_of_an_approval(place: Place) -> None:
    url, root, reset = place
    reset()
    world = World(url, root)

    def recorded() -> None:
        with crash.record() as names:
            world.night("fixes the parser")
        (root / "names.json").write_text(json.dumps(names))

    _in_a_child(recorded)
    passed = set(json.loads((root / "names.json").read_text()))
    assert {name for name in crash.POINTS if name.startswith("approval.")} - passed == {"approval.after_request"}
    assert world.sent == ['{"body":"fixes the parser","branch":"fix-42"}']


def _in_a_child(action: Callable[[], object]) -> None:
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            action()
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0
