"""Leases: the holder of a row, its expiry and its fencing token.

This module has the rules for all tables with a lease (`holder, lease_until_us, lease_boot, lease_mono_us, fence`).
Table `lease` is for named locks.

There are two kinds of holder. A *process* (`p:…`) is identified by host, boot, pid namespace, pid and start time. If it
is known to be dead, its leases are over at once; if we cannot tell, they end by time. An *actor* (`a:…`) is a caller of
short commands. Its leases end only by time, and each of its commands renews them.

On SQLite, time is counted awake: suspending the machine ends no lease, and a reboot ends all. On PostgreSQL the clock
of the server counts. A fence grows with each new holder and is compared inside every protected write, so a holder that
slept too long is refused.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from standfast import crash, hints
from standfast.clock import MINUTE_US, SECOND_US, Duration, duration_us, format_duration
from standfast.core import journal, keys
from standfast.core.checks import bounded_us, page_size
from standfast.core.receipts import Receipt
from standfast.db.contract import Row, Tx
from standfast.db.sql import Statement, load, statement
from standfast.db.store import Resource, Store, query, refused_inside, transactional
from standfast.errors import InProgress, InvalidInput, LeaseLost, NotFound, StandfastError, StorageError
from standfast.models import Model

if TYPE_CHECKING:
    from standfast.clock import Clock

SQL = load(__name__)

PROCESS_US = 60 * SECOND_US
ACTOR_US = 15 * MINUTE_US
RENEW_EVERY_S = 15.0
MARGIN_US = 5 * SECOND_US
"""A process stops using its lease this long before the lease ends, because clocks and disks may be late."""
LEASE_MAX_US = 7 * 24 * 60 * MINUTE_US
NAME_MAX = 500


class Lease(Model):
    """A named lock and its state."""

    scope: str
    name: str
    holder: str | None
    agent: str | None
    lease_until_us: int | None
    fence: int
    acquired_us: int | None
    note: str | None
    standing: str
    """The state of its lease: live, free, over (expired) or gone (its process is dead)."""
    receipt: Receipt | None = None


class Leases(Resource):
    """Named locks: acquire, renew, release and list them."""

    __slots__ = ()

    @transactional
    def acquire(self, tx: Tx, name: str, *, for_: Duration | None = None, note: str | None = None) -> Lease:
        """Hold `name` exclusively for `for_`. An agent that holds it already keeps its fence.

        Raises InProgress naming the holder while a live holder has it.
        """
        for_us = duration_us(for_, "for_")
        scope = self.scope
        term = new_lease(tx, for_us)
        crash.point("lease.before_acquire")
        wanted: Row = {"scope": scope, "name": _checked_name(name), "actor": tx.caller.actor, "note": note, **term}
        made = tx.maybe(SQL.create, now_us=tx.now_us(), **wanted, **tx.caller.labelled())
        if made is not None:
            return _taken(tx, made, "lease.acquired")
        found = tx.one(SQL.by_name_for_update, scope=scope, name=name)
        standing = judge(tx, found)
        if standing.live and found["holder"] == tx.caller.holder and found["holder"].startswith("a:"):
            return _lease(tx, tx.one(SQL.extend, fence=found["fence"], scope=scope, name=name, **term))
        if standing.live:
            refusal = in_progress(tx, f"the lock {name!r}", found)
            waiting = hints.command("lock", name, "--wait", "10m")
            hint = f"wait for it: {waiting}    (who holds what: standfast lock)"
            raise InProgress(refusal.message, hint)
        taken = tx.one(SQL.take, fence=found["fence"], now_us=tx.now_us(), **wanted)
        return _taken(tx, taken, "lease.acquired" if standing.free else "lease.taken_over")

    @transactional
    def renew(self, tx: Tx, name: str, fence: int, *, for_: Duration | None = None) -> Lease:
        """Extend the lease of a lock. It is not journalled. Raises LeaseLost if another holder has taken the lock."""
        for_us = duration_us(for_, "for_")
        row = tx.maybe(SQL.extend, scope=self.scope, name=name, fence=fence, **new_lease(tx, for_us))
        if row is None:
            raise self._lost(tx, name, fence)
        return _lease(tx, row)

    @transactional
    def release(self, tx: Tx, name: str, fence: int | None = None) -> Lease:
        """Release a lock. Without `fence`, the lock of the caller, also one that a process of its agent holds.

        Any process may release the lock of a dead or expired holder. Raises LeaseLost if the lock has another fence by
        now, or a live holder.
        """
        crash.point("lease.before_release")
        holder = tx.caller.holder
        if fence is None:
            found = tx.maybe(SQL.by_name_for_update, scope=self.scope, name=name)
            if found is None:
                raise _unknown(name)
            if not may_act_for(tx, found) and (refusal := _not_yours(tx, found)) is not None:
                raise refusal
            fence, holder = found["fence"], found["holder"]
        row = tx.maybe(SQL.let_go, scope=self.scope, name=name, fence=fence, holder=holder)
        if row is None:
            raise self._lost(tx, name, fence)
        return _taken(tx, row, "lease.released")

    @contextmanager
    def hold(self, name: str, *, for_: Duration | None = None, note: str | None = None) -> Iterator[Lease]:
        """Hold `name` during the block. A process renews its lease in the background.

        Raises InProgress if a live holder has it, and LeaseLost at the end of the block if it was lost.
        """
        refused_inside(self.tx, "leases.hold")
        if for_ is not None and self.store.caller.holder.startswith("p:"):
            # A process renews its leases every 15 s, so a shorter lease could expire in between.
            for_ = max(duration_us(for_, "for_"), PROCESS_US) / SECOND_US
        lease = self.acquire(name, for_=for_, note=note)
        crash.point("lease.after_acquire")
        renewer(self.store).start()
        try:
            yield lease
        finally:
            self.release(name, lease.fence)
            crash.point("lease.after_release")

    @query
    def get(self, tx: Tx, name: str) -> Lease:
        row = tx.maybe(SQL.by_name, scope=self.scope, name=name)
        if row is None:
            raise _unknown(name)
        return _lease(tx, row)

    @query
    def list(self, tx: Tx, *, everywhere: bool = False, after: str = "", limit: int = 50) -> list[Lease]:
        """List the locks that are held. An expired holder is listed until another caller takes over."""
        limit = page_size(limit)
        rows = tx.all(SQL.page, scope=self.scope, everywhere=int(everywhere), after=after, limit=limit)
        return [_lease(tx, row) for row in rows]

    def _lost(self, tx: Tx, name: str, fence: int) -> StandfastError:
        row = tx.maybe(SQL.by_name, scope=self.scope, name=name)
        return _unknown(name) if row is None else lost(f"the lock {name!r}", row, fence)


# -- the rules every table with a lease uses ------------------------------------------------------


class LeaseState(NamedTuple):
    """The state of a lease: "live" (its holder may be alive), "free", "over" (expired) or "gone" (holder dead)."""

    state: str

    @property
    def live(self) -> bool:
        return self.state == "live"

    @property
    def free(self) -> bool:
        return self.state == "free"

    @property
    def gone(self) -> bool:
        """Whether the holder is known to be dead, so that it sends nothing later."""
        return self.state == "gone"


def judge(tx: Tx, row: Row) -> LeaseState:
    """The state of the lease in `row`, by the clock of this engine."""
    if row["holder"] is None:
        return LeaseState("free")
    if is_gone(row["holder"], tx.caller.clock):
        return LeaseState("gone")
    return LeaseState("over" if _ran_out(tx, row) else "live")


def _ran_out(tx: Tx, row: Row) -> bool:
    if tx.dialect == "postgres":
        return bool(row["lease_until_us"] <= tx.now_us())
    clock = tx.caller.clock
    return bool(row["lease_boot"] != clock.boot_id() or row["lease_mono_us"] <= clock.mono_us())


def may_act_for(tx: Tx, row: Row) -> bool:
    """Whether the caller is the holder, or a command of the actor that holds the row.

    A command may end all leases of its actor, also those that were tied to a process with `--while`.
    """
    caller = tx.caller
    if row["holder"] is None:
        return False
    if row["holder"] in (caller.holder, actor_holder(caller.actor)):
        return True
    return caller.holder.startswith("a:") and bool(row["actor"] == caller.actor)


def since_renewal_us(tx: Tx, row: Row) -> int:
    """The time since this lease was taken or last renewed."""
    if tx.dialect == "postgres":
        return int(tx.now_us() - (row["lease_until_us"] - row["lease_for_us"]))
    return int(tx.caller.clock.mono_us() - (row["lease_mono_us"] - row["lease_for_us"]))


def new_lease(tx: Tx, for_us: int | None = None, holder: str | None = None) -> Row:
    """The columns of a lease that begins now, for this caller or for `holder` in its place."""
    holder = holder or tx.caller.holder
    length = for_us if for_us is not None else default_us(holder)
    bounded_us(length, "lease duration", most_us=LEASE_MAX_US, hint="for example: --for 30m")
    clock = tx.caller.clock
    return {
        "holder": holder,
        "lease_until_us": tx.now_us() + length,
        "lease_boot": clock.boot_id(),
        "lease_mono_us": clock.mono_us() + length,
        "lease_for_us": length,
    }


def default_us(holder: str) -> int:
    return PROCESS_US if holder.startswith("p:") else ACTOR_US


def lost(what: str, row: Row, fence: int) -> LeaseLost:
    now = f"{holder_text(row['holder'])} has it now" if row["holder"] else "it was given back or taken since"
    return LeaseLost(
        f"{what} is no longer held with fence {fence}: {now} (fence {row['fence']})", "repeat from the stored state"
    )


def in_progress(tx: Tx, what: str, row: Row) -> InProgress:
    """The error while a live holder has it. It says who that is and when the lease may end."""
    left_us = max(1, -((tx.now_us() - row["lease_until_us"]) // SECOND_US)) * SECOND_US  # whole seconds, rounded up
    return InProgress(
        f"{what} is held by {holder_text(row['holder'])}; "
        f"unless renewed it ends in {format_duration(left_us, parts=2)}",
        "wait, or end that holder",
    )


def _not_yours(tx: Tx, row: Row) -> LeaseLost | None:
    """The refusal of another caller that releases a lock; None if its holder is expired or dead."""
    standing, hint = judge(tx, row), "who holds what: standfast lock"
    if standing.free:
        return LeaseLost(f"the lock {row['name']!r} has no holder", hint)
    return LeaseLost(in_progress(tx, f"the lock {row['name']!r}", row).message, hint) if standing.live else None


# -- holders ---------------------------------------------------------------------------------------


class Process(NamedTuple):
    """The identity of one process. It stays unique after the kernel reuses the pid."""

    host: str
    boot: str
    namespace: str
    pid: int
    start: str

    def __str__(self) -> str:
        return f"p:{self.host}:{self.boot}:{self.namespace}:{self.pid}:{self.start}"


def this_process(clock: Clock) -> str:
    """The holder that represents the calling process."""
    return str(process(os.getpid(), clock))


def process(pid: int, clock: Clock) -> Process:
    host = os.uname().nodename.replace(":", "_")
    return Process(host, _boot(clock), _namespace(), pid, _stat(pid)[1])


def actor_holder(actor: str) -> str:
    return f"a:{actor}"


def parse_process(holder: str) -> Process | None:
    parts = holder.split(":")
    if len(parts) != 6 or parts[0] != "p" or not parts[4].isdigit():
        return None
    return Process(parts[1], parts[2], parts[3], int(parts[4]), parts[5])


def is_gone(holder: str, clock: Clock) -> bool:
    """Whether this holder is a process that is known to be dead. False if we cannot tell."""
    found = parse_process(holder)
    if found is None or found.boot != _boot(clock) or found.namespace != _namespace():
        return False
    state, start = _stat(found.pid)
    return state in ("absent", "Z", "X") or (bool(start) and bool(found.start) and start != found.start)


def is_here(holder: str, clock: Clock) -> bool:
    """Whether this holder is a process that is known to exist on this host. It may be asleep."""
    found = parse_process(holder)
    if found is None or found.boot != _boot(clock) or found.namespace != _namespace():
        return False
    state, start = _stat(found.pid)
    return state not in ("absent", "unknown", "Z", "X") and start == found.start


def holder_text(holder: str | None) -> str:
    """A holder, for people."""
    if not holder:
        return "no holder"
    found = parse_process(holder)
    return f"process {found.pid} on {found.host}" if found else holder.removeprefix("a:")


def _boot(clock: Clock) -> str:
    return clock.boot_id()[:8]


def _namespace() -> str:
    """The pid namespace. Two containers of one host share the boot id, but not their pids."""
    try:
        return os.readlink("/proc/self/ns/pid").strip("pid:[]")
    except OSError:
        return ""


def _stat(pid: int) -> tuple[str, str]:
    """(state, start time) of a process; ("absent", "") if there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The command's name is in parentheses and may contain anything.
            fields = file.read().rpartition(b")")[2].split()
        if fields[0] == b"Z" and not has_let_go(fields):
            return "unknown", ""
        return fields[0].decode(), fields[19].decode()
    except (FileNotFoundError, ProcessLookupError):
        # The process has exited, or is hidden from us (hidepid). Signal 0 shows which.
        return _probe(pid)
    except (OSError, IndexError):
        return "unknown", ""


