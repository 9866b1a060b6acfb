"""Crash points: the named places where a process may die, and the ways to make it die there.

A crash window in the code is marked `crash.point("effect.before_done")`. Without a hook, the call does nothing.
`STANDFAST_CRASH_AT=effect.before_done:2` kills the process with SIGKILL the second time it passes this point. No
handler runs and nothing is flushed. A hook replaces the attribute `point` of this module, so callers write
`crash.point(…)` and never import the name.

`sweep` kills a program at every point that it passes, kills the recovery at every point that the recovery passes, and
calls a check after each. Everything runs in forked children; the parent never touches the store.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Final, NoReturn

from standfast.errors import InvalidInput

POINTS: Final[dict[str, str]] = {
    "commit.before_begin": "A write is wanted; no transaction is open yet.",
    "commit.after_begin": "The write lock is held; nothing has been written.",
    "commit.before_commit": "Every statement has run; COMMIT has not.",
    "commit.after_commit": "COMMIT has returned; the sync to disk has not begun.",
    "commit.after_sync": "The commit is durable; no caller has been acknowledged.",
    "migrate.before_step": "A migration is due; its transaction has not begun.",
    "migrate.after_step": "A migration is committed; the next one has not begun.",
    "lease.before_acquire": "A lease is wanted; the row is not written.",
    "lease.after_acquire": "The lease is durable; its holder has not begun to work.",
    "lease.before_release": "The work is over; the lease is still held.",
    "lease.after_release": "The lease is given back; the caller does not know.",
    "session.before_open": "A session is to be opened or resumed; nothing is written.",
    "session.after_open": "The session is owned; its owner has not begun to work.",
    "session.before_end": "The block has ended; the session is still active.",
    "session.after_end": "The session is ended; the caller does not know.",
    "message.before_say": "A message is to be said; it has no position yet.",
    "message.after_say": "The message is durable; the caller does not know.",
    "conversation.before_add": "Items are to be added to a conversation; none of them has a position.",
    "conversation.before_clear": "A conversation is to be cleared; all of it is stored.",
    "conversation.before_take_back": "The newest item is to be taken back; it is stored.",
    "step.before_run": "No result is recorded; the function has not been called.",
    "step.before_record": "The function has returned; its result is not recorded.",
    "step.after_record": "The result is durable; the caller does not have it.",
    "state.before_set": "A value is to be set; the old one is stored.",
    "state.after_set": "The value is durable; the caller does not know.",
    "state.before_swap": "The next value is made by `update`; the old one is stored.",
    "state.before_delete": "A value is to be deleted; it is stored.",
    "state.before_expire": "Values have expired and are not shown any more; their rows are not deleted.",
    "state.before_verify": "A value is to be verified; its command has not run.",
    "state.before_verdict": "The command has answered; the verdict is not written.",
    "agent.before_set": "An agent reports its status; the old status is stored.",
    "apply.before_commit": "A file is to be applied; nothing of it is written.",
    "decision.before_write": "A decision is made; it is not written, and no action has begun.",
    "decision.after_write": "The decision is durable; no action has begun.",
    "decision.before_close": "The action has ended; the decision is still open.",
    "decision.after_close": "The outcome is durable; the caller does not know.",
    "task.before_add": "A problem was seen; it is neither opened nor counted.",
    "task.before_claim": "A worker asks for a task; it has no holder.",
    "task.before_close": "The work is done; the task is still open.",
    "task.before_release": "A task is to be given back; it is still held.",
    "task.before_change": "A task is to be changed; it is as it was.",
    "task.before_sweep": "A source has reported its findings; no task is counted or closed.",
    "thread.after_put": "A checkpoint is stored; the graph has not been acknowledged.",
    "thread.before_copy": "A thread is to be copied; the other has nothing of it yet.",
    "thread.before_delete": "A thread is to be deleted; all of it is there.",
    "thread.before_prune": "Checkpoints are to be taken away; all of them are there.",
    "thread.before_put": "A graph has a new checkpoint; nothing of it is stored.",
    "thread.before_writes": "A task has written; nothing of it is stored.",
    "mail.after_ask": "The question is sent; its answer is not waited for yet.",
    "mail.before_answer": "The answer is known and its session has ended; nothing was replied.",
    "mail.before_send": "A mail is to be sent; its box does not have it.",
    "mail.before_claim": "A reader asks for a mail; it has no holder.",
    "mail.after_claim": "The mail is leased; the reader does not have it yet.",
    "mail.before_done": "The mail is handled; it is still leased.",
    "mail.before_back": "The mail is to be given back or given up; it is still leased.",
    "mail.before_sweep": "The sweep begins; nothing is given back, nothing has expired.",
    "mail.before_retry": "A dead letter is to be retried or resolved; it is still dead.",
    "mail.before_change": "The bound of a box is to be changed; it is as it was.",
    "loop.before_add": "A loop is to be added or changed; it is as it was.",
    "loop.before_fire": "Slots are due; none of them has its row.",
    "loop.before_pause": "A loop is to be paused; it still fires.",
    "loop.before_resume": "A loop is to be resumed; it is still paused.",
    "loop.before_remove": "A loop is to be removed; it still fires.",
    "run.before_ask": "A run is asked for; it is not queued.",
    "run.before_claim": "A worker asks for a run; it has no holder.",
    "run.before_start": "The child process has started; the run does not name it.",
    "run.before_finish": "The child has ended; the run is still running.",
    "run.before_abandon": "A worker has ended; its run is still running.",
    "run.before_cancel": "A run is to be cancelled; it is queued or running.",
    "run.before_adopt": "A worker has exited and its child continues; it has no new holder.",
    "run.before_requeue": "A run was claimed and never begun; it is not ready again.",
    "copy.before_file": "The file of a copy is made; its place does not have it.",
    "copy.before_artifacts": "The file of a copy is in its place; some of its artifacts are not.",
    "copy.before_manifest": "Every file of a copy is in its place; the manifest is not.",
    "copy.after_manifest": "The manifest is durable; the store does not know of the copy.",
    "copy.before_forget": "A copy is to be removed; its manifest is still there.",
    "restore.before_rename": "Everything is restored; the database does not have its name.",
    "restore.before_gap": "A store went back in time by another tool; its gap is not open.",
    "restore.before_promote": "The restored copy has its place and is read only; its gap is not open.",
    "restore.before_swap": "The store is moved aside; the restored one does not have its place.",
    "restore.before_finish": "A person said that nothing was sent; the gap is still open.",
    "move.before_mark": "A store is to be moved; it is not marked.",
    "move.after_mark": "The source takes no write; the target has nothing.",
    "move.before_commit": "The target has every row and is compared; other processes do not see it.",
    "move.after_commit": "The target is the authority; the source is still marked as moving.",
    "move.after_seal": "The source is sealed; the configuration still names it.",
    "undo.before_journal": "What a change overwrote is put back; the undo is not journalled.",
    "digest.before_put": "The digest of a stretch of the journal is computed; it is not written.",
    "daemon.before_fire": "A slot is due; no row is written for it.",
    "daemon.after_fire": "The slot has its row; the run is not claimed.",
    "daemon.after_claim": "The run is claimed; there is no keeper.",
    "daemon.before_started": "The keeper waits; the run does not name it.",
    "daemon.after_started": "The run names its keeper; the keeper has received nothing.",
    "daemon.after_go": "The keeper has received its command; the daemon has not continued.",
    "daemon.before_finish": "The command has ended; its output and its end are not recorded.",
    "daemon.before_end": "The output is kept; how the command ended is not recorded.",
    "daemon.after_finish": "The end is recorded; the keeper's place is still there.",
    "daemon.before_sweep": "A sweep is due; nothing is swept.",
    "daemon.before_drain": "The daemon is to end; everything still runs.",
    "checkpoint.before_write": "A fold was made; the checkpoint is not written.",
    "checkpoint.after_write": "The checkpoint is durable; the caller does not know.",
    "artifact.before_rename": "The bytes are synced under a temporary name.",
    "artifact.after_rename": "The bytes have their own name; the directory is not synced.",
    "artifact.after_chunks": "Some of the bytes are in the store, under the id of the artifact to be.",
    "artifact.before_row": "The bytes are stored; no row names them.",
    "artifact.after_row": "The artifact is durable; the caller does not know.",
    "artifact.before_remove": "Bytes are known to be garbage; they are still there.",
    "effect.before_begin": "An effect is wanted; its intent is not recorded.",
    "effect.after_begin": "The intent is durable as dispatched; nothing was sent.",
    "effect.before_done": "The outside system has answered; the answer is not recorded.",
    "effect.after_done": "The result is durable; the caller does not have it yet.",
    "effect.before_fail": "Nothing was sent; this is not recorded.",
    "effect.after_fail": "The failure is durable; the caller does not have it yet.",
    "effect.before_give_up": "The effect raised an error that does not prove the outcome; the error is not recorded.",
    "effect.after_give_up": "The doubt is durable; the error has not been passed on.",
    "effect.before_probe": "An effect is in doubt; its probe has not been asked.",
    "effect.after_probe": "The probe has answered; the answer is not recorded.",
    "approval.before_request": "An approval is needed; the request is not written.",
    "approval.after_request": "The request is durable; the caller does not have it yet.",
    "approval.before_answer": "A person has answered; the answer is not written.",
    "approval.before_consume": "The approval is granted; it is not consumed, and the effect is not dispatched.",
    "dead_letter.before_bury": "Work is given up; its dead letter is not written.",
    "dead_letter.before_settle": "A dead letter is to be retried or resolved; it is still open.",
    "webhook.before_receive": "An event was delivered; it is neither recorded nor counted.",
    "webhook.before_claim": "A handler asks for an event; it has no holder.",
    "webhook.after_handle": "The handler has returned or raised; nothing of it is recorded.",
    "webhook.before_done": "The event is handled; its result is not written.",
    "webhook.before_fail": "Handling has failed; the failure is not written, and no retry is planned.",
    "credit.before_add": "Credits are to be granted, spent or refunded; the entry is not written.",
    "budget.before_set": "A limit is to be set or removed; the old one counts.",
    "hold.before_reserve": "A call is wanted; nothing is held for it.",
    "hold.after_reserve": "The hold is durable; the call is not made.",
    "hold.before_settle": "The call has ended; its hold is as it was.",
    "hold.after_settle": "The usage is recorded; the caller does not know.",
    "knowledge.before_add": "A text is to be added; it is not written.",
    "knowledge.before_forget": "A text is to be deleted; it is still there.",
    "event.before_append": "Events are to be appended; none is written.",
    "event.after_append": "The events are durable; the caller does not know.",
    "event.before_commit": "Events were handled; the consumer's position is unchanged.",
    "event.after_commit": "The consumer's position is stored; the caller does not know.",
    "event.before_seek": "A consumer is to be moved or removed; its position is unchanged.",
    "event.before_snapshot": "A state was folded, or snapshots are to be deleted; nothing is written.",
    "gate.before_copy": "A gate is changed in the store; gates.json is the old one.",
    "hook.before_keep": "A hook has a record; the store does not have it.",
    "spool.before_append": "The store cannot be written; the record is not in the spool either.",
    "spool.after_append": "The record is in the spool; the hook has not ended.",
    "spool.before_keep": "A spool is claimed; some of its records are not in the store.",
    "spool.after_keep": "Records of a spool are in the store; the file is still there.",
    "spool.before_remove": "Every record of a spool is in the store; the file is still there.",
    "import.before_batch": "Some records are read; nothing of them is stored.",
    "import.after_batch": "A batch and the position in the file are durable; the next batch is not read.",
    "export.before_file": "A file of an export is to be replaced; the old one is there.",
    "export.after_hand_over": "The source store has recorded the hand-over; the bundle does not have its name yet.",
    "push.after_batch": "A batch of the journal is at the target; the next is not sent.",
    "item.before_change": "Items are to be changed together; none is changed.",
}

VARIABLE: Final = "STANDFAST_CRASH_AT"
TRACE: Final = "STANDFAST_CRASH_TRACE"
"""Set by `standfast crash`: the file that gets each point passed, and the number of the one to die at."""

Hook = Callable[[str], object]

_off: Hook = len
"""No hook is installed. This is a C function with one argument, because a call takes a third of the time of an empty
Python function."""

point: Hook = _off


def arm(hook: Hook) -> None:
    """Call `hook(name)` at every crash point from now on, in this process and its forks."""
    global point

    def armed(name: str) -> None:
        assert name in POINTS, f"crash point {name!r} is not in crash.POINTS"
        hook(name)

    point = armed


def disarm() -> None:
    """After this call, crash points cost nothing."""
    global point
    point = _off


@contextmanager
def record() -> Iterator[list[str]]:
    """`with crash.record() as names:` collects the points that are passed, in order. An installed hook still runs."""
    global point
    before, names = point, list[str]()

    def note(name: str) -> None:
        names.append(name)
        before(name)

    arm(note)
    try:
        yield names
    finally:
        point = before


def die() -> NoReturn:
    """Kill this process without cleanup, like a power cut."""
    os.kill(os.getpid(), 9)
    raise AssertionError("SIGKILL came back")


def arm_at(where: str) -> None:
    """Kill this process when it passes the point `name` for the n-th time: `name:n`. `name` alone means the first time.

    Raises InvalidInput for an unknown name or a count that is not 1 or more.
    """
    name, _, number = where.partition(":")
    if name not in POINTS:
        raise InvalidInput(f"{VARIABLE}: {name[:60]!r} is not a crash point", _near(name))
    if where.endswith(":") or (number and not (number.isascii() and number.isdigit() and int(number) > 0)):
        raise InvalidInput(f"{VARIABLE}: {number[:20]!r} is not a count", f"write {name}:1 or higher")
    nth, hits = int(number or "1"), [count(1)]

    def fresh() -> None:
        hits[0] = count(1)

    def hook(passed: str) -> None:
        if passed == name and next(hits[0]) == nth:
            die()

    os.register_at_fork(after_in_child=fresh)  # a child process counts crash points from 0
    arm(hook)


def trace(where: str) -> None:
    """Append each passed point to a file, for all processes of the group. Kill the group at the n-th line: `FILE:n`."""
    path, _, number = where.rpartition(":")

    def hook(name: str) -> None:
        # Opened at each point, so that no other process moves the offset.
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        os.write(file, f"{name:<{_WIDTH - 1}}\n".encode())
        passed = os.lseek(file, 0, os.SEEK_CUR) // _WIDTH
        os.close(file)
        if passed == int(number):
            os.killpg(0, 9)

    arm(hook)


_WIDTH: Final = 40
"""Bytes of one line of the trace, so that its position is its number."""


def _near(name: str) -> str:
    import difflib

    near = difflib.get_close_matches(name, POINTS, n=4, cutoff=0.5) or sorted(POINTS)
    return f"perhaps: {', '.join(near)}"


# --- the sweep ---------------------------------------------------------------------------------


class Schedule(tuple[str, ...]):
    """The points at which the program and then its recovery were killed, each as `name:n`."""

    __slots__ = ()

    def __str__(self) -> str:
        return "killed at " + ", then at ".join(self) if self else "not killed"


class _Life:
    """The result of a child process: the points it passed, and how it ended."""

    def __init__(self, lines: list[str], *, killed: bool) -> None:
        self.points = [line for line in lines if not line.startswith("!")]
        self.error = "".join(line[1:] + "\n" for line in lines if line.startswith("!"))
        self.killed = killed

    @property
    def end(self) -> tuple[str, ...]:
        """The last point as `name:n`, which STANDFAST_CRASH_AT understands."""
        return (f"{self.points[-1]}:{self.points.count(self.points[-1])}",) if self.killed else ()


def sweep(
    run: Callable[[], object],
    recover: Callable[[], object],
    check: Callable[[Schedule], object],
    *,
    reset: Callable[[], object] = lambda: None,
    double: bool = True,
    max_schedules: int = 1000,
    seed: int = 0,
    timeout_s: float = 60.0,
) -> int:
    """Kill `run` at every crash point that it passes, and then `recover` too. Call `check` after each. Returns the
    number of schedules.

    See `schedules`. Raises AssertionError with the schedule and the output of the child if `check` fails.
    """
    made = schedules(
        run, recover, reset=reset, double=double, max_schedules=max_schedules, seed=seed, timeout_s=timeout_s
    )
    judged = 0
    for schedule in made:
        _live(functools.partial(check, schedule), 0, schedule, timeout_s)
        judged += 1
    return judged


def schedules(
    run: Callable[[], object],
    recover: Callable[[], object],
    *,
    reset: Callable[[], object] = lambda: None,
    points: str = "*",
    double: bool = True,
    max_schedules: int = 1000,
    seed: int = 0,
    timeout_s: float = 60.0,
) -> Iterator[Schedule]:
    """Kill `run` at every crash point that it passes, and then `recover` too. Yield each schedule when its last process
    has ended.

    Each schedule starts from `reset()`. `points` selects crash points: "effect.*". If there are more than
    `max_schedules`, a random sample with `seed` runs. Raises InvalidInput if `run` passes none of `points`. Raises
    AssertionError with the schedule and the output of the child if `run` or `recover` raises or takes longer than
    `timeout_s`. `reset` runs in the parent and must not open the store there; the parent should have one thread.
    """
    chosen = matching(points)

    def begin(kill: int) -> tuple[int, Schedule]:
        reset()
        life = _live(run, kill, Schedule(), timeout_s, chosen)
        return len(life.points), Schedule(life.end)

    def go_on(kill: int, schedule: Schedule) -> tuple[int, Schedule]:
        """Run the recovery and kill it at point `kill`; then run it to its end. Returns the number of points that it
        passed."""
        life = _live(recover, kill, schedule, timeout_s, chosen)
        schedule = Schedule(schedule + life.end)
        if life.killed:
            _live(recover, 0, schedule, timeout_s, chosen)
        return len(life.points), schedule

    passed, untouched = begin(0)
    if not passed and points != "*":
        raise InvalidInput(
            f"no crash point that matches {points[:60]!r} was passed", "leave out points to see them all"
        )
    yield go_on(0, untouched)[1]
    singles = _sample([(k,) for k in range(1, passed + 1)], max_schedules - 1, seed)
    pairs: list[tuple[int, ...]] = []
    for (k,) in singles:
        passed, schedule = go_on(0, begin(k)[1])
        yield schedule
        pairs += [(k, j) for j in range(1, passed + 1)] if double else []
    for k, j in _sample(pairs, max_schedules - 1 - len(singles), seed):
        yield go_on(j, begin(k)[1])[1]


def matching(points: str) -> frozenset[str]:
    """The crash points that a pattern names: "effect.*". Raises InvalidInput if there is none."""
    from fnmatch import fnmatchcase

    found = frozenset(name for name in POINTS if fnmatchcase(name, points))
    if not found:
        raise InvalidInput(f"no crash point matches {points[:60]!r}", _near(points))
    return found


def _sample(items: Sequence[tuple[int, ...]], limit: int, seed: int) -> list[tuple[int, ...]]:
    if len(items) <= limit:
        return list(items)
    import random

    return sorted(random.Random(seed).sample(items, max(limit, 0)))


def _live(
    life: Callable[[], object], kill: int, schedule: Schedule, timeout_s: float, chosen: Container[str] = POINTS
) -> _Life:
    """Run `life` in a forked child that is killed at its `kill`-th chosen crash point. With 0 it runs to its end."""
    sys.stdout.flush()  # otherwise the child would print the parent's buffer again
    sys.stderr.flush()
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        _be_the_child(life, kill, writer, chosen)
    os.close(writer)
    text, in_time = _read_until_closed(reader, timeout_s)
    if not in_time:
        os.kill(pid, 9)
    _, status = os.waitpid(pid, 0)
    ended = _Life(text.split("\n")[:-1], killed=kill > 0 and os.WIFSIGNALED(status) and os.WTERMSIG(status) == 9)
    if not in_time:
        raise AssertionError(f"{schedule}: still running after {timeout_s} s, past {ended.points[-3:]}")
    if ended.error or (status != 0 and not ended.killed):
        raise AssertionError(f"{schedule}:\n{ended.error or f'the child ended with wait status {status}'}")
    return ended


def _be_the_child(life: Callable[[], object], kill: int, writer: int, chosen: Container[str]) -> NoReturn:
    passed = count(1)

    def hook(name: str) -> None:
        if name not in chosen:
            return
        os.write(writer, f"{name}\n".encode())  # before the kill, because the parent needs the crash point
        if next(passed) == kill:
            die()

    try:
        arm(hook)
        life()
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:  # noqa: BLE001 - the parent reports any error
        import traceback

        words = traceback.format_exc().splitlines()[-60:]
        _write_all(writer, "".join(f"!{line}\n" for line in words).encode(errors="replace"))
    finally:
        os._exit(0)  # run no exit handlers, because they belong to the parent


def _write_all(writer: int, data: bytes) -> None:
    while data:
        data = data[os.write(writer, data) :]


def _read_until_closed(reader: int, timeout_s: float) -> tuple[str, bool]:
    """The output of the child, and whether it closed the pipe in time."""
    import select
    import time

    deadline, parts = time.monotonic() + timeout_s, list[bytes]()
    with open(reader, "rb", buffering=0) as pipe:
        while (left_s := deadline - time.monotonic()) > 0:
            if select.select([pipe], [], [], left_s)[0]:
                if not (part := pipe.read(65536)):
                    return b"".join(parts).decode(), True
                parts.append(part)
    return b"".join(parts).decode(), False


if _where := os.environ.get(VARIABLE):
    arm_at(_where)
elif _where := os.environ.get(TRACE):
    trace(_where)
