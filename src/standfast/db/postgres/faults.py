"""Errors of the driver and the server: whether each is retried, and our error for it.

Inside this folder a failure is a `Fault`, with the server's SQLSTATE and message, and whether the connection is lost.
Only this module translates it into one of our errors, and hides credentials.

    the transaction lost a race        rerun the body                  40001, 40P01, 55P03, 23505
    the connection is gone             rerun on a new one, unless COMMIT was under way
    a pooler lost a prepared plan      prepare nothing any more, rerun     26000, 42P05
    the server became a standby        rerun elsewhere, until the deadline         25006
    everything else                    raised to the caller
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import TYPE_CHECKING

from standfast.errors import Busy, CommitUnknown, Corrupt, InvalidInput, StandfastError, StorageError, schema_damaged

if TYPE_CHECKING:
    from standfast.db.postgres.address import Address

LOST_A_RACE = frozenset({"40001", "40P01", "55P03"})
LOST_A_PLAN = frozenset({"26000", "42P05"})
DUPLICATE = "23505"
FEW = 3
"""The most reruns after a duplicate key, which may be a race or a real duplicate."""
READ_ONLY = frozenset({"25006"})
STANDBY_REFUSES_BEGIN = "0A000"
FULL_HOUSE = "53300"
STARTING = "57P03"
ABSENT = "08001"
REFUSED = "08004"
"""The server refused the login, or it was starting and is ready by now: one retry."""
STANDSTILL = "25P03"
"""The server ended an idle transaction. It does so before it reads another command, so a COMMIT that is in flight
certainly did not happen.
"""
SCHEMA_DAMAGED = frozenset({"42P01", "42703", "3F000"})
"""A table, a column or the schema of ours is missing."""
TOO_OLD = frozenset({STANDSTILL, "25P04"})


class Fault(Exception):
    """A failure as the driver or the server reported it."""

    def __init__(self, message: str, *, sqlstate: str = "", lost: bool = False, final: bool = False) -> None:
        super().__init__(message)
        self.message = message.strip()
        self.sqlstate = sqlstate
        self.lost = lost
        """The connection is lost. The server rolls back, but after COMMIT was sent the outcome is unknown."""
        self.final = final
        """A retry would fail too: a wrong password, a missing database."""


class Remedy(Enum):
    RERUN = "rerun"
    RERUN_FEW = "rerun a few times"
    RECONNECT = "rerun on a new connection"
    UNPREPARE = "rerun without prepared statements"
    NONE = "say it"


def remedy(fault: Fault) -> Remedy:
    """How to handle an error of a transaction that was certainly not committed."""
    if fault.final:
        return Remedy.NONE
    if fault.sqlstate in LOST_A_RACE or fault.sqlstate == FULL_HOUSE:
        return Remedy.RERUN
    if fault.sqlstate in (DUPLICATE, REFUSED):
        return Remedy.RERUN_FEW
    if fault.sqlstate in LOST_A_PLAN:
        return Remedy.UNPREPARE
    if fault.lost or fault.sqlstate in READ_ONLY:
        return Remedy.RECONNECT
    return Remedy.NONE


def commit_unknown(fault: Fault, address: Address) -> CommitUnknown:
    return CommitUnknown(
        f"the answer to COMMIT was lost: {address.hide(fault.message)}",
        "the write may or may not be there: look it up by its key before repeating it",
    )


def busy(fault: Fault, address: Address, waited_s: float, in_the_way: str) -> StandfastError:
    """The deadline has passed. The message names the blocking process if the server shows it."""
    if fault.lost or fault.sqlstate in READ_ONLY:
        return translated(fault, address)
    return Busy(
        f"{address.shown} did not finish this write within {waited_s:.0f} s: {address.hide(fault.message)}",
        in_the_way or "try again, or see who holds it: standfast doctor",
    )


def translated(fault: Fault, address: Address) -> StandfastError:
    """Our error for this fault."""
    where, words, state = address.shown, address.hide(fault.message), fault.sqlstate
    if state in TOO_OLD:
        return too_long(words)
    if state in READ_ONLY:
        return read_only(where)
    if state in SCHEMA_DAMAGED:
        return schema_damaged(f"{where}: {words}")
    if state == FULL_HOUSE:
        return Busy(
            f"{where} has no free connection: {words}",
            "try again; if it stays so, raise max_connections or put a pooler in front of the server",
        )
    if state == REFUSED:
        return StorageError(
            f"{where} refuses the connection: {words}",
            "check user, password and database: standfast db",
            code="refused",
        )
    if fault.lost:
        return StorageError(f"{where} cannot be reached: {words}", "for details: standfast doctor", code="unreachable")
    match state[:2]:
        case "22":
            return InvalidInput(f"PostgreSQL refuses a value: {words}")
        case "23":
            return StorageError(f"a constraint of the schema refuses this: {words}", code="constraint")
        case "XX" if state in ("XX001", "XX002"):
            return Corrupt(f"{where} is damaged: {words}", "stop writing and restore a backup: standfast doctor")
    match state:
        case "57014":
            return StorageError(f"a statement took too long and was ended: {words}", "narrow it down", code="timeout")
        case "53100":
            return StorageError(
                f"the server's disk is full: {where} cannot grow; nothing of this write was kept",
                "free some space on the server and try again",
                code="disk_full",
            )
        case "42501":
            make = f"let an administrator run: CREATE SCHEMA standfast AUTHORIZATION {address.role}"
            use = "connect with a role that may do this: docs/operating/postgres.md lists what each role may do"
            return StorageError(
                f"this role may not do that in {where}: {words}",
                make if "for database" in words else use,
                code="not_permitted",
            )
    return StorageError(
        f"{where}: {words} ({state or 'no code'})", "for details: standfast doctor", code="server_error"
    )


@contextmanager
def spoken(address: Address) -> Iterator[None]:
    """Translates the errors of `connect` and of psycopg's own calls."""
    from standfast.db.postgres.driver import psycopg

    try:
        yield
    except Fault as fault:
        raise translated(fault, address) from None
    except psycopg.Error as error:
        raise translated(Fault(str(error), sqlstate=error.sqlstate or "", lost=not error.sqlstate), address) from None


def too_long(words: str) -> StorageError:
    return StorageError(
        f"this transaction was open too long and was rolled back: {words}",
        "keep slow work outside: other writers wait for the block to end",
        code="transaction_too_long",
    )


def only_a_read(fault: Fault) -> StorageError:
    return StorageError(f"a read tried to write: {fault.message}", "a method that changes something is a write")


def read_only(where: str) -> StorageError:
    return StorageError(
        f"{where} is a read-only standby",
        "name the primary, or all servers: postgresql://USER@HOST1,HOST2/DATABASE?target_session_attrs=read-write",
        code="read_only",
    )
