"""How `standfast once` runs its command.

The child process starts blocked, and runs the command after it receives one message. Therefore the child exists and
holds the effect before the command does anything. If the key was done before, the command never starts. The process of
the command is the holder, not this process: if either of them is killed, the next call can see whether the command
still runs.

    fork ── waits ──────────────────── execs ──── ends
       └── record the intent ──▶ go ── watch ──┴─▶ record its answer, exit as it did
"""

from __future__ import annotations

import os
import re
import signal
import sys
from time import localtime, strftime, time
from typing import TYPE_CHECKING, Any, NamedTuple

from standfast import clock, serial
from standfast.cli import once_files
from standfast.cli.open_store import agent_session
from standfast.cli.output import Out, dumps
from standfast.cli.render import printed
from standfast.clock import format_duration
from standfast.config import load
from standfast.errors import EffectInDoubt
from standfast.ledger.effects.call import Applied, Call, NotApplied, Unknown
from standfast.ledger.effects.declared import Options

if TYPE_CHECKING:
    from collections.abc import Callable

    from standfast.cli.child import Child
    from standfast.clock import Clock
    from standfast.handle import Standfast
    from standfast.ledger.effects.identity import Request
    from standfast.ledger.effects.models import Effect

PROBE_APPLIED = 0
PROBE_NOT_APPLIED = 3
PROBE_MAX_S = 600.0


class Asked(NamedTuple):
    """The parsed command line."""

    key: str
    begins_us: int | None
    argv: tuple[str, ...]
    by: str | None
    probe: str | None
    no_probe: bool
    settle_us: int | None
    retry_failed: bool
    again: bool
    approve: bool
    attempts: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    why: str | None
    session: str | None
    task: str | None
    cwd: str


