"""Loops and runs as callers see them, made from rows of the tables, and the checks of arguments."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from standfast import serial
from standfast.clock import DAY_US, HOUR_US, SECOND_US
from standfast.core import keys, leases
from standfast.core.checks import NAME_MAX, REASON_MAX
from standfast.core.receipts import Receipt
from standfast.db.contract import Row, Tx
from standfast.errors import InvalidInput
from standfast.models import Model
from standfast.record.loops import schedule

LOOP_STATES = ("active", "paused", "finished", "removed")
RUN_STATES = ("queued", "running", "done", "failed", "timed_out", "skipped", "missed", "abandoned", "cancelled")
CATCH_UPS = ("latest", "all", "none")
OVERLAPS = ("skip", "queue")

CATCH_UP_MAX = 100
BACKOFF_US = 30 * SECOND_US
BACKOFF_MAX_US = HOUR_US
FAILURES_MAX = 5
ON_TIME_US = 60 * SECOND_US
"""A slot that is fired within this time is on time. Without catch-up, a later one is missed."""
SINGLE_MAX = 1_000
"""The most rows for the missed slots of one outage. Older slots become one row for their range."""
QUEUED_MAX = 1_000
"""The most runs of one loop that wait at the same time. The next slot is skipped."""
RETRIES_MAX = 100
TIMEOUT_MAX_US = 30 * DAY_US

COMMAND_MAX = 1_000
COMMAND_BYTES_MAX = 100_000
PATH_MAX = 4_096

_VARIABLE = "[A-Za-z_][A-Za-z0-9_]*"
_SECRET = "(?i)(key|token|secret|passw|pwd|credential|auth|cookie|session|private|signature|dsn)"


class Loop(Model):
    """A schedule, its command and its state."""

    id: str
    scope: str
    name: str
    kind: str
    """cron, every or once."""
    schedule: str
    """The five cron fields, the period in microseconds, or the time in microseconds."""
    zone: str
    command: tuple[str, ...]
    cwd: str
    environment: dict[str, str]
    catch_up: str
    catch_up_max: int
    overlap: str
    timeout_us: int | None
    retries_max: int
    backoff_us: int
    failures_max: int
    failures: int
    """Runs that failed permanently since the last success."""
    state: str
    """active, paused, finished (its only time is past) or removed."""
    reason: str | None
    """The reason why the loop is paused, finished or removed."""
    spec_hash: str
    anchor_us: int
    next_slot_us: int | None
    last_slot_us: int | None
    """The newest slot with a row."""
    agent: str
    created_us: int
    updated_us: int
    git_dir: str | None
    origin: str | None
    """The repository it was added in: its git directory and its origin."""
    account: str
    """`user@host` of the account that wrote it: a daemon of that account runs it."""
    host: str
    change: str | None = None
    """The result of `add`: new, same or changed."""
    receipt: Receipt | None = None

    @property
    def said(self) -> str:
        """Its schedule as text: every 15m."""
        return schedule.said(self.kind, self.schedule, self.zone)

    def as_json(self) -> dict[str, Any]:
        """Its fields without the values of variables that look like secrets."""
        return {**self.as_dict(), "environment": self.environment_shown}

    @property
    def environment_shown(self) -> dict[str, str]:
        """Its environment without the values of variables that look like secrets."""
        return shown_environment(self.environment)


class Job(Model):
    """The command of a run, for its worker."""

    command: tuple[str, ...]
    cwd: str
    environment: dict[str, str]
    timeout_us: int | None


class Run(Model):
    """One slot of a loop and its outcome."""

    id: str
    loop_id: str
    loop: str
    """The loop's name."""
    scope: str
    slot_us: int
    until_slot_us: int | None
    """The last slot of the range, if this row is for several slots."""
    slots: int
    source: str
    """slot: it was due; asked: a person or an agent requested it."""
    state: str
    reason: str | None
    """The reason for its outcome, or why it waits."""
    attempt: int
    """The number of attempts. It is the fencing token of the last worker."""
    ready_us: int
    exit_code: int | None
    duration_us: int | None
    host: str | None
    pid: int | None
    process: str | None
    """The identity of the child process, which stays unique when its pid is reused."""
    stdout_id: str | None
    stderr_id: str | None
    cancel_reason: str | None
    """The reason, if it was cancelled and its worker has not ended it yet."""
    holder: str | None
    agent: str | None
    lease_until_us: int | None
    created_us: int
    started_us: int | None
    ended_us: int | None
    git_dir: str | None
    origin: str | None
    """The repository of the run's loop."""
    standing: str
    """The state of its lease: free, live, over (its time ran out) or gone (its process is dead)."""
    job: Job | None = None
    """The command; only `claim` returns it."""
    receipt: Receipt | None = None

    def as_json(self) -> dict[str, Any]:
        """Its fields without the job, whose environment may have secrets."""
        return {name: value for name, value in self.as_dict().items() if name != "job"}

    @property
    def place(self) -> str:
        """The cursor of a list: pass it as `after=`."""
        return f"{self.slot_us}:{self.id}"


