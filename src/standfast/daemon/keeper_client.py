"""The daemon's side of a keeper: start the keeper, start its command, adopt it, end it, read its result.

A keeper exists, and its identity is recorded, before the command does anything:

    start ── the keeper waits ── the run's row names it ── go ── the command runs ── result

The identity is host, boot, pid namespace, pid and start time, never a pid alone. So a daemon that finds a run of its
dead predecessor can distinguish these cases:

    the keeper is there              adopt it: nothing was lost, its answer will come
    gone, with a result              take the answer
    gone, and it never began         nothing happened: the run may be handed out again
    gone, begun, without a result    end the rest of its session; the outcome is unknown

While a command may still run, nothing else is started for its slot.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from standfast.clock import SECOND_US
from standfast.core.leases import has_let_go, is_gone, is_here, parse_process, process
from standfast.daemon import keeper

if TYPE_CHECKING:
    from standfast.clock import Clock

SPOOL = "runs"
LEASE = "lease"
NEVER_MAX_S = 10.0
"""How long an unused keeper may take to end by itself, before it is killed."""
RESULT_MAX_BYTES = 1024 * 1024


class Result(NamedTuple):
    """How a command ended, as its keeper recorded it."""

    code: int | None
    """The command's exit code, negative for a signal. None if the command was never started."""
    why: str | None
    """timed_out, cancelled or lost if standfast ended the command. None if the command ended by itself."""
    failure: str | None
    duration_us: int
    stdout: bytes
    stderr: bytes