def has_let_go(fields: list[bytes]) -> bool:
    """Whether a process has ended and closed its files, by the fields of its /proc stat from the state on.

    The first thread of a killed process is a zombie at once, but its other threads may still have files open.
    """
    return fields[0] in (b"Z", b"X") and int(fields[17]) <= 1


def _probe(pid: int) -> tuple[str, str]:
    """The state of a pid on a system without /proc. A pid that exists may belong to another process by now:
    "unknown"."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return "absent", ""
    except OSError:
        pass
    return "unknown", ""


# -- renewal ---------------------------------------------------------------------------------------

_ONLY = {"mail": " AND kept = 1"}
"""Rows that are not renewed: a mail whose reader abandoned its claim. Then another reader gets it."""
RENEWED: dict[str, Statement] = {}
"""The statement that extends the leases of a process, by table."""


def renewed(table: str) -> None:
    """Register `table` as one whose rows have leases of processes."""
    RENEWED[table] = _renewal(table)


def _renewal(table: str) -> Statement:
    return statement(
        f"UPDATE {table} SET lease_until_us = :now_us + lease_for_us, lease_mono_us = :mono_now_us + lease_for_us"
        f" WHERE holder = :holder{_ONLY.get(table, '')}",
        name=f"renew_{table}",
    )


renewed("lease")


class Renewer:
    """The thread of a handle that renews the leases of this process, with one statement per table."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._mutex = threading.Lock()
        self._good_until_us = 0

    def start(self) -> None:
        """Start the thread when this process takes its first lease, and again after a fork."""
        with self._mutex:
            self._good_until_us = self._mono_us() + PROCESS_US - MARGIN_US
            if self._thread is None or not self._thread.is_alive():
                self._stop.clear()
                self._thread = threading.Thread(target=self._run, name="standfast-renew", daemon=True)
                self._thread.start()

    @property
    def trusted(self) -> bool:
        """Whether this process may still rely on its leases, by its own clock."""
        return self._mono_us() < self._good_until_us

    def _mono_us(self) -> int:
        return self._store.caller.clock.mono_us()

    @property
    def good_until_us(self) -> int:
        """The monotonic time until which this process may rely on its leases."""
        return self._good_until_us

    def renew(self) -> None:
        """Extend everything this process holds, now."""
        before_us = self._mono_us()
        self._store.write(renew_all, durable=False)
        self._good_until_us = before_us + PROCESS_US - MARGIN_US

    def _run(self) -> None:
        while not self._stop.wait(RENEW_EVERY_S):
            try:
                self.renew()
            except (StorageError, InvalidInput):
                if self._store.closed:
                    return
                continue  # The next renewal may succeed. If none does, `trusted` becomes False before the lease ends.

    def stop(self) -> None:
        self._stop.set()