class Absent(Model):
    """Due slots of a loop without a row: no daemon has fired it."""

    loop_id: str
    scope: str
    name: str
    zone: str
    slot_us: int
    """The first of them."""
    until_slot_us: int
    """The last of them, so far."""
    slots: int
    last_slot_us: int | None
    """The newest slot that has a row."""
    git_dir: str | None
    origin: str | None
    account: str
    """The account whose daemon should fire it."""


_RUN = Run.column_names()[: Run.field_names().index("standing")]


def loop(row: Row, receipt: Receipt | None = None, *, change: str | None = None) -> Loop:
    words, environment = _words(row["command"]), _mapping(row["environment"])
    return Loop.from_row(row, command=words, environment=environment, change=change, receipt=receipt)


def run(tx: Tx, row: Row, receipt: Receipt | None = None, *, job: Job | None = None) -> Run:
    values = [row[name] for name in _RUN]
    return Run.from_values([*values, leases.judge(tx, row).state, job, receipt])


def job(row: Row) -> Job:
    """Make the model from a row of `loop`."""
    return Job(_words(row["command"]), row["cwd"], _mapping(row["environment"]), row["timeout_us"])


def _words(text: str) -> tuple[str, ...]:
    found = serial.read(text)
    assert isinstance(found, list)
    return tuple(map(str, found))


def _mapping(text: str | None) -> dict[str, str]:
    found = serial.read(text) if text else {}
    assert isinstance(found, dict)
    return {name: str(value) for name, value in found.items()}


# -- checks of arguments -------------------------------------------------------------------------------


def checked_command(command: object) -> tuple[str, ...]:
    if isinstance(command, str) or not isinstance(command, Sequence):
        raise InvalidInput(
            "a command is a list of words, not one text", "command=['make', 'nightly'], or ['sh', '-c', 'a | b']"
        )
    words = tuple(command)
    if not words or not all(isinstance(word, str) for word in words) or not words[0]:
        raise InvalidInput("a loop needs a command to run", "standfast loop add NAME --every 15m -- COMMAND …")
    if len(words) > COMMAND_MAX or sum(map(len, words)) > COMMAND_BYTES_MAX:
        raise InvalidInput("the command is too long", "put it into a script")
    for word in words:
        _storable(word, "a word of the command")
    return words


def checked_environment(environment: Mapping[str, object] | None) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in (environment or {}).items():
        if not re.fullmatch(_VARIABLE, str(name)):
            raise InvalidInput(f"{serial.clean(str(name), 60)!r} is not the name of a variable", "--env NAME=value")
        if not isinstance(value, str):
            raise InvalidInput(f"the variable {name} is text, not {type(value).__name__}")
        found[name] = _storable(value, f"the variable {name}")
    if sum(len(name) + len(value) for name, value in found.items()) > COMMAND_BYTES_MAX:
        raise InvalidInput("the environment is too large", "put it into a script")
    return found


def checked_one_of(value: object, what: str, known: tuple[str, ...]) -> str:
    if value not in known:
        raise InvalidInput(f"{what} is one of {', '.join(known)}, not {serial.clean(str(value), 30)!r}")
    return str(value)


def checked_reason(reason: object) -> str:
    if not isinstance(reason, str) or not reason.strip():
        raise InvalidInput("a reason is text, and not empty")
    return serial.clean(reason, REASON_MAX)


def checked_name(name: object) -> str:
    return keys.checked(name, "a loop's name", limit=NAME_MAX)


def checked_directory(cwd: object) -> str:
    if not isinstance(cwd, str) or not cwd or len(cwd) > PATH_MAX:
        raise InvalidInput("a working directory is a path", "--cwd DIRECTORY")
    return _storable(cwd, "the working directory")


def _storable(text: str, what: str) -> str:
    if found := re.search("[\x00\ud800-\udfff]", text):
        raise InvalidInput(f"{what} holds the character U+{ord(found[0]):04X}, which cannot be stored")
    return text


def shown_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without the values of variables that look like secrets."""
    from standfast.serial.redaction import redacted

    return {
        name: "(not shown)" if re.search(_SECRET, name) or ("://" in value and "@" in value) else redacted(value)
        for name, value in environment.items()
    }
