"""Tests with two holders, sessions, loops or stores, because one row would hide a missing SQL condition.

test_neighbours.py runs every method beside a neighbour; this module has the cases that need special steps.
"""

from __future__ import annotations

import contextvars
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import standfast
from standfast.clock import ManualClock
from tests.holds import HOLDS
from tests.rows import differing, snapshot
from tests.walks import Names, opened

# -- two holders -------------------------------------------------------------------------------------------


@pytest.fixture
def dead_and_alive(engine_url: str, tmp_path: Path) -> Iterator[tuple[standfast.Standfast, standfast.Standfast]]:
    """Two processes on one store; the first one has ended when the test begins to use the second."""
    with (
        subprocess.Popen(["cat"], stdin=subprocess.PIPE) as child,
        opened(engine_url, tmp_path, Names(actor="first"), pid=child.pid) as first,
        opened(engine_url, tmp_path, Names(actor="second"), as_actor=False) as second,
    ):
        yield first, second


def end(first: standfast.Standfast) -> None:
    pid = int(first._store.caller.holder.split(":")[4])
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


CLAIM_NEXT = {
    "task": lambda sf: sf.tasks.claim(),
    "mail": lambda sf: sf.mail.claim("reviewer"),
    "webhook": lambda sf: sf.webhooks.claim(),
    "run": lambda sf: sf.runs.abandon_dead(),
}


@pytest.mark.parametrize("kind", CLAIM_NEXT)
def test_the_death_of_one_process_frees_what_it_held_and_nothing_else(
    dead_and_alive: tuple[standfast.Standfast, standfast.Standfast],
    engine_url: str,
    tmp_path: Path,
    kind: str,
) -> None:
    """002-9: both processes hold a row. The next claim gets the row of the dead process."""
    first, second = dead_and_alive
    hold = HOLDS[kind]
    ids = []
    for number, sf in enumerate((first, second)):
        if kind == "run":
            sf.loops.add(f"loop {number}", ["true"], every="1h", retries_max=3, backoff="1us", cwd="/")
            ids.append(sf.runs.ask(f"loop {number}").id)
        elif kind == "task":
            ids.append(sf.tasks.add(f"problem {number}").id)
        elif kind == "webhook":
            ids.append(sf.webhooks.receive("stripe", f"evt-{number}", {}).id)
        else:
            ids.append(hold.make(sf))
        hold.take(sf, ids[number])
    end(first)
    held = {name: row for name, row in snapshot(second).items() if row.get("id") == ids[1]}
    assert len(held) == 1
    with opened(engine_url, tmp_path, Names(actor="third")) as third:
        found = CLAIM_NEXT[kind](third)
        assert [one.id for one in found] == [ids[0]] if kind == "run" else found.id == ids[0]
        after = snapshot(third)
        assert [differing(row, after[name]) for name, row in held.items() if after[name] != row] == []
        if kind != "run":
            assert CLAIM_NEXT[kind](third) is None


# -- two sessions ------------------------------------------------------------------------------------------


def test_a_fork_takes_results_only_from_its_ancestors(sf: standfast.Standfast) -> None:
    """002-21: an unrelated session did the same step, with the same arguments, before the fork was made."""
    with sf.session("stranger") as s:
        s.step("build", lambda: "of the stranger")
    with sf.session("parent") as s:
        assert s.step("test", lambda: "of the parent") == "of the parent"
        s.say("user", "go on")
    with sf.session("stranger two") as s:
        s.step("build", lambda: "of the second stranger")
    sf.sessions.fork("parent", "fork")
    with sf.session("fork") as s:
        assert s.step("test", lambda: "again") == "of the parent"
        assert s.step("build", lambda: "of the fork") == "of the fork"


def test_a_question_names_the_session_that_asks(sf: standfast.Standfast) -> None:
    """002-20: with two sessions, a person is shown the key and the agent of the asking one."""
    asked = {}
    for key in ("first", "second", "third"):
        opened_as = sf.sessions.open(key, agent=f"agent of {key}", cwd=f"/{key}").record
        planned = sf.effects.plan("deploy", {"to": key}, key=key, session=opened_as.id, approve=True)
        asked[key] = sf.approvals.request(planned.id).id
    for key, approval in asked.items():
        question = sf.approvals.question(approval)
        assert (question.session_key, question.agent) == (key, f"agent of {key}")


def test_after_a_change_the_question_is_about_the_new_arguments(sf: standfast.Standfast) -> None:
    """002-20: the stored, the hashed and the shown question are equal; otherwise no person could approve."""
    sf.effects.plan("deploy", {"to": "staging", "note": "a"}, by="to", key="k", approve=True)
    with pytest.raises(standfast.ApprovalRequired) as caught:
        sf.effects.begin("deploy", {"to": "staging", "note": "b"}, by="to", key="k", approve=True)
    question = sf.approvals.pose(caught.value.approval_id)
    assert question.exact
    assert '"b"' in (question.intent or "")
    assert sf.effects.get("k").intent_hash == question.approval.intent_hash == question.current_hash


