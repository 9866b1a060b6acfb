"""Leases: one holder at a time. A dead holder is recognised, and setting the wall clock ends no lease."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import standfast
from standfast import config, handle
from standfast.clock import MINUTE_US, SECOND_US, SYSTEM, ManualClock
from standfast.core import leases
from standfast.db.contract import Caller
from standfast_prove.faults import Unavailable
from standfast_prove.faults.children import Child, Nursery, heard, say
from standfast_prove.faults.rows import noted
from tests.skipping import or_skip

ROOT = Path(__file__).resolve().parents[2]

Open = Callable[..., standfast.Standfast]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def place(engine_url: str, tmp_path: Path, clock: ManualClock) -> Iterator[Open]:
    """Open handles on one store: `place(actor="ann")` is ann at a command line, `place()` is this process."""
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
    return place(actor="ann")


@pytest.fixture
def bob(place: Open) -> standfast.Standfast:
    return place(actor="bob")


def held_by(sf: standfast.Standfast, holder: str) -> standfast.Standfast:
    """The same handle with another holder, as in another process."""
    old = sf._store.caller
    sf._store.caller = Caller(actor=old.actor, holder=holder, scope=old.scope, clock=old.clock)
    return sf


# -- verbs -----------------------------------------------------------------------------------------------


def test_a_lock_has_one_holder_and_the_refusal_names_it(ann: standfast.Standfast, bob: standfast.Standfast) -> None:
    lease = ann.leases.acquire("deploy", note="release 7")
    assert (lease.name, lease.holder, lease.fence, lease.note) == ("deploy", "a:ann", 1, "release 7")
    with pytest.raises(standfast.InProgress, match="is held by ann"):
        bob.leases.acquire("deploy")
    assert bob.leases.acquire("another").fence == 1


def test_a_lock_given_back_is_taken_with_the_next_fence(ann: standfast.Standfast, bob: standfast.Standfast) -> None:
    first = ann.leases.acquire("deploy")
    ann.leases.release("deploy", first.fence)
    second = bob.leases.acquire("deploy")
    assert (first.fence, second.fence) == (1, 2)
    with pytest.raises(standfast.LeaseLost, match="bob has it now"):
        ann.leases.renew("deploy", first.fence)
    with pytest.raises(standfast.LeaseLost):
        ann.leases.release("deploy", first.fence)
    assert bob.leases.get("deploy").holder == "a:bob"


def test_any_caller_may_release_the_lock_of_a_late_holder_and_none_that_of_a_live_one(
    ann: standfast.Standfast, bob: standfast.Standfast, clock: ManualClock
) -> None:
    ann.leases.acquire("deploy", for_="1m")
    with pytest.raises(standfast.LeaseLost, match="'deploy' is held by ann; unless renewed it ends in 1m"):
        bob.leases.release("deploy")
    clock.advance(61 * SECOND_US)
    assert bob.leases.release("deploy").holder is None
    with pytest.raises(standfast.LeaseLost, match="the lock 'deploy' has no holder"):
        bob.leases.release("deploy")
    assert ann.leases.acquire("deploy").fence == 2


def test_an_actor_that_asks_again_keeps_its_lock_and_its_fence(
    ann: standfast.Standfast, bob: standfast.Standfast, clock: ManualClock
) -> None:
    """The actor's commands start and exit. Each one renews its leases."""
    first = ann.leases.acquire("deploy")
    clock.advance("14m")
    again = ann.leases.acquire("deploy")
    assert again.fence == first.fence
    clock.advance("14m")
    with pytest.raises(standfast.InProgress):
        bob.leases.acquire("deploy")


def test_a_process_that_has_a_lock_is_refused_a_second_time(place: Open) -> None:
    """001-67: locks are not nested. Two threads of one process are two holders, and neither can release the other's
    lock.
    """
    sf = place()
    sf.leases.acquire("deploy")
    with pytest.raises(standfast.InProgress, match=f"process {os.getpid()} on"):
        sf.leases.acquire("deploy")


def test_a_lock_that_was_never_held_is_not_found(ann: standfast.Standfast) -> None:
    for ask in (
        lambda: ann.leases.get("nothing"),
        lambda: ann.leases.renew("nothing", 1),
        lambda: ann.leases.release("nothing", 1),
    ):
        with pytest.raises(standfast.NotFound, match="has never been held"):
            ask()


