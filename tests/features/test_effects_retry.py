"""`retry=` and `standfast.NOT_SENT`: a retry happens only if nothing was sent. On both engines."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

import standfast
from standfast.ledger.effects import perform

PROGRAM = """
import sys, pathlib, standfast
from standfast.ledger.effects import perform
perform.RETRY_US = 0

@standfast.effect("post", by=(), not_applied=standfast.NOT_SENT, retry=5)
def post(call: standfast.Call) -> int:
    with open("world", "a") as world:
        world.write(f"{call.attempt}\\n")
    if call.attempt < 4:
        raise ConnectionRefusedError
    return call.attempt

with standfast.session("job"):
    print(post())
"""


@pytest.fixture
def nowhere() -> str:
    """An address of this machine where nothing listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{taken.getsockname()[1]}/"


def refused_by_httpx(url: str) -> None:
    httpx.post(url)


def refused_by_a_socket(url: str) -> None:
    socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2].strip("/"))))


def without_an_address(url: str) -> None:
    raise socket.gaierror(-2, "Name or service not known")


@pytest.mark.parametrize("send", [refused_by_httpx, refused_by_a_socket, without_an_address])
def test_what_never_connected_is_tried_again(
    sf: standfast.Standfast, monkeypatch: pytest.MonkeyPatch, nowhere: str, send: Callable[[str], None]
) -> None:
    """002-6: nothing was sent, so each attempt is known not applied."""
    monkeypatch.setattr(perform, "RETRY_US", 0)
    attempts: list[int] = []

    @standfast.effect("post.nowhere", by=(), not_applied=standfast.NOT_SENT, retry=3)
    def post(call: standfast.Call) -> None:
        attempts.append(call.attempt)
        send(nowhere)

    with pytest.raises(standfast.NOT_SENT[0] if send is refused_by_a_socket else Exception), sf.session("job"):
        post()
    assert attempts == [1, 2, 3]
    assert [one.state for one in sf.effects.list()] == ["failed"]


@pytest.mark.parametrize(
    "error",
    [ConnectionResetError(), TimeoutError(), httpx.ReadTimeout("late"), httpx.RemoteProtocolError("cut"), OSError("?")],
)
def test_what_may_have_arrived_is_in_doubt(sf: standfast.Standfast, error: Exception) -> None:
    """002-6: if a connection breaks after it was opened, the request may have arrived."""
    assert not isinstance(error, standfast.NOT_SENT)

    @standfast.effect("post.lost", by=(), not_applied=standfast.NOT_SENT, retry=3)
    def post() -> None:
        raise error

    with pytest.raises(type(error)), sf.session("job"):
        post()
    assert [(one.attempt, one.in_doubt) for one in sf.effects.list()] == [(1, True)]


@pytest.mark.parametrize("point", ["effect.before_fail:2", "effect.after_fail:2", "effect.before_begin:3"])
def test_the_count_of_attempts_survives_a_crash(engine_url: str, tmp_path: Path, point: str) -> None:
    """002-6: killed between two attempts, the next process continues counting, and each attempt has its rows."""
    (tmp_path / "agent.py").write_text(PROGRAM)
    environment = {**os.environ, "STANDFAST_DATA_DIR": str(tmp_path / "data"), "STANDFAST_DB_URL": engine_url}

    def run(**more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "agent.py"]
        given = {**environment, **more}
        return subprocess.run(command, cwd=tmp_path, env=given, capture_output=True, text=True, timeout=120)

    assert run(STANDFAST_CRASH_AT=point).returncode == -signal.SIGKILL
    again = run()
    sent = (tmp_path / "world").read_text().split()
    if point == "effect.before_fail:2":  # the second attempt is in doubt: the store has no record that nothing was sent
        assert again.returncode != 0
        assert "EffectInDoubt" in again.stderr
        assert sent == ["1", "2"]
        return
    assert again.stdout == "4\n", again.stderr
    assert sent == ["1", "2", "3", "4"]
    with standfast.open(engine_url, data_dir=tmp_path / "data") as sf:
        rows = sf.rows("SELECT state FROM effect_transition ORDER BY seq")
        assert [row["state"] for row in rows].count("dispatched") == 4