class RunOutputs:
    """The private directory in which keepers leave their results."""

    def __init__(self, data_dir: str, clock: Clock) -> None:
        self.directory = os.path.join(data_dir, "daemon")
        self.clock = clock
        self._ours: dict[str, subprocess.Popen[bytes]] = {}
        """Keepers that this process started and has to wait for, by identity."""
        for path in (self.directory, os.path.join(self.directory, SPOOL)):
            with suppress(FileExistsError):
                os.mkdir(path, 0o700)

    @property
    def lease(self) -> str:
        return os.path.join(self.directory, LEASE)

    def place(self, run_id: str, attempt: int) -> str:
        return os.path.join(self.directory, SPOOL, f"{run_id}.{attempt}")

    def start(self, run_id: str, attempt: int) -> Child:
        """Start a keeper that waits for its command. It must not inherit descriptors or signals of the daemon."""
        place = self.place(run_id, attempt)
        shutil.rmtree(place, ignore_errors=True)
        os.mkdir(place, 0o700)
        popen = subprocess.Popen(
            [sys.executable, "-I", "-S", keeper.__file__, place],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        identity = str(process(popen.pid, self.clock))
        self._ours = {name: one for name, one in self._ours.items() if one.poll() is None} | {identity: popen}
        return Child(self, run_id, attempt, identity, popen)

    def adopted(self, run_id: str, attempt: int, identity: str) -> Child:
        """The keeper of another daemon, or a keeper that this daemon started before its claim was confirmed."""
        return Child(self, run_id, attempt, identity, self._ours.get(identity))

    def promise(self, until_us: int) -> float:
        """Write the end of our lease for all keepers: no other process takes over a run before it. Returns this time by
        the clock that the keepers use.
        """
        moment = keeper.now() + max(0, until_us - self.clock.mono_us()) / SECOND_US
        fd = os.open(self.lease + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with open(fd, "w") as file:
            file.write(str(moment))
        os.rename(self.lease + ".new", self.lease)
        return moment

    def left_behind(self) -> list[tuple[str, int]]:
        """Every (run, attempt) that has a directory here."""
        found = []
        for name in os.listdir(os.path.join(self.directory, SPOOL)):
            run_id, _, attempt = name.rpartition(".")
            if run_id and attempt.isdigit():
                found.append((run_id, int(attempt)))
        return sorted(found)

    def forget(self, run_id: str, attempt: int) -> None:
        shutil.rmtree(self.place(run_id, attempt), ignore_errors=True)


class Child:
    """One keeper, of this daemon or of a dead one."""

    def __init__(
        self, spool: RunOutputs, run_id: str, attempt: int, identity: str, popen: subprocess.Popen[bytes] | None = None
    ) -> None:
        self.spool = spool
        self.run_id = run_id
        self.attempt = attempt
        self.process = identity
        self._popen = popen
        found = parse_process(identity)
        self.pid = found.pid if found else 0

    @property
    def place(self) -> str:
        return self.spool.place(self.run_id, self.attempt)

    def go(self, spec: dict[str, Any]) -> None:
        """Send the command. If this process dies before the message is complete, the keeper starts nothing."""
        assert self._popen is not None
        assert self._popen.stdin is not None
        with suppress(BrokenPipeError):  # the keeper was killed before it started the command
            self._popen.stdin.write(json.dumps(spec).encode() + b"\n")
            self._popen.stdin.close()

    def never(self) -> None:
        """End the keeper before it starts its command."""
        if self._popen is not None:
            assert self._popen.stdin is not None
            self._popen.stdin.close()
            try:
                self._popen.wait(NEVER_MAX_S)
            except subprocess.TimeoutExpired:  # the keeper was stopped (SIGSTOP), or the machine is very slow
                self._popen.kill()
                self._popen.wait()
        self.spool.forget(self.run_id, self.attempt)

    @property
    def here(self) -> bool:
        if self._popen is not None:
            return self._popen.poll() is None
        return is_here(self.process, self.spool.clock)

    @property
    def gone(self) -> bool:
        """Whether the keeper is certainly dead. False for a keeper on another machine, which cannot be checked."""
        if self._popen is not None:
            return self._popen.poll() is not None
        return self.rebooted or is_gone(self.process, self.spool.clock)

    @property
    def rebooted(self) -> bool:
        """Whether the keeper ran on this machine and data directory before a reboot, so it is dead."""
        found, ours = parse_process(self.process), process(os.getpid(), self.spool.clock)
        return found is not None and found.host == ours.host and found.boot != ours.boot and self.known

    @property
    def known(self) -> bool:
        """Whether its directory is in our data directory. Otherwise the keeper writes its result into another data
        directory."""
        return os.path.isdir(self.place)

    @property
    def never_began(self) -> bool:
        """Whether the command certainly did not begin. False without its directory or after a reboot, because the mark
        may be lost then."""
        return self.known and not self.rebooted and not os.path.exists(os.path.join(self.place, "begun"))

    def end(self, *, now: bool = False) -> None:
        """Ask the keeper to end the command: by SIGTERM and later SIGKILL, or with `now` by SIGKILL immediately."""
        if self.here:
            _signal(self.process, self.spool.clock, signal.SIGUSR1 if now else signal.SIGTERM)

    def result(self) -> Result | None:
        try:
            with open(os.path.join(self.place, "result"), "rb") as file:
                said = json.loads(file.read(RESULT_MAX_BYTES))
            return Result(
                code=said["code"],
                why=said["why"],
                failure=said["failure"] or said.get("output_lost"),
                duration_us=int(said["duration_us"]),
                stdout=self._stream("stdout"),
                stderr=self._stream("stderr"),
            )
        except (OSError, ValueError, KeyError, TypeError):
            return None  # the file is missing or not ours: the outcome is unknown

    def _stream(self, name: str) -> bytes:
        try:
            with open(os.path.join(self.place, name), "rb") as file:
                return file.read(RESULT_MAX_BYTES)
        except FileNotFoundError:
            return b""

    def leftovers(self) -> list[int]:
        """The process groups that are left in the session of a dead keeper.

        The kernel does not reuse the pid of a session leader while the session exists. So every process in the session
        of a dead keeper was started by its command.
        """
        if not self.gone or self.pid <= 1 or self.rebooted:
            return []
        return sorted({group for group, session in _sessions() if session == self.pid})

    def end_leftovers(self) -> bool:
        """Kill the processes that are left in its session. True if none is left."""
        for group in self.leftovers():
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGKILL)
        return not self.leftovers()


def _signal(identity: str, clock: Clock, number: signal.Signals) -> None:
    """Send a signal to exactly this process: open its descriptor first, then compare the identity."""
    found = parse_process(identity)
    if found is None:
        return
    with suppress(ProcessLookupError, PermissionError):
        if not hasattr(os, "pidfd_open"):
            os.kill(found.pid, number)
            return
        fd = os.pidfd_open(found.pid)
        try:
            if is_here(identity, clock):
                signal.pidfd_send_signal(fd, number)
        finally:
            os.close(fd)


def _sessions() -> list[tuple[int, int]]:
    """(process group, session) of every visible process that has not ended."""
    found = []
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if name.isdigit():
            with suppress(OSError, IndexError, ValueError), open(f"/proc/{name}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
                if not has_let_go(fields):
                    found.append((int(fields[2]), int(fields[3])))
    return found