@pytest.mark.parametrize("name", ["", "x" * 501, "nul\0"])
def test_a_name_that_is_none_is_refused(ann: standfast.Standfast, name: str) -> None:
    with pytest.raises(standfast.InvalidInput):
        ann.leases.acquire(name)


@pytest.mark.parametrize("for_", [0, "0.5us", 7 * 86_400.000001])
def test_a_term_that_is_none_is_refused(ann: standfast.Standfast, for_: float | str) -> None:
    with pytest.raises(standfast.InvalidInput, match="between 1 µs and 7d"):
        ann.leases.acquire("deploy", for_=for_)
    with pytest.raises(standfast.NotFound):
        ann.leases.get("deploy")


def test_held_locks_are_listed_in_pages(ann: standfast.Standfast, bob: standfast.Standfast) -> None:
    for name in ("c", "a", "b"):
        ann.leases.acquire(name)
    ann.leases.release("b", 1)
    bob.leases.acquire("d")
    assert [lease.name for lease in ann.leases.list()] == ["a", "c", "d"]
    assert [lease.name for lease in ann.leases.list(limit=2)] == ["a", "c"]
    assert [lease.name for lease in ann.leases.list(after="c")] == ["d"]


def test_taking_giving_back_and_taking_over_are_in_the_journal_and_renewing_is_not(
    ann: standfast.Standfast, bob: standfast.Standfast, clock: ManualClock
) -> None:
    """001-26: renewals are not recorded, because each matters only until the next one."""
    lease = ann.leases.acquire("deploy", note="release 7")
    ann.leases.renew("deploy", lease.fence)
    ann.leases.release("deploy", lease.fence)
    ann.leases.acquire("deploy")
    clock.advance("1h")
    taken = bob.leases.acquire("deploy")
    events = ann.journal.about("lock:deploy")
    assert [(event.type, event.agent, event.data) for event in events] == [
        ("lease.acquired", "ann", {"fence": 1}),
        ("lease.released", "ann", {"fence": 1}),
        ("lease.acquired", "ann", {"fence": 2}),
        ("lease.taken_over", "bob", {"fence": 3}),
    ]
    assert events[0].summary == "release 7"
    assert taken.receipt is not None
    assert ann.journal.verify(str(taken.receipt)) == events[-1]


def test_a_block_holds_and_gives_back_also_when_it_fails(place: Open, bob: standfast.Standfast) -> None:
    """001-66: inside the block, the caller holds the lock. The lock is given back however the block ends."""
    sf = place()
    with sf.leases.hold("deploy") as lease:
        assert lease.holder == sf._store.caller.holder
        with pytest.raises(standfast.InProgress):
            bob.leases.acquire("deploy")
    assert sf.leases.get("deploy").holder is None

    def fail() -> None:
        with sf.leases.hold("deploy"):
            raise RuntimeError("the work failed")

    with pytest.raises(RuntimeError, match="the work failed"):
        fail()
    assert bob.leases.acquire("deploy").fence == 3


def test_a_block_that_lost_its_lock_raises_at_its_end(
    place: Open, bob: standfast.Standfast, clock: ManualClock
) -> None:
    """Each new holder gets a higher fencing token. The old holder is refused, even if its own clock shows time left."""
    sf = place()

    def oversleep() -> None:
        with sf.leases.hold("deploy"):
            clock.advance("61s")
            assert bob.leases.acquire("deploy").fence == 2

    with pytest.raises(standfast.LeaseLost, match="bob has it now"):
        oversleep()
    assert bob.leases.get("deploy").holder == "a:bob"


def test_a_lock_cannot_be_held_inside_an_open_transaction(ann: standfast.Standfast) -> None:
    """001-67: nor may a lock of one kind be taken inside one of another kind."""
    with (
        ann.transaction() as tx,
        pytest.raises(standfast.InvalidInput, match="inside a transaction"),
        tx.leases.hold("deploy"),
    ):
        pass


# -- time ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("actor", "term_us"), [(None, 60 * SECOND_US), ("cleo", 15 * MINUTE_US)])
def test_a_lease_ends_by_time_exactly(
    place: Open, bob: standfast.Standfast, clock: ManualClock, actor: str | None, term_us: int
) -> None:
    lease = place(actor).leases.acquire("deploy")
    clock.advance((term_us - 1) / SECOND_US)
    with pytest.raises(standfast.InProgress):
        bob.leases.acquire("deploy")
    clock.advance(1 / SECOND_US)
    assert bob.leases.acquire("deploy").fence == lease.fence + 1