def renewer(store: Store) -> Renewer:
    """The renewing thread of this handle."""
    found = store.companions.get("renewer") or store.companions.setdefault("renewer", Renewer(store))
    assert isinstance(found, Renewer)
    return found


def renew_all(tx: Tx) -> None:
    """Extend all leases of the caller. Rows that it lost have another holder by now."""
    for extend in RENEWED.values():
        tx.run(extend, holder=tx.caller.holder, now_us=tx.now_us(), mono_now_us=tx.caller.clock.mono_us())


ACTOR_TABLES = ("lease", "task", "effect", "webhook_event", "mail", "hold")
"""The tables in which each command of an actor renews the leases of the actor."""
_HOLDS = statement(
    " UNION ALL ".join(f"SELECT 1 AS held FROM {table} WHERE holder = :holder" for table in ACTOR_TABLES) + " LIMIT 1",
    name="holds",
)


def renew_actor_leases(store: Store) -> None:
    """Renew all leases of the actor, as each of its commands does. It writes only if the actor has any."""
    holder = store.caller.holder
    if not holder.startswith("a:") or store.read(lambda tx: tx.maybe(_HOLDS, holder=holder)) is None:
        return
    store.write(_renew_kept, durable=False)


def renew_held(tx: Tx) -> None:
    """Renew them inside a transaction that writes anyway."""
    if tx.maybe(_HOLDS, holder=tx.caller.holder) is not None:
        _renew_kept(tx)


def _renew_kept(tx: Tx) -> None:
    now: Row = {"now_us": tx.now_us(), "mono_now_us": tx.caller.clock.mono_us()}
    for table in ACTOR_TABLES:
        tx.run(_renewal(table), holder=tx.caller.holder, **now)


# -- private functions -------------------------------------------------------------------------------


def _taken(tx: Tx, row: Row, type: str) -> Lease:
    receipt = journal.append(tx, type, f"lock:{row['name']}", summary=row["note"], data={"fence": row["fence"]})
    return _lease(tx, row).replace(receipt=receipt)


def _lease(tx: Tx, row: Row) -> Lease:
    return Lease.from_row(row, standing=judge(tx, row).state)


def _unknown(name: str) -> NotFound:
    return NotFound(f"the lock {name!r} has never been held in this scope", "see who holds what: standfast lock")


def _checked_name(name: str) -> str:
    return keys.checked(name, "a lock's name", limit=NAME_MAX)