# -- two loops ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_run_ends_by_the_limits_of_its_own_loop(engine_url: str, tmp_path: Path, order: tuple[int, int]) -> None:
    """002-9: one loop retries three times, the other never. Each keeps its own count, in either order of creation."""
    clock = ManualClock()
    limits = [("often", 3), ("never", 0)]
    with opened(engine_url, tmp_path, Names(), clock=clock) as sf:
        for name, retries_max in (limits[number] for number in order):
            sf.loops.add(name, ["true"], every="1d", retries_max=retries_max, backoff="1us", failures_max=9, cwd="/")
        ended = {}
        for name, _ in limits:
            run = sf.runs.ask(name)
            sf.runs.claim(host="here", run_id=run.id)
            ended[name] = sf.runs.finish(run.id, 1, exit_code=1, duration="1us").state
        assert ended == {"often": "queued", "never": "failed"}
        sf.runs.cancel(sf.runs.list("often")[0].id, "enough")
        for name, _ in limits:
            sf.runs.claim(host="here", run_id=sf.runs.ask(name).id)
        clock.advance("1h")  # both runs have exceeded their time limit
        assert {run.loop: run.state for run in sf.runs.abandon_dead()} == {"often": "queued", "never": "abandoned"}


# -- two stores --------------------------------------------------------------------------------------------


def test_two_stores_send_two_keys_and_do_not_wait_for_each_other(engine_url: str, tmp_path: Path) -> None:
    """002-40: the key that the provider compares contains the store id; otherwise it would drop the second payment."""
    keys = []

    def send(sf: standfast.Standfast, inside: standfast.Standfast | None = None) -> None:
        def do(call: standfast.Call) -> int:
            keys.append(call.key)
            if inside is not None:
                contextvars.Context().run(send, inside)  # while the first one is in flight in this process
            return 1

        with sf.session("pay") as s:
            s.effect("payment.send", {"order": 7}, do=do, key="payment 7")

    other = str(tmp_path / "other" / "standfast.db")
    with opened(engine_url, tmp_path, Names()) as one, opened(other, tmp_path / "other", Names()) as two:
        send(one, inside=two)
        assert len(set(keys)) == 2
        assert (
            one.effects.begin("payment.plan", key="k").call_key != two.effects.begin("payment.plan", key="k").call_key
        )


@pytest.fixture
def older(tmp_path: Path) -> Path:
    """Copy the files of a store in which acme has 10 credits. The store then continues to 110 credits."""
    kept = tmp_path / "older"
    with opened(str(tmp_path / "standfast.db"), tmp_path, Names()) as sf:
        sf.credits.grant("acme", 10, key="first")
    kept.mkdir()
    for file in tmp_path.glob("standfast.db*"):
        shutil.copy(file, kept)
    with opened(str(tmp_path / "standfast.db"), tmp_path, Names()) as sf:
        sf.credits.grant("acme", 100, key="second")
    return kept


def restore(older: Path, sf: standfast.Standfast) -> None:
    """Put the older files in place under an open handle, whose engine notices it and is abandoned."""
    path = older.parent / "standfast.db"
    Path(f"{path}-shm").unlink(missing_ok=True)
    for name in (path.name, f"{path.name}-wal"):
        if (older / name).exists():
            os.replace(older / name, older.parent / name)
        else:
            (older.parent / name).unlink(missing_ok=True)
    with suppress(standfast.StorageError):
        sf.state.set("k", 1)


def test_after_a_restore_the_older_store_decides_which_events_are_covered(tmp_path: Path, older: Path) -> None:
    """001-8: a handle that remembers sums of the newer store is refused; a new handle counts again."""
    path = str(tmp_path / "standfast.db")
    with opened(path, tmp_path, Names()) as sf:
        assert sf.credits.spend("acme", 1, key="call 1").amount == -1
        restore(older, sf)
        with pytest.raises(standfast.StorageError):
            sf.credits.spend("acme", 50, key="call 2")
    with opened(path, tmp_path, Names()) as sf:
        with pytest.raises(standfast.Conflict, match="has 10 credits"):
            sf.credits.spend("acme", 50, key="call 2")
        assert sf.credits.balance("acme").balance == 10


def test_after_a_restore_a_handle_that_wrote_nothing_counts_again(tmp_path: Path, older: Path) -> None:
    """001-8: a refused spend has read a sum of the newer store; the handle is not refused, because it lost no row."""
    with opened(str(tmp_path / "standfast.db"), tmp_path, Names()) as sf:
        with pytest.raises(standfast.Conflict, match="has 110 credits"):
            sf.credits.spend("acme", 200, key="call 1")
        restore(older, sf)
        with pytest.raises(standfast.Conflict, match="has 10 credits"):
            sf.credits.spend("acme", 50, key="call 2")


# -- a log that was not synced -------------------------------------------------------------------------------


def test_the_mark_of_a_failed_sync_is_removed_only_after_the_log_was_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """000-1: rows that another process acknowledged behind the gap are safe only after the next opener's sync."""
    path = tmp_path / "standfast.db"
    with opened(str(path), tmp_path, Names()) as sf:
        sf.state.set("k", 1)
        shutil.copy(f"{path}-wal", tmp_path / "log")  # as after a killed process
    shutil.copy(tmp_path / "log", f"{path}-wal")
    mark = Path(f"{path}.unsynced")
    mark.touch(mode=0o600)
    synced = []
    sync = os.fdatasync

    def noted(fd: int) -> None:
        sync(fd)
        if os.path.exists(f"{path}-wal") and os.fstat(fd).st_ino == os.stat(f"{path}-wal").st_ino:
            synced.append(bool(list(tmp_path.glob("standfast.db.unsynced*"))))

    monkeypatch.setattr(os, "fdatasync", noted)
    with opened(str(path), tmp_path, Names()) as sf:
        assert sf.state.get("k").value == 1
    assert synced[0]
    assert list(tmp_path.glob("standfast.db.unsynced*")) == []
