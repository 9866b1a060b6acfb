"""How `standfast once` runs its command.

The command is started stopped: it waits for one word from us before it becomes the command. So it
exists, and holds the effect, before it does anything; and if the key was done before, it never
begins. The holder is the command's own process, not ours: whoever of the two is killed, the
next call sees at once whether anybody is still at it.

    fork ── waits ──────────────────── execs ──── ends
       └── record the intent ──▶ go ── watch ──┴─▶ record its answer, exit as it did
"""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from standfast import clock
from standfast.cli.output import Out
from standfast.ledger.effects.call import Applied, Call, NotApplied, Unknown
from standfast.ledger.effects.declared import Options

if TYPE_CHECKING:
    from collections.abc import Callable

    from standfast.clock import Clock
    from standfast.handle import Standfast
    from standfast.ledger.effects.identity import Wanted
    from standfast.ledger.effects.work import Work

PROBE_APPLIED = 0
PROBE_NOT_APPLIED = 3
PROBE_MAX_S = 600.0


class Asked(NamedTuple):
    """What the command line said."""

    key: str
    argv: tuple[str, ...]
    by: str | None
    probe: str | None
    settle_us: int | None
    until_ok: bool
    again: bool
    approve: bool
    attempts: int
    why: str | None
    session: str | None
    task: str | None
    cwd: str


class Refused(NotApplied):
    """It ended, and by its own word nothing was done."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(why)
        self.code = code


class Killed(Exception):
    """It was ended by a signal: it has not answered."""

    def __init__(self, number: int) -> None:
        super().__init__(f"ended by {signal.Signals(number).name}")
        self.number = number


def run_once(out: Out, asked: Asked) -> int:
    """The exit code: the command's own, now or when it was run."""
    from standfast.cli.once_child import SIGNALS, Child
    from standfast.config import load
    from standfast.handle import connect

    settings = load()
    # From here on signals wait until we ask for them, in the child until it is the command.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        child = Child(asked.argv, mask, shown=out.for_people)
        try:
            with connect(settings, pid=child.pid) as sf:
                return _Once(out, sf, asked, child, mask).run()
        finally:
            child.never()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


