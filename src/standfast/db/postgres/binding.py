"""Which way to libpq this process takes: `psycopg.pq`, or `libpq` for one that ends soon.

Both have the same names and numbers; everything above is written once. psycopg reads rows faster, and
a program that runs for long pays for its import once. A command or a hook says `one_shot` before it
opens a store. Where psycopg is loaded already, or its libpq cannot be used alone, psycopg it is.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, cast

from standfast import modules

if TYPE_CHECKING:
    from standfast.db.postgres import libpq


class Binding:
    """One way, under psycopg's names."""

    __slots__ = ("Conninfo", "Error", "PGconn", "name", "version")

    def __init__(
        self,
        name: str,
        connection: type[libpq.PGconn],
        conninfo: type[libpq.Conninfo],
        error: type[libpq.Error],
        version: int,
    ) -> None:
        self.name = name
        self.PGconn = connection
        self.Conninfo = conninfo
        self.Error = error
        self.version = version
        """Of libpq, as 180001."""


# libpq's own numbers. Not enums: four of them would take a start a millisecond.


class ExecStatus:
    EMPTY_QUERY = 0
    COMMAND_OK = 1
    TUPLES_OK = 2
    FATAL_ERROR = 7


class Polling:
    FAILED = 0
    READING = 1
    WRITING = 2
    OK = 3


class Ping:
    REJECT = 1
    NO_RESPONSE = 2


class Field:
    """A field of an error or a notice."""

    SEVERITY_NONLOCALIZED = ord("V")
    SQLSTATE = ord("C")
    MESSAGE_PRIMARY = ord("M")
    MESSAGE_DETAIL = ord("D")
    SOURCE_FUNCTION = ord("R")


CONNECTION_BAD = 1
TRANSACTION_IDLE = 0

_chosen: Binding | None = None
_ends_soon = False


def one_shot() -> None:
    """This process ends soon: what it saves at its start counts more than how fast it reads.

    One that has loaded psycopg is a program that runs a command inside: nothing changes for it.
    """
    global _ends_soon
    _ends_soon = "psycopg" not in sys.modules


def ends_soon() -> bool:
    return _ends_soon


def binding() -> Binding:
    """Chosen once. Raises StorageError where the extra is not installed."""
    global _chosen
    if _chosen is None:
        _chosen = (direct() if _ends_soon and "psycopg" not in sys.modules else None) or through_psycopg()
    return _chosen


def direct() -> Binding | None:
    """None where psycopg has to find libpq itself, or was told which one."""
    if os.environ.get("PSYCOPG_IMPL", "").lower() not in ("", "binary"):
        return None
    modules.load("standfast.db.postgres.libpq")
    try:
        from standfast.db.postgres import libpq
    except ImportError:
        return None
    return Binding("libpq", libpq.PGconn, libpq.Conninfo, libpq.Error, libpq.version())


def through_psycopg() -> Binding:
    modules.load("standfast.db.postgres.driver")
    from standfast.db.postgres.driver import pq, psycopg

    # Ours is the part of psycopg's that is used here, and no class of it.
    theirs = cast("Any", pq)
    return Binding(
        f"psycopg {psycopg.__version__} ({pq.__impl__})",
        theirs.PGconn,
        theirs.Conninfo,
        cast("Any", psycopg.Error),
        pq.version(),
    )