def test_a_renewal_starts_the_term_again(
    ann: standfast.Standfast, bob: standfast.Standfast, clock: ManualClock
) -> None:
    lease = ann.leases.acquire("deploy", for_="10s")
    for _ in range(5):
        clock.advance("9s")
        ann.leases.renew("deploy", lease.fence, for_="10s")
    with pytest.raises(standfast.InProgress):
        bob.leases.acquire("deploy")


def test_one_statement_renews_everything_a_process_holds_and_nothing_of_others(
    place: Open, bob: standfast.Standfast, clock: ManualClock
) -> None:
    sf = place()
    for name in ("a", "b"):
        sf.leases.acquire(name)
    bob.leases.acquire("c", for_="1m")
    clock.advance("50s")
    sf._store.write(leases.renew_all, durable=False)
    clock.advance("50s")
    for name in ("a", "b"):
        with pytest.raises(standfast.InProgress):
            bob.leases.acquire(name)
    assert place(actor="ann").leases.acquire("c").fence == 2


def test_a_process_stops_believing_in_its_leases_before_they_end(place: Open, clock: ManualClock) -> None:
    sf = place()
    with sf.leases.hold("deploy"):
        renewer = leases.renewer(sf._store)
        assert renewer.trusted
        clock.advance("54s")
        assert renewer.trusted
        clock.advance("1s")
        assert not renewer.trusted


@pytest.fixture
def on_sqlite(tmp_path: Path, clock: ManualClock) -> Iterator[tuple[standfast.Standfast, standfast.Standfast]]:
    """This process and bob open one SQLite file, where leases do not depend on wall time."""
    settings = config.load(tmp_path / "one.db", data_dir=tmp_path / "data", actor="bob")
    with (
        standfast.open(tmp_path / "one.db", data_dir=tmp_path / "data", clock=clock) as sf,
        handle.connect(settings, clock=clock, as_actor=True) as bob,
    ):
        yield sf, bob


@pytest.mark.parametrize("jump", ["100d", "-100d", "1s", "-1s"])
def test_setting_the_clock_ends_no_lease_and_lengthens_none(
    on_sqlite: tuple[standfast.Standfast, standfast.Standfast], clock: ManualClock, jump: str
) -> None:
    """Wall time may jump. A lease counts the time for which this machine was awake."""
    sf, bob = on_sqlite
    sf.leases.acquire("deploy")
    clock.jump(jump)
    clock.advance("59s")
    with pytest.raises(standfast.InProgress):
        bob.leases.acquire("deploy")
    clock.advance("1s")
    assert bob.leases.acquire("deploy").fence == 2


def test_a_closed_lid_ends_no_lease(
    on_sqlite: tuple[standfast.Standfast, standfast.Standfast], clock: ManualClock
) -> None:
    sf, bob = on_sqlite
    sf.leases.acquire("deploy")
    clock.sleep("10h")
    with pytest.raises(standfast.InProgress):
        bob.leases.acquire("deploy")


def test_a_reboot_ends_every_lease_also_of_actors(
    on_sqlite: tuple[standfast.Standfast, standfast.Standfast], clock: ManualClock
) -> None:
    sf, bob = on_sqlite
    sf.leases.acquire("by a process")
    bob.leases.acquire("by bob", for_="7d")
    clock.reboot()
    assert bob.leases.acquire("by a process").fence == 2
    assert sf.leases.acquire("by bob").fence == 2


# -- dead and live holders ---------------------------------------------------------------------------------


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process that sleeps until the test kills it."""
    process = subprocess.Popen([sys.executable, "-S", "-c", "import signal; signal.pause()"])
    yield process
    process.kill()
    process.wait()


def test_a_process_is_alive_until_it_is_dead(sleeper: subprocess.Popen[bytes]) -> None:
    holder = str(leases.process(sleeper.pid, SYSTEM))
    assert not leases.is_gone(holder, SYSTEM)
    sleeper.send_signal(signal.SIGSTOP)
    assert not leases.is_gone(holder, SYSTEM), "stopped is not dead"
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)  # dead and not reaped: a zombie
    assert leases._stat(sleeper.pid)[0] == "Z"
    assert leases.is_gone(holder, SYSTEM), "a zombie is gone"
    sleeper.wait()
    assert leases.is_gone(holder, SYSTEM), "a free pid is gone"


HOLDING = """
import fcntl, sys, threading, time
held = open(sys.argv[1], "w")
fcntl.flock(held, fcntl.LOCK_EX)
def busy():
    while True: sum(range(20_000))