class _Once:
    def __init__(self, out: Out, sf: Standfast, asked: Asked, child: Any, mask: Any) -> None:
        self.out = out
        self.sf = sf
        self.asked = asked
        self.child = child
        self.mask = mask

    def run(self) -> int:
        from standfast import serial
        from standfast.ledger.effects.performing import walk

        work, wanted = self.work()
        try:
            text, replayed = walk(self.sf._store, work, wanted)
        except Refused as error:
            self.out.say(*(f"standfast: {line}" for line in str(error).splitlines() if error.code in (126, 127)))
            return error.code
        except Killed as error:
            self.out.error("effect_in_doubt", str(error), "\n".join(getattr(error, "__notes__", [])))
            return 128 + error.number
        result = serial.read(text)
        if self.out.for_people:
            return self.replay(wanted, result) if replayed else _exit_of(result)
        found = self.sf.effects._by_key(wanted.key, wanted.scope)
        about = {"id": found.id, "key": found.key, "state": found.state, "attempt": found.attempt}
        self.out.record({**about, "replayed": replayed, "ended_us": found.ended_us, "result": result})
        return _exit_of(result)

    def work(self) -> tuple[Work, Wanted]:
        from standfast import serial
        from standfast.cli.store import agent_session
        from standfast.footings.leases import ACTOR_US
        from standfast.ledger.effects import identity
        from standfast.ledger.effects.work import Work, wanted_for

        asked = self.asked
        gates = [*self.sf.gates.check(asked.argv), *self.sf.gates.check(asked.probe or "")]
        gate = next((gate.pattern for gate in gates if gate.need == "approval"), None)
        intent: dict[str, Any] = {"argv": list(asked.argv)}
        if asked.by is not None:
            intent["by"] = asked.by
        by = ("by",) if asked.by is not None else ("argv",)
        approve = asked.approve or gate is not None
        settle = None if asked.settle_us is None else asked.settle_us / 1_000_000
        options = Options(by=by, approve=approve, attempts=asked.attempts, why=asked.why, settle=settle)
        fields = identity.project(intent, by)
        text = serial.dumps(intent, what="command")
        ask = self.ask if asked.probe else None
        work = Work("once", options, intent, text, fields, None, self.act, ask, wait=self.wait)
        key, n = identity.checked_key(asked.key), 1
        session = asked.session or agent_session(self.sf)
        within = self.sf.effects._session(session) if session else None
        scope = within["scope"] if within else self.sf.scope
        if asked.again:
            key, n = self.sf.effects._again(key, scope)
        context = {"cwd": asked.cwd, "host": os.uname().nodename, "probe": asked.probe}
        wanted = wanted_for(work, scope=scope, key=key, n=n, context=context).within(within)
        task_id = self.sf.effects._task(asked.task) if asked.task else None
        return work, wanted._replace(task_id=task_id, gate=gate, for_us=ACTOR_US)

    # -- doing and asking -------------------------------------------------------------------------

    def act(self, _: Any, call: Call) -> dict[str, Any]:
        self.child.go({"STANDFAST_CALL_KEY": call.key, "STANDFAST_ATTEMPT": str(call.attempt)})
        code = self.child.wait()
        if code < 0:
            raise Killed(-code)
        if self.child.failure is not None:
            raise Refused(code, self.child.failure)
        if code != 0 and self.asked.until_ok:
            raise Refused(code, f"exit {code}")
        redact = self.sf._store.redact
        return {
            "exit": code,
            "stdout": self.child.stdout.value(redact=redact),
            "stderr": self.child.stderr.value(redact=redact),
        }

    def ask(self, _: Any, call: Call) -> Applied | NotApplied | Unknown:
        import subprocess

        from standfast.cli.once_child import Capture

        assert self.asked.probe is not None
        before = signal.pthread_sigmask(signal.SIG_SETMASK, self.mask)
        try:
            done = subprocess.run(
                ["/bin/sh", "-c", self.asked.probe],
                check=False,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                timeout=PROBE_MAX_S,
                env={**os.environ, "STANDFAST_CALL_KEY": call.key},
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if done.returncode == PROBE_APPLIED:
            stdout = Capture()
            stdout.feed(done.stdout)
            return Applied({"exit": 0, "stdout": stdout.value(redact=self.sf._store.redact), "stderr": ""})
        if done.returncode == PROBE_NOT_APPLIED:
            return NotApplied("the probe exited 3")
        return Unknown(f"the probe exited {done.returncode}")

    def wait(self, of: Clock, us: int) -> None:
        """Before the probe is asked again; Ctrl-C ends the wait."""
        before = signal.pthread_sigmask(signal.SIG_SETMASK, self.mask)
        try:
            clock.wait(of, us)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    # -- answering from the record ----------------------------------------------------------------

    def replay(self, wanted: Wanted, result: Any) -> int:
        """The recorded output, byte for byte; on a terminal through the cleaner, because it is stored text now."""
        from standfast.cli.once_child import bytes_of
        from standfast.cli.render import printed

        found = self.sf.effects._by_key(wanted.key, wanted.scope)
        self.out.say(f"standfast: replayed from {_when(found.ended_us or found.updated_us)}")
        answer = result if isinstance(result, dict) and "exit" in result else {"stdout": _told(result)}
        for stream, name in ((sys.stdout, "stdout"), (sys.stderr, "stderr")):
            stream.flush()
            data = bytes_of(answer.get(name))
            stream.buffer.write(printed(data.decode(errors="backslashreplace")).encode() if stream.isatty() else data)
            stream.flush()
        return _exit_of(result)


def _exit_of(result: Any) -> int:
    code = result.get("exit") if isinstance(result, dict) else None
    return code if isinstance(code, int) else 0


def _told(result: Any) -> str:
    """What a person gave as the result when settling a doubt."""
    from standfast.cli.output import dumps

    if result is None:
        return ""
    return f"{result if isinstance(result, str) else dumps(result)}\n"


def _when(us: int) -> str:
    from time import localtime, strftime, time

    then = localtime(us // 1_000_000)
    today = strftime("%F", localtime(time())) == strftime("%F", then)
    return strftime("%H:%M" if today else "%Y-%m-%d %H:%M", then)


def undoing(command: tuple[str, ...]) -> Callable[[Any], dict[str, int]]:
    """A command as the undo of an effect: the recorded result on stdin, its output on stderr."""

    def run(result: Any) -> dict[str, int]:
        import subprocess

        from standfast.cli.output import dumps

        try:
            done = subprocess.run(command, check=False, input=dumps(result).encode(), stdout=sys.stderr.fileno())
        except OSError as error:
            raise NotApplied(f"{command[0]}: {error.strerror}") from None
        if done.returncode < 0:
            raise Killed(-done.returncode)
        if done.returncode > 0:
            raise NotApplied(f"{command[0]} exited {done.returncode}")
        return {"exit": 0}

    return run
