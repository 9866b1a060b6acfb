"""Run the commands that are stored with values, to check the values. Only this module runs them.

Another program may have written a stored command. It runs only when a person, or a loop of a person, runs
`standfast state check`. It never runs for an agent or for an imported value. A person must confirm a command of another
actor before its first run. Commands run one at a time, outside any transaction, each in its own process group and with
a limit for its time and its output. The verdict is recorded for the version that was read; a value that changed
meanwhile gets none.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from standfast import crash, hints, serial
from standfast.clock import parse_duration
from standfast.config import people
from standfast.errors import ApprovalRequired, InvalidInput, NotFound, VersionConflict

if TYPE_CHECKING:
    from standfast.handle import Standfast
    from standfast.record.state import Entry

NONE = "no value here has a command that checks it"
TIMEOUT_MAX_S = 600.0
OUTPUT_MAX_BYTES = 2_000
"""The last bytes of a command's output that are stored."""
VALUE_MAX_BYTES = 100_000
"""A larger value is not in the variable, only on stdin."""
PAGE = 1_000
POLL_S = 0.05


def chosen(sf: Standfast, keys: Sequence[str], namespace: str) -> list[Entry]:
    """The entries to check. Raises NotFound for a key without a command."""
    if not keys:
        return list(_all(sf, namespace))
    found = [sf.state.get(key, namespace=namespace) for key in dict.fromkeys(keys)]
    for one in found:
        if one.verify is None:
            raise NotFound(
                f"state {one.key!r} has no command that checks it",
                f"store a command: {hints.command('state', 'set', one.key)} VALUE --verify COMMAND",
            )
    return found


def _all(sf: Standfast, namespace: str) -> Iterator[Entry]:
    after = ""
    while page := sf.state.to_verify(namespace=namespace, after=after, limit=PAGE):
        yield from page
        after = page[-1].key


def run(sf: Standfast, entries: Sequence[Entry], timeout_s: float) -> list[Entry]:
    """Run the command of each value, one after the other, and record its answer."""
    from standfast.serial.redaction import redacted

    people.refuse("runs stored commands")
    found = []
    for one in entries:
        if one.verify is None or one.verify_by is None:
            found.append(one.replace(verdict=None, evidence="imported: read its command, then set it again"))
            continue
        if (reason := _unconfirmed(sf, one)) is not None:
            found.append(one.replace(verdict=None, evidence=reason))
            continue
        crash.point("state.before_verify")
        verdict, evidence = ask(one, timeout_s)
        if sf._store.redact:
            evidence = redacted(evidence)
        found.append(_recorded(sf, one, verdict, evidence))
    return found


def _unconfirmed(sf: Standfast, one: Entry) -> str | None:
    """Why the command of this entry must not run; None if this person wrote it, or a person has confirmed it."""
    from standfast.cli.command_consent import Stored, confirm, is_confirmed, is_mine

    assert one.verify is not None
    stored = Stored(one.verify, os.getcwd(), (one.verify_by,) if one.verify_by else ())
    data_dir = sf.settings.data_dir
    if is_mine(stored, sf.settings.actor) or is_confirmed(stored, data_dir):
        return None
    namespace = ("--namespace", one.namespace) if one.namespace else ()
    again = hints.command("state", "check", one.key, *namespace)
    try:
        confirm(stored, data_dir, again)
    except ApprovalRequired as error:
        return f"not run: stored by {one.verify_by}: {error.hint}"
    return None


def _recorded(sf: Standfast, one: Entry, verdict: str, evidence: str) -> Entry:
    asked: dict[str, Any] = {"version": one.version, "namespace": one.namespace}
    try:
        return sf.state.verified(one.key, verdict=verdict, evidence=evidence, **asked)
    except (VersionConflict, NotFound) as error:  # check the other values too
        return one.replace(verdict=None, evidence=f"the value changed while its command ran: {error.message}")


def ask(one: Entry, timeout_s: float) -> tuple[str, str]:
    """Run the command of one value: its verdict and evidence."""
    assert one.verify is not None
    text = serial.canonical(one.value)
    environment = os.environ | {"STANDFAST_STATE_KEY": one.key, "STANDFAST_STATE_NAMESPACE": one.namespace}
    words = one.value if isinstance(one.value, str) else text
    if len(words.encode()) <= VALUE_MAX_BYTES:
        environment["STANDFAST_STATE_VALUE"] = words
    with tempfile.TemporaryFile() as given:  # a file, not a pipe: it need not be read
        given.write(text.encode() + b"\n")
        given.seek(0)
        child = subprocess.Popen(
            ["/bin/sh", "-c", one.verify],
            stdin=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
    output, code = _heard(child, time.monotonic() + timeout_s)
    return _verdict(code), _evidence(code, timeout_s, output)


def checked_timeout_s(text: str) -> float:
    timeout_s = parse_duration(text) / 1_000_000
    if not 0 < timeout_s <= TIMEOUT_MAX_S:
        raise InvalidInput(f"a command may take up to {TIMEOUT_MAX_S / 60:.0f} minutes", "--timeout 30s")
    return timeout_s


def _heard(child: subprocess.Popen[bytes], end: float) -> tuple[str, int | None]:
    """The end of the output, and the exit code: None after the timeout. At the end its process group is killed."""
    assert child.stdout is not None
    said, pipe = b"", child.stdout.fileno()
    try:
        while (left_s := end - time.monotonic()) > 0:
            ready, _, _ = select.select([pipe], [], [], min(left_s, POLL_S))
            part = os.read(pipe, 65_536) if ready else None
            said = (said + part)[-OUTPUT_MAX_BYTES:] if part else said
            # A background process of the command may keep the pipe open after the command has ended.
            if part == b"" or (part is None and child.poll() is not None):
                break
        with suppress(subprocess.TimeoutExpired):
            child.wait(max(0.0, end - time.monotonic()))
        return said.decode(errors="replace").strip(), child.poll()
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        child.stdout.close()


def _verdict(code: int | None) -> str:
    if code == 0:
        return "fresh"
    # The command could not be run, did not end, or was killed: the value may be right or wrong.
    return "unknown" if code is None or code < 0 or code in (126, 127) else "stale"


def _evidence(code: int | None, timeout_s: float, output: str) -> str:
    fact = f"no answer in {timeout_s:g} s" if code is None else f"signal {-code}" if code < 0 else f"exit {code}"
    return f"{fact}: {output}" if output else fact