class Refused(NotApplied):
    """The command did nothing: it could not start, or a non-zero exit counts as not applied."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(why)
        self.code = code


class Failed(Exception):
    """The command exited with a non-zero code: it may have acted in part or completely."""

    def __init__(self, code: int, streams: dict[str, Any]) -> None:
        super().__init__(f"exit {code}")
        self.result = {"exit": code, **streams}


class Killed(Exception):
    """A signal ended the command: its outcome is unknown."""

    def __init__(self, number: int) -> None:
        super().__init__(f"ended by {signal.Signals(number).name}")
        self.number = number


def run_once(out: Out, asked: Asked) -> int:
    """Run the command or replay its output. Returns its exit code."""
    from standfast.cli.child import blocked_child
    from standfast.handle import connect

    settings = load()
    shown = out.for_people
    with (
        blocked_child(asked.argv, capture=True, shown=shown) as child,
        connect(settings, pid=child.pid) as sf,
    ):
        return _Once(out, sf, asked, child).run()


class _Once:
    def __init__(self, out: Out, sf: Standfast, asked: Asked, child: Child) -> None:
        self.out = out
        self.sf = sf
        self.asked = asked
        self.child = child

    def run(self) -> int:
        from standfast.ledger.effects.perform import walk

        wanted = self.request()
        try:
            text, replayed = walk(self.sf._store, wanted)
        except Refused as error:
            self.out.say(*(f"standfast: {line}" for line in str(error).splitlines() if error.code in (126, 127)))
            return error.code
        except Failed as error:
            return self.failed(wanted, error)
        except EffectInDoubt as error:
            raise self.failure_or(wanted, error) from None
        except Killed as error:
            self.out.error("effect_in_doubt", str(error), "\n".join(getattr(error, "__notes__", [])))
            return 128 + error.number
        result = serial.read(text)
        if replayed and isinstance(result, dict):
            once_files.written_again(self.out, self.sf, result.get("files"))
        if self.out.for_people:
            return self.replay(wanted, result) if replayed else _exit_of(result)
        self.record(wanted, result, replayed=replayed)
        return _exit_of(result)

    def record(self, wanted: Request, result: Any, *, replayed: bool) -> None:
        found = self.sf.effects._by_key(wanted.key, wanted.scope)
        about = {"id": found.id, "key": found.key, "state": found.state, "attempt": found.attempt}
        self.out.record({**about, "replayed": replayed, "ended_us": found.ended_us, "result": result})

    def failed(self, wanted: Request, error: Failed) -> int:
        """Exit with the code of the command, and print below its output what the next call can do."""
        if not self.out.for_people:
            self.record(wanted, error.result, replayed=False)
        elif wanted.asking is None:
            self.out.say(f"standfast: {error}; it may have happened in part. {self.ways()}")
        return int(error.result["exit"])

    def ways(self) -> str:
        return "Run it again: --again. Count failures as not applied: --retry-failed."

    def failure_or(self, wanted: Request, error: EffectInDoubt) -> EffectInDoubt:
        """For a command that failed, an error that names the options; otherwise the given error."""
        found = self.sf.effects.get(error.effect_id)
        code = _failed_with(found)
        if found.key != wanted.key or code is None:
            return error
        words = (
            f"failed at {_when(found.gave_up_us or found.updated_us)} with exit {code}; it may have happened in part"
        )
        failure = EffectInDoubt(f"{wanted.key}: {words}", f"{self.ways()}\n{error.hint}")
        failure.effect_id = error.effect_id
        return failure

    def request(self) -> Request:
        from standfast.cli.once_probe import ready_probe
        from standfast.core.leases import ACTOR_US
        from standfast.ledger.effects import identity
        from standfast.ledger.effects.intent import request

        asked = self.asked
        gates = [*self.sf.gates.check(asked.argv), *self.sf.gates.check(asked.probe or "")]
        gate = next((gate.pattern for gate in gates if gate.needs_person), None)
        intent: dict[str, Any] = {"argv": list(asked.argv)}
        if asked.by is not None:
            intent["by"] = asked.by
        by: tuple[str, ...] = ("by",) if asked.by is not None else ("argv",)
        if asked.inputs:
            intent["in"] = once_files.digests(asked.inputs)
            by += ("in",)
        approve = asked.approve or gate is not None
        settle = None if asked.settle_us is None else asked.settle_us / 1_000_000
        options = Options(by=by, approve=approve, retry=asked.attempts, why=asked.why, key=asked.key)
        session = asked.session or agent_session(self.sf)
        within = self.sf.effects._session(session) if session else None
        scope = within["scope"] if within else self.sf.scope
        context: dict[str, Any] = {"cwd": asked.cwd, "host": os.uname().nodename, "probe": asked.probe}
        ready = None if asked.probe or asked.no_probe else ready_probe(asked.argv, asked.cwd)
        if ready is not None:
            context |= {"probe": ready.shown, "action": ready.facts}
            options = options._replace(idempotent=ready.idempotent)
        wanted = request("once", options, intent, scope=scope, context=context).within(within)
        if not self.counted_as_not_applied(wanted) and asked.again:
            key, n = self.sf.effects._again(wanted.key, scope)
            wanted = wanted._replace(key=key, n=n)
        asking = None
        if asked.probe:
            asking = identity.Asking("once", self.ask, asked.probe, identity.settle_us(settle), wait=self.wait)
        elif ready is not None:
            asking = ready.asking(self.sf, wanted, settle, self.wait, self.child.mask)
        task_id = self.sf.effects._task(asked.task) if asked.task else None
        # One run of the command per call: `--attempts` is only how many dispatches the approval allows.
        wanted = wanted._replace(act=self.act, asking=asking, retry=1, begins_us=asked.begins_us)
        return wanted._replace(task_id=task_id, gate=gate, for_us=ACTOR_US)

    def counted_as_not_applied(self, wanted: Request) -> bool:
        """Settle a doubt about this key as not applied, if --again or --retry-failed allows it."""
        given = "--again" if self.asked.again else "--retry-failed"
        found = (
            self.sf.effects._maybe(wanted.key, wanted.scope) if self.asked.again or self.asked.retry_failed else None
        )
        if found is None or not found.in_doubt:
            return False
        if not self.asked.again and _failed_with(found) is None:
            return False  # a signal ended it: --retry-failed covers exit codes only
        evidence = f"run again with {given}; before: {found.error or 'no answer'}"
        self.sf.effects.resolve(found.id, "not_applied", evidence=evidence, attempt=found.attempt)
        return True

    # -- first run --------------------------------------------------------------------------------

    def act(self, _: Any, call: Call) -> dict[str, Any]:
        self.child.go({"STANDFAST_CALL_KEY": call.key, "STANDFAST_ATTEMPT": str(call.attempt)})
        code = self.child.wait()
        if code < 0:
            raise Killed(-code)
        if self.child.failure is not None:
            raise Refused(code, self.child.failure)
        if code != 0 and self.asked.retry_failed:
            raise Refused(code, f"exit {code}")
        redact = self.sf._store.redact
        streams = {name: getattr(self.child, name).value(redact=redact) for name in ("stdout", "stderr")}
        if code != 0:
            raise Failed(code, streams)
        files = once_files.stored(self.out, self.sf, self.asked.outputs)
        return {"exit": 0, **streams, **({"files": files} if files else {})}

    def ask(self, _: Any, call: Call) -> Applied | NotApplied | Unknown:
        import subprocess

        from standfast.cli.child import Capture

        assert self.asked.probe is not None
        before = signal.pthread_sigmask(signal.SIG_SETMASK, self.child.mask)
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
        """Wait before the probe runs again. Ctrl-C ends the wait."""
        self.out.say(
            f"standfast: the probe says not applied; it runs again in {format_duration(us, parts=1)} (--settle)"
        )
        before = signal.pthread_sigmask(signal.SIG_SETMASK, self.child.mask)
        try:
            clock.wait(of, us)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    # -- stored answer ----------------------------------------------------------------------------

    def replay(self, wanted: Request, result: Any) -> int:
        """Print the recorded output byte for byte; on a terminal, escape its control characters."""
        from standfast.cli.child import bytes_of

        found = self.sf.effects._by_key(wanted.key, wanted.scope)
        self.out.say(f"standfast: replayed from {_when(found.ended_us or found.updated_us)}")
        answer = result if isinstance(result, dict) and "exit" in result else {"stdout": _resolved_text(result)}
        for stream, name in ((sys.stdout, "stdout"), (sys.stderr, "stderr")):
            stream.flush()
            data = bytes_of(answer.get(name))
            stream.buffer.write(printed(data.decode(errors="backslashreplace")).encode() if stream.isatty() else data)
            stream.flush()
        return _exit_of(result)


def _failed_with(found: Effect) -> int | None:
    """The exit code of the command, if it failed and the effect is therefore in doubt."""
    said = re.fullmatch(r"Failed: exit (\d+)", found.error or "")
    return int(said.group(1)) if said else None


def _exit_of(result: Any) -> int:
    code = result.get("exit") if isinstance(result, dict) else None
    return code if isinstance(code, int) else 0


def _resolved_text(result: Any) -> str:
    """The result that a person gave with `effect resolve`, as output."""
    if result is None:
        return ""
    return f"{result if isinstance(result, str) else dumps(result)}\n"


def _when(us: int) -> str:
    then = localtime(us // 1_000_000)
    today = strftime("%F", localtime(time())) == strftime("%F", then)
    return strftime("%H:%M" if today else "%Y-%m-%d %H:%M", then)


def compensating(command: tuple[str, ...]) -> Callable[[Any], dict[str, int]]:
    """A function that runs the command of `effect compensate`, with the recorded result on stdin."""

    def run(result: Any) -> dict[str, int]:
        import subprocess

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
