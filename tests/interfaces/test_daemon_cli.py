"""`standfast daemon` for people and systemd: real processes, signals, units."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import standfast
from standfast.config.actor import account
from standfast.daemon import unit
from standfast.daemon.leader_lease import name_of
from standfast.errors import Conflict, InvalidInput, NotFound
from standfast_prove.faults.daemons import Running, noted, noting, opened, until
from tests.interfaces.test_cli import run


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    home = tmp_path / "home"
    home.mkdir()
    yield home
    run("daemon", "stop", "--now", home=home)


@pytest.fixture
def sf(home: Path) -> Iterator[standfast.Standfast]:
    with opened(str(home / ".standfast" / "standfast.db"), home / ".standfast") as store:
        yield store


def said(*words: str, home: Path, **variables: str) -> dict[str, Any]:
    done = run(*words, "--json", home=home, **variables)
    data: dict[str, Any] = json.loads(done.stdout)["data"]
    return data


# -- start, status, stop -----------------------------------------------------------------------------------


def listening(pid: int) -> set[str]:
    """The listening sockets of a process, as listed by the kernel."""
    tables = [f"/proc/{pid}/net/{name}" for name in ("tcp", "tcp6")]
    rows = [line.split() for table in tables for line in Path(table).read_text().splitlines()[1:]]
    waiting = {f"socket:[{row[9]}]" for row in rows if row[3] == "0A"}
    held = set()
    for number in os.listdir(f"/proc/{pid}/fd"):
        with suppress(FileNotFoundError):  # closed meanwhile
            held.add(os.readlink(f"/proc/{pid}/fd/{number}"))
    return waiting & held


def test_a_socket_that_waits_is_seen() -> None:
    with socket.create_server(("127.0.0.1", 0)):
        assert len(listening(os.getpid())) == 1


def test_it_is_started_seen_and_stopped(home: Path, sf: standfast.Standfast, tmp_path: Path) -> None:
    """003-34: the daemon listens on no port."""
    stopped = run("daemon", home=home)
    assert (stopped.returncode, stopped.stdout) == (3, "no daemon runs here\n")
    started = said("daemon", "start", home=home)
    assert started["state"] == "active"
    assert listening(started["pid"]) == set()
    again = said("daemon", "start", home=home)
    assert again["pid"] == started["pid"]
    refused = run("daemon", "run", home=home)
    assert refused.returncode == 75
    assert f"is process {started['pid']} on" in refused.stderr
    assert "standfast daemon status" in refused.stderr

    sf.loops.add("long", noting(tmp_path / "out", "sleep 60"), every="1s", cwd="/")
    until(lambda: said("daemon", "status", home=home)["runs"], every_s=0.2)
    status = run("daemon", "status", home=home).stdout
    assert f"the daemon (process {started['pid']}) fires and runs" in status
    assert "fire\tok\t0" in status
    assert "long" in status
    (finding,) = [one for one in json.loads(run("doctor", "--json", home=home).stdout)["data"] if one["id"] == "daemon"]
    assert finding["state"] == "ok"

    ended = said("daemon", "stop", "--now", home=home)
    assert ended == {"stopped": True, "pid": started["pid"]}
    (row,) = [one for one in sf.runs.list("long", limit=1000) if one.started_us]
    assert (row.state, row.reason) == ("cancelled", "the daemon was stopped")
    assert said("daemon", "stop", home=home) == {"stopped": False, "pid": None}
    assert "the last one ended: asked to end" in run("daemon", home=home).stdout
    (finding,) = [one for one in json.loads(run("doctor", "--json", home=home).stdout)["data"] if one["id"] == "daemon"]
    assert finding["state"] == "warn"
    assert "1 loop and no daemon" in finding["text"]


def test_a_daemon_that_cannot_start_prints_the_reason(home: Path) -> None:
    data = home / ".standfast"
    data.mkdir(mode=0o700)
    (data / "daemon.pid").symlink_to(home / "elsewhere")
    for words in (("daemon", "start"), ("daemon", "status"), ("daemon", "stop"), ("daemon", "run")):
        refused = run(*words, home=home)
        assert refused.returncode == 78, words
        assert "not a regular file" in refused.stderr
    (data / "daemon.pid").unlink()
    (data / "standfast.db").write_text("not a database, but long enough to be looked at " * 100)
    refused = run("daemon", "start", home=home)
    assert refused.returncode == 1
    assert "the daemon ended with exit code" in refused.stderr
    assert "not a" in refused.stderr


def test_two_that_start_at_the_same_moment_become_one(home: Path) -> None:
    data = home / ".standfast"
    with Running(data) as one, Running(data) as other:
        until(lambda: (one.process.poll() is None) != (other.process.poll() is None))
        stays, goes = (one, other) if one.process.poll() is None else (other, one)
        assert goes.process.returncode == 75
        stays.wait()
        assert stays.stop() == 0


# -- ending -------------------------------------------------------------------------------------------------


def test_a_stopping_daemon_waits_for_its_runs_and_starts_none(
    home: Path, sf: standfast.Standfast, tmp_path: Path
) -> None:
    wait = f"while [ ! -e {tmp_path}/go ]; do sleep 0.01; done"
    sf.loops.add("long", noting(tmp_path / "out", wait), every="1s", overlap="queue", cwd="/")
    with Running(home / ".standfast") as running:
        until(lambda: noted(tmp_path / "out"))
        running.process.send_signal(signal.SIGTERM)
        running.wait("draining")
        (tmp_path / "go").touch()
        assert running.process.wait(60) == 0
    assert [one.state for one in sf.runs.list("long", limit=1000) if one.started_us] == ["done"]
    assert sum(noted(tmp_path / "out").values()) == 1
    assert sf.leases.get(name_of([account()])).holder is None


@pytest.mark.parametrize(("words", "signals"), [(("--grace", "100ms"), 1), (("--grace", "1h"), 2)])
def test_after_its_grace_or_a_second_signal_it_kills_its_runs(
    home: Path, sf: standfast.Standfast, tmp_path: Path, words: tuple[str, ...], signals: int
) -> None:
    sf.loops.add("long", noting(tmp_path / "out", "exec sleep 60"), every="1s", cwd="/")
    with Running(home / ".standfast", *words) as running:
        until(lambda: noted(tmp_path / "out"))
        running.process.send_signal(signal.SIGTERM)
        if signals == 2:
            running.wait("draining")
            running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(60) == 0
    (row,) = [one for one in sf.runs.list("long", limit=1000) if one.started_us]
    assert (row.state, row.reason) == ("cancelled", "the daemon was stopped")


def test_another_store_in_the_configuration_ends_it_to_be_started_again(home: Path, tmp_path: Path) -> None:
    """003-25: when the configured store changes, the daemon drains and then exits to be restarted."""
    other = str(tmp_path / "other.db")
    with Running(home / ".standfast", HOME=str(home)) as running:
        running.wait()
        (home / ".standfast" / "config.toml").write_text("db_url = [")
        until(lambda: [part for part in running.status()["parts"] if part["state"] == "failing"])
        (home / ".standfast" / "config.toml").write_text(f'db_url = "{other}"\n')
        assert running.process.wait(60) == 75
        assert f"the store is {other} now: ending" in running.said()
    started = said("daemon", "start", home=home)
    assert started["store"] == other
    (home / ".standfast" / "config.toml").unlink()
    # No other process would restart the daemon, so it restarts itself.
    until(
        lambda: said("daemon", "status", home=home)["store"] == str(home / ".standfast" / "standfast.db"), every_s=0.3
    )
    assert said("daemon", "status", home=home)["pid"] == started["pid"]


def test_a_pid_file_that_was_taken_away_ends_it(home: Path) -> None:
    with Running(home / ".standfast") as running:
        running.wait()
        (home / ".standfast" / "daemon.pid").unlink()
        assert running.process.wait(60) == 75
        assert "was taken away" in running.said()


def test_the_daemon_survives_a_closed_pipe_and_ends_with_its_terminal(home: Path) -> None:
    data = home / ".standfast"
    reader, writer = os.pipe()
    with Running(data) as running:
        running.wait()
        assert running.stop() == 0
    process = subprocess.Popen(
        [sys.executable, "-m", "standfast", "daemon", "run"],
        env={**os.environ, "STANDFAST_DATA_DIR": str(data)},
        stderr=writer,
        cwd=home,
    )
    os.close(writer)
    os.close(reader)
    until(lambda: json.loads((data / "daemon" / "status.json").read_text())["state"] == "active")
    process.send_signal(signal.SIGHUP)
    assert process.wait(60) == 0


# -- the unit -------------------------------------------------------------------------------------------------


def test_the_unit_is_shown_written_and_removed(home: Path) -> None:
    path = home / ".config" / "systemd" / "user" / "standfast.service"
    shown = run("daemon", "install", "--dry-run", home=home)
    assert "ExecStart=" in shown.stdout
    assert not path.exists()
    done = run("daemon", "install", home=home)
    assert done.stdout == f"{path} is written\n"
    assert "systemctl --user daemon-reload && systemctl --user enable --now standfast" in done.stderr
    assert "loginctl enable-linger" in done.stderr
    assert path.read_text() == shown.stdout
    assert run("daemon", "install", home=home).stdout == f"{path} was there already\n"
    if shutil.which("systemd-analyze"):
        checked = subprocess.run(["systemd-analyze", "verify", "--user", str(path)], capture_output=True, text=True)
        assert "standfast.service" not in checked.stderr, checked.stderr
    enabled = path.parent / "default.target.wants" / path.name  # as `systemctl enable` leaves it
    enabled.parent.mkdir()
    enabled.symlink_to(path)
    removed = run("daemon", "install", "--remove", home=home)
    assert (removed.returncode, "systemctl --user stop standfast" in removed.stderr) == (0, True)
    assert not path.exists()
    assert not enabled.is_symlink()
    assert run("daemon", "install", "--remove", home=home).returncode == 3


def test_the_unit_of_another_program_is_not_changed(home: Path) -> None:
    path = home / ".config" / "systemd" / "user" / "standfast.service"
    path.parent.mkdir(parents=True)
    path.write_text("[Service]\nExecStart=/bin/true\n")
    for words in (("install",), ("install", "--remove")):
        refused = run("daemon", *words, home=home)
        assert (refused.returncode, path.read_text()) == (4, "[Service]\nExecStart=/bin/true\n")


def test_no_password_is_written_into_the_unit(home: Path) -> None:
    done = run("daemon", "install", home=home, STANDFAST_DB_URL="postgresql://ada:secret@db/x")
    text = (home / ".config" / "systemd" / "user" / "standfast.service").read_text()
    assert "secret" not in text + done.stdout + done.stderr
    assert "standfast db pg URL --global" in done.stderr


def test_arguments_in_a_unit_are_quoted(tmp_path: Path) -> None:
    environ = {"STANDFAST_DATA_DIR": "x", "HOME": str(tmp_path)}
    text = unit.text(environ=environ, data_dir='/srv/50% "of" $it', grace_s=5)
    assert 'Environment="STANDFAST_DATA_DIR=/srv/50%% \\"of\\" $$it"' in text
    with pytest.raises(InvalidInput):
        unit.text(environ=environ, data_dir="/srv/a\nExecStart=/bin/evil", grace_s=5)
    path = unit.place(environ)
    assert unit.write(path, text)
    assert not unit.write(path, text)
    unit.remove(path)
    with pytest.raises(NotFound):
        unit.remove(path)
    Path(path).write_text("theirs")
    with pytest.raises(Conflict):
        unit.write(path, text)


def test_systemd_is_notified_when_the_daemon_is_ready(home: Path, tmp_path: Path) -> None:
    import socket

    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(address)
        listener.settimeout(60)
        with Running(home / ".standfast", NOTIFY_SOCKET=address) as running:
            assert listener.recv(100) == b"READY=1"
            assert listener.recv(100) == b"WATCHDOG=1"
            assert running.stop() == 0
        heard = set()
        listener.setblocking(False)
        while "STOPPING=1" not in heard:
            heard.add(listener.recv(100).decode())


def test_a_command_does_not_inherit_what_was_meant_for_the_daemon(
    home: Path, sf: standfast.Standfast, tmp_path: Path
) -> None:
    command = f"env > {tmp_path}/env.new; mv {tmp_path}/env.new {tmp_path}/env"
    sf.loops.add("env", ["sh", "-c", command], every="1s", cwd="/")
    with Running(home / ".standfast", NOTIFY_SOCKET="/nowhere", WATCHDOG_USEC="1", MINE="yes") as running:
        running.wait()
        until((tmp_path / "env").exists)
    found = dict(line.partition("=")[::2] for line in (tmp_path / "env").read_text().splitlines())
    assert "NOTIFY_SOCKET" not in found
    assert "WATCHDOG_USEC" not in found
    assert (found["MINE"], found["STANDFAST_LOOP"], found["STANDFAST_ACTOR"]) == ("yes", "env", "loop:env")
    assert found["STANDFAST_RUN"].startswith("run_")
    assert os.path.exists(home / ".standfast" / "daemon.pid")
