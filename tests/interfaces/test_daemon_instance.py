"""One daemon per data directory: the lock decides, not the pid file; the process identity decides, not the pid."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import standfast
from standfast.clock import SYSTEM
from standfast.core.leases import process
from standfast.daemon import instance, status, stop
from standfast.daemon.instance import Found, Instance, find
from standfast.errors import InProgress, NotFound, StorageError, UnsafeStorage
from standfast_prove.faults import mounts
from standfast_prove.faults.daemons import fill
from tests.skipping import or_skip

HOLDING = """
import sys
from standfast.clock import SYSTEM
from standfast.daemon.instance import Instance
from standfast.errors import StandfastError
try:
    guard = Instance(sys.argv[1], SYSTEM)
except StandfastError as error:
    print("refused", error.code, flush=True)
else:
    print("holds", guard.written, flush=True)
    sys.stdin.readline()
"""


def holding(directory: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", HOLDING, str(directory)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def said(started: subprocess.Popen[str]) -> str:
    assert started.stdout is not None
    return started.stdout.readline().strip()


def ended(started: subprocess.Popen[str]) -> None:
    started.kill()
    started.communicate()


def test_the_second_daemon_is_refused_with_the_name_of_the_first(tmp_path: Path) -> None:
    """000-35: a pid file backs the single-instance guard."""
    first = holding(tmp_path)
    try:
        assert said(first) == "holds True"
        found = find(str(tmp_path), SYSTEM)
        assert found == Found(True, first.pid, str(process(first.pid, SYSTEM)))
        with pytest.raises(InProgress, match=f"process {first.pid} on"):
            Instance(str(tmp_path), SYSTEM)
    finally:
        ended(first)


def test_of_many_that_start_together_one_holds_it(tmp_path: Path) -> None:
    started = [holding(tmp_path) for _ in range(6)]
    try:
        heard = sorted(said(one) for one in started)
        assert heard == ["holds True"] + ["refused in_progress"] * 5
    finally:
        for one in started:
            ended(one)


def test_killed_it_is_free_at_once_and_the_file_stays(tmp_path: Path) -> None:
    """000-35: a stale pid file stops no daemon."""
    first = holding(tmp_path)
    assert said(first) == "holds True"
    inode = os.stat(tmp_path / instance.NAME).st_ino
    ended(first)
    assert find(str(tmp_path), SYSTEM) == Found(False)
    with Instance(str(tmp_path), SYSTEM) as guard:
        assert guard.valid()
        assert find(str(tmp_path), SYSTEM).pid == os.getpid()
    assert os.stat(tmp_path / instance.NAME).st_ino == inode


def test_a_recycled_pid_blocks_no_daemon_and_is_never_signalled(tmp_path: Path) -> None:
    """000-35: another process has the pid of the dead daemon now."""
    innocent = subprocess.Popen(["sleep", "60"])
    try:
        alive = process(innocent.pid, SYSTEM)
        old = alive._replace(start="1")
        (tmp_path / instance.NAME).write_text(f"{innocent.pid} {old}\n")
        assert find(str(tmp_path), SYSTEM) == Found(False)
        stop.stop(str(tmp_path), Found(True, innocent.pid, str(old)), SYSTEM, now=True, patience_s=1)
        assert innocent.poll() is None
        with Instance(str(tmp_path), SYSTEM) as guard:
            assert find(str(tmp_path), SYSTEM).process == guard.process
    finally:
        innocent.kill()
        innocent.wait()


def test_while_the_lock_is_held_old_text_in_the_file_names_no_process(tmp_path: Path) -> None:
    """If a daemon could not write its name, the kernel names the process, not the file."""
    first = holding(tmp_path)
    try:
        assert said(first) == "holds True"
        for words in (b"", b"\xff\xfe garbage \x00", b"1 p:x:y:z:1:1", str(os.getpid()).encode(), b"9" * 5000):
            (tmp_path / instance.NAME).write_bytes(words)
            assert find(str(tmp_path), SYSTEM) == Found(True, first.pid, str(process(first.pid, SYSTEM)))
    finally:
        ended(first)


@pytest.mark.parametrize("words", [b"", b"\0" * 300, b"\xff\xff\xff", b"-1 other\n", b"99999999999999999999 x", b"1"])
def test_garbage_without_a_lock_names_no_process(tmp_path: Path, words: bytes) -> None:
    (tmp_path / instance.NAME).write_bytes(words)
    assert find(str(tmp_path), SYSTEM) == Found(False)
    with Instance(str(tmp_path), SYSTEM):
        assert (tmp_path / instance.NAME).read_text().split()[0] == str(os.getpid())


def test_a_link_is_refused_and_what_it_leads_to_is_not_touched(tmp_path: Path) -> None:
    elsewhere = tmp_path / "precious"
    elsewhere.write_text("precious")
    data = tmp_path / "data"
    data.mkdir()
    (data / instance.NAME).symlink_to(elsewhere)
    for act in (lambda: Instance(str(data), SYSTEM), lambda: find(str(data), SYSTEM)):
        with pytest.raises(UnsafeStorage, match="not a regular file"):
            act()
    assert elsewhere.read_text() == "precious"
    (data / instance.NAME).unlink()
    os.link(elsewhere, data / instance.NAME)
    with pytest.raises(UnsafeStorage, match="second name"):
        Instance(str(data), SYSTEM)
    assert elsewhere.read_text() == "precious"


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_a_fifo_in_place_of_the_file_is_refused_at_once(tmp_path: Path, make: object) -> None:
    make(tmp_path / instance.NAME)  # type: ignore[operator]
    with pytest.raises(UnsafeStorage, match="not a regular file"):
        Instance(str(tmp_path), SYSTEM)


def test_on_a_full_disk_the_lock_works_and_the_kernel_names_its_holder(tmp_path: Path) -> None:
    with or_skip(), mounts.memory(tmp_path / "small", size="64k"):
        small = tmp_path / "small"
        (small / instance.NAME).touch()
        filling = fill(small)
        first = holding(small)
        try:
            assert said(first) == "holds False"
            assert (small / instance.NAME).read_bytes() in (b"", b"\0" * instance.PADDED_BYTES)
            assert find(str(small), SYSTEM).pid == first.pid
            second = holding(small)
            assert said(second) == "refused in_progress"
            ended(second)
        finally:
            ended(first)
        filling.unlink()
        with Instance(str(small), SYSTEM) as guard:
            assert guard.written


def test_where_not_even_an_empty_file_fits_nothing_starts(tmp_path: Path) -> None:
    """If a full disk prevents the lock file, no daemon starts."""
    with or_skip(), mounts.memory(tmp_path / "small", size="64k,nr_inodes=2"):
        (tmp_path / "small" / "one").touch()
        with pytest.raises(StorageError, match="no space") as caught:
            Instance(str(tmp_path / "small"), SYSTEM)
        assert caught.value.code == "disk_full"


def test_a_file_that_was_taken_away_is_noticed(tmp_path: Path) -> None:
    with Instance(str(tmp_path), SYSTEM) as guard:
        assert stat.S_IMODE(os.stat(guard.path).st_mode) == 0o600
        os.unlink(guard.path)
        assert not guard.valid()
        Path(guard.path).touch()
        assert not guard.valid()


def test_a_forked_child_does_not_keep_the_lock(tmp_path: Path) -> None:
    guard = Instance(str(tmp_path), SYSTEM)
    reader, writer = os.pipe()
    there, ready = os.pipe()
    if (pid := os.fork()) == 0:
        os.close(writer)
        os.close(ready)  # the child has closed its copy of the lock too
        os.read(reader, 1)
        os._exit(0)
    os.close(reader)
    os.close(ready)
    os.read(there, 1)
    os.close(there)
    guard.close()
    found = find(str(tmp_path), SYSTEM)
    os.close(writer)
    os.waitpid(pid, 0)
    assert found == Found(False)


def test_stop_ends_exactly_the_daemon(tmp_path: Path) -> None:
    first = holding(tmp_path)
    assert said(first) == "holds True"
    stop.stop(str(tmp_path), find(str(tmp_path), SYSTEM), SYSTEM, now=False, patience_s=30)
    assert first.wait(30) == -signal.SIGTERM
    first.communicate()
    with pytest.raises(NotFound):
        stop.stop(str(tmp_path), Found(True), SYSTEM, now=False, patience_s=1)


def test_a_status_that_another_process_wrote_is_not_shown_as_that_of_the_daemon(tmp_path: Path) -> None:
    """000-35: the lock and the identity decide; the file of a daemon that died stays."""
    directory = str(tmp_path)
    (tmp_path / "daemon").mkdir()
    guard = Instance(directory, SYSTEM)
    try:
        starting = status.read(directory, SYSTEM)
        assert (starting.state, starting.pid) == ("starting", os.getpid())
        status.write(directory, starting._replace(state="active", process="another"))
        assert status.read(directory, SYSTEM) == starting
        status.write(directory, starting._replace(state="active"))
        assert status.read(directory, SYSTEM).state == "active"
    finally:
        guard.close()
    assert status.read(directory, SYSTEM).state == "stopped"


def test_doctor_names_the_store_of_a_daemon_only_once_it_is_known(sf: standfast.Standfast) -> None:
    """A starting daemon has not named its store yet; doctor must not report another store."""
    from standfast.daemon.doctor import _running

    running = status._NOTHING._replace(state="active", pid=7, since_us=0)
    assert _running(running, sf.settings).state != "warn"
    assert _running(running._replace(store=sf.settings.target.shown), sf.settings).state != "warn"
    elsewhere = _running(running._replace(store="/elsewhere/standfast.db"), sf.settings)
    assert (elsewhere.state, "serves /elsewhere" in elsewhere.text) == ("warn", True)