for act in (busy, busy, lambda: time.sleep(100)): threading.Thread(target=act, daemon=True).start()
print(flush=True)
time.sleep(100)
"""


def test_a_killed_process_counts_as_dead_when_its_last_thread_has_exited(tmp_path: Path) -> None:
    """Its first thread is a zombie before the others have closed their files. No process may take the lock over
    until then.
    """
    for number in range(15):
        door = tmp_path / str(number)
        with (
            subprocess.Popen([sys.executable, "-c", HOLDING, str(door)], stdout=subprocess.PIPE) as holding,
            open(door, "w") as mine,
        ):
            assert holding.stdout is not None
            holding.stdout.readline()
            holder = str(leases.process(holding.pid, SYSTEM))
            holding.kill()
            while not leases.is_gone(holder, SYSTEM):
                pass
            fcntl.flock(mine, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_pid_that_was_given_to_another_process_is_not_the_holder(sleeper: subprocess.Popen[bytes]) -> None:
    holder = leases.process(sleeper.pid, SYSTEM)
    earlier = holder._replace(start=str(int(holder.start) - 100))
    assert leases.is_gone(str(earlier), SYSTEM)
    assert not leases.is_gone(str(holder), SYSTEM)


@pytest.mark.parametrize(
    "other",
    [{"boot": "00000000"}, {"namespace": "1"}, {"boot": "00000000", "namespace": "1"}, {"start": ""}],
)
def test_a_process_of_unknown_state_counts_as_alive(sleeper: subprocess.Popen[bytes], other: dict[str, str]) -> None:
    """The process has another boot id or another pid namespace, so its pid means nothing here. Its leases end by
    time.
    """
    holder = str(leases.process(sleeper.pid, SYSTEM)._replace(**other))
    if "start" not in other:
        sleeper.kill()
        sleeper.wait()
    assert not leases.is_gone(holder, SYSTEM)


@pytest.mark.parametrize("holder", ["a:ann", "", "p:", "p:host:boot:ns:x:1", "p:host:boot:ns:1", "x:host:boot:ns:1:1"])
def test_an_actor_is_never_judged_by_processes(holder: str) -> None:
    assert not leases.is_gone(holder, SYSTEM)


def test_the_lock_of_a_killed_process_is_taken_at_once(engine_url: str, tmp_path: Path) -> None:
    """000-1: the lease has time left, but the next caller does not wait for its end."""
    with (
        standfast.open(engine_url, data_dir=tmp_path / "data") as sf,
        Child(
            "tests.features.test_leases:hold_and_wait", forked=False, url=engine_url, data_dir=str(tmp_path / "data")
        ) as other,
    ):
        other.expect("holding")
        with pytest.raises(standfast.InProgress, match=f"process {other.pid} on"):
            sf.leases.acquire("deploy")
        other.signal(signal.SIGSTOP)
        with pytest.raises(standfast.InProgress):
            sf.leases.acquire("deploy")
        other.process.kill()
        os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)  # a zombie, because its parent has not waited for it
        lease = sf.leases.acquire("deploy")
        assert lease.fence == 2
        assert sf.journal.about("lock:deploy")[-1].type == "lease.taken_over"


def hold_and_wait(url: str, data_dir: str) -> None:
    with standfast.open(url, data_dir=data_dir) as sf:
        sf.leases.acquire("deploy")
        say("holding")
        heard()


def test_eight_processes_get_one_lock_one_after_the_other(engine_url: str, tmp_path: Path) -> None:
    """Never two live holders: each holder checks that the previous one has finished."""
    standfast.open(engine_url, data_dir=tmp_path / "data").close()
    with Nursery(words=tmp_path / "words") as nursery:
        starters: list[dict[str, object]] = [{"url": engine_url, "place": str(tmp_path)} for _ in range(8)]
        codes = [nursery.wait(pid) for pid in nursery.race("tests.features.test_leases:work_alone", starters)]
    assert codes == [0] * 8, (tmp_path / "words").read_text()[-2000:]
    fences = [int(line) for line in noted(tmp_path / "worked")]
    assert sorted(fences) == list(range(1, 25))
    assert fences == sorted(fences)


def work_alone(url: str, place: str, rounds: int = 3) -> None:
    """Take the lock three times. While holding it, create a file with O_EXCL: a second holder would fail."""
    import time

    with standfast.open(url, data_dir=os.path.join(place, "data")) as sf:
        while rounds:
            try:
                lease = sf.leases.acquire("one")
            except standfast.InProgress:
                time.sleep(0.002)
                continue
            fd = os.open(os.path.join(place, "alone"), os.O_CREAT | os.O_EXCL | os.O_WRONLY)
            with open(os.path.join(place, "worked"), "a", encoding="ascii") as file:
                file.write(f"{lease.fence}\n")
            os.close(fd)
            os.unlink(os.path.join(place, "alone"))
            sf.leases.release("one", lease.fence)
            rounds -= 1


# -- containers -------------------------------------------------------------------------------------------


def in_namespace(*options: str) -> list[str]:
    command = [shutil.which("unshare") or "", "--fork", *options]
    if not command[0] or subprocess.run([*command, "true"], capture_output=True).returncode != 0:
        raise Unavailable(f"unshare {' '.join(options)} is not allowed")
    return command


def test_a_holder_in_another_pid_namespace_is_never_judged_by_its_pid(tmp_path: Path) -> None:
    """Its pid here is 1 or the pid of another process, so its lease ends by time only."""
    path, clock = tmp_path / "standfast.db", ManualClock(SYSTEM.now_us())
    with or_skip():
        prefix = in_namespace("--pid", "--mount-proc", "--kill-child")
    with Child(
        "tests.features.test_leases:hold_and_wait", prefix=prefix, url=str(path), data_dir=str(tmp_path)
    ) as inside:
        inside.expect("holding")
        with standfast.open(path, data_dir=tmp_path) as sf:
            found = leases.parse_process(str(sf.leases.get("deploy").holder))
            assert found is not None
            assert found.pid == 1
            with pytest.raises(standfast.InProgress):
                sf.leases.acquire("deploy")
            inside.kill()
            with pytest.raises(standfast.InProgress):
                sf.leases.acquire("deploy")  # it is dead, but processes outside its namespace cannot know that
    assert not leases.is_gone(str(found), clock)


def test_from_inside_a_pid_namespace_the_outside_is_never_judged_by_its_pid(tmp_path: Path) -> None:
    with or_skip():
        prefix = in_namespace("--pid", "--mount-proc", "--kill-child")
    with standfast.open(tmp_path / "standfast.db", data_dir=tmp_path) as sf:
        sf.leases.acquire("deploy")
        with Child(
            "tests.features.test_leases:try_to_take",
            prefix=prefix,
            url=str(tmp_path / "standfast.db"),
            data_dir=str(tmp_path),
        ) as inside:
            assert inside.end() == ["InProgress"]


def try_to_take(url: str, data_dir: str) -> None:
    with standfast.open(url, data_dir=data_dir) as sf:
        try:
            sf.leases.acquire("deploy")
            say("taken")
        except standfast.InProgress:
            say("InProgress")


@pytest.mark.skipif(os.geteuid() != 0, reason="NOT SHOWN on this machine: another user needs root")
def test_a_process_in_another_pid_namespace_is_not_judged_dead(sleeper: subprocess.Popen[bytes]) -> None:
    """A system may hide other users' processes (hidepid), so a pid that /proc does not show may be alive."""
    with or_skip():
        prefix = in_namespace("--mount")
    script = (
        "import ctypes, os, subprocess, sys\n"
        "from standfast.clock import SYSTEM\n"
        "from standfast.core import leases\n"
        "if subprocess.run(['mount', '-o', 'remount,hidepid=2', '/proc']).returncode: sys.exit(77)\n"
        "SYSTEM.boot_id()  # read while this user may read the interpreter's own files\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "ctypes.CDLL(None).prctl(4, 1)  # an ordinary process, that may look at itself\n"
        "assert leases._namespace() and not os.path.exists(f'/proc/{sys.argv[2]}')\n"
        "print(leases.is_gone(sys.argv[1], SYSTEM))\n"
    )
    holder = str(leases.process(sleeper.pid, SYSTEM))
    command = [*prefix, sys.executable, "-c", script, holder, str(sleeper.pid)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    if done.returncode == 77:
        pytest.skip("NOT SHOWN on this machine: /proc cannot be mounted with hidepid")
    assert (done.returncode, done.stdout.strip()) == (0, "False"), done.stderr
