"""The memory of stores: which stores this account has opened on this host, and where they were.

    ~/.local/state/standfast/stores/sto_….json      one file per store, mode 0600

A file says where the store was opened, when, whether it had gates, and the highest acknowledged sequence number with
its hash. It is outside the data directory, so that `rm -rf ~/.standfast` does not remove it. If a store is remembered
at an empty place, opening it is refused (`store_missing`) and no new store is created.

The file is JSON. `seq`, `hash` and `time_us` have a fixed width at the start of the file, so a process can
overwrite them in place, without fsync. All other changes replace the file.

A failure here never stops the caller. `doctor` reports it.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import NamedTuple

from standfast.config.people import for_people
from standfast.config.target import MEMORY, Target, flag, state_dir
from standfast.db.contract import Numbered, Tx
from standfast.db.sql import statement
from standfast.errors import StorageError

VARIABLE = "STANDFAST_REMEMBER"
TEMPORARY: tuple[str, ...] = ("/tmp", "/var/tmp", "/dev/shm")
FILE_MAX_BYTES = 64 * 1024
PLACES_MAX = 16
LOCK_WAIT_S = 1.0
TIME_END_US = 10**17
"""A later time can be damage only: it is in the year 5138."""
_SEQ = '{{"seq": {seq:>19}, "hash": {hash:<80}, '
_TIME = '"time_us": {time_us:>19},\n'
_SEQ_BYTES = len(_SEQ.format(seq=0, hash=""))
OVERWRITTEN = "database_overwritten"
"""The error code if a database file was overwritten in place."""
_TIME_AT = statement("SELECT time_us FROM event WHERE seq = :seq", name="time_at")


class Place(NamedTuple):
    """Where a store is: a file on a host, or a database on a server."""

    engine: str
    host: str
    port: str
    """The port of the server; empty for a file."""
    name: str
    """The real path of the file, or the name of the database."""

    @property
    def shown(self) -> str:
        return self.name if self.engine == "sqlite" else f"postgresql://{self.host}:{self.port}/{self.name}"


class Remembered(NamedTuple):
    """The content of one file."""

    store_id: str
    epoch: int
    seq: int
    """The highest acknowledged sequence number that was noted; 0 for none."""
    hash: str
    time_us: int
    """When the store was last opened or closed."""
    gates: bool
    given_up: bool
    """True if `store create` made another store at this place. Then opening the empty place is not refused."""
    places: tuple[Place, ...]
    """The places where it was opened, the latest first."""


# Where.


def enabled(environ: Mapping[str, str] | None = None) -> bool:
    """Whether stores are remembered. Raises InvalidInput if the variable is neither 1 nor 0."""
    return flag(os.environ if environ is None else environ, VARIABLE, default=True)


def directory(environ: Mapping[str, str] | None = None) -> str:
    return os.path.join(state_dir(os.environ if environ is None else environ), "stores")


def place_of(target: Target) -> Place | None:
    """The place of a store; None if no store is remembered there."""
    if target.location == MEMORY or not enabled():
        return None
    if target.engine == "postgres":
        place = _server(target.location)
        return None if place.host.startswith("/") and _is_temporary(place.host) else place
    parent = os.path.realpath(os.path.dirname(target.location))
    if _is_temporary(parent):
        return None
    return Place("sqlite", os.uname().nodename, "", os.path.join(parent, os.path.basename(target.location)))


def _is_temporary(path: str) -> bool:
    for root in (os.environ.get("TMPDIR", ""), *TEMPORARY):
        real = os.path.realpath(root) if root else ""
        if len(real) > 1 and (path == real or path.startswith(real + "/")):
            return True
    return False


def _server(url: str) -> Place:
    """Host, port and database, from the URL and libpq's variables. Several hosts are kept as a list."""
    before, _, query = url.partition("://")[2].partition("?")
    authority, _, path = before.partition("/")
    user, _, netloc = authority.rpartition("@")
    asked = {name: decoded(value) for name, _, value in (part.partition("=") for part in query.split("&"))}
    hosts, ports = [], []
    for one in netloc.split(","):
        host, _, port = one.rpartition(":") if one.rpartition(":")[2].isdigit() else (one.rstrip(":"), "", "")
        hosts.append(decoded(host))
        ports.append(port or os.environ.get("PGPORT", "") or "5432")
    name = decoded(path) or asked.get("dbname") or os.environ.get("PGDATABASE", "")
    return Place(
        "postgres",
        asked.get("host") or ",".join(hosts) or os.environ.get("PGHOST", "") or "localhost",
        asked.get("port") or ",".join(ports),
        name or decoded(user.partition(":")[0]) or os.environ.get("PGUSER", "") or os.environ.get("USER", ""),
    )


def decoded(text: str) -> str:
    if "%" not in text:
        return text
    from urllib.parse import unquote  # takes milliseconds to load, and most URLs have no percent code

    return unquote(text)


# Reading.


def stores(environ: Mapping[str, str] | None = None) -> list[Remembered]:
    """Every remembered store, the one opened last first."""
    where = directory(environ)
    try:
        names = [name for name in os.listdir(where) if name.endswith(".json")]
    except OSError:
        return []
    found = [one for one in (read(os.path.join(where, name)) for name in names) if one is not None]
    return sorted(found, key=lambda one: one.time_us, reverse=True)


def at(place: Place) -> list[Remembered]:
    """The remembered stores of a place that were not given up, the last opened first."""
    return [one for one in stores() if place in one.places and not one.given_up]


def read(path: str) -> Remembered | None:
    """The content of a file. None if it cannot be read or is not one of ours."""
    import json

    try:
        with open(path, "rb") as file:
            data = json.loads(file.read(FILE_MAX_BYTES))
        places = tuple(Place(**place) for place in data["places"])
        if not 0 <= int(data["time_us"]) < TIME_END_US or any("\0" in place.name for place in places):
            return None
        return Remembered(
            store_id=str(data["store_id"]),
            epoch=int(data["epoch"]),
            seq=int(data["seq"]),
            hash=str(data["hash"]),
            time_us=int(data["time_us"]),
            gates=bool(data["gates"]),
            given_up=bool(data["given_up"]),
            places=places,
        )
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


def present(place: Place) -> bool | None:
    """Whether there is a file at the place now. None for a server or another host, which would need a connection."""
    if place.engine == "postgres" or place.host != os.uname().nodename:
        return None
    try:
        return os.stat(place.name).st_size > 0
    except OSError:
        return False


# Refusing.


def refuse_missing(place: Place | None) -> None:
    """Raise StorageError("store_missing") if a store is remembered at this empty place."""
    found = at(place) if place is not None else []
    if place is not None and found:
        raise missing(place.shown, found[0])


def missing(shown: str, known: Remembered | None = None) -> StorageError:
    """The error for a store that is not where it was."""
    from standfast.clock import readable

    fact = f"the store at {shown} is missing"
    if known is not None:
        fact += f": {known.store_id} was last opened at {readable(known.time_us)}"
        if known.seq:
            fact += f"; its journal ended at {known.seq}"
        if known.places[0].shown != shown:
            fact += f"; since then it was opened at {known.places[0].shown}"
    return StorageError(
        fact,
        "put its files back and try again; from the newest copy: standfast restore --here; "
        "to start with an empty store: standfast store reset; "
        "for unattended starts: standfast store create --if-missing",
        code="store_missing",
    )


def replaced(shown: str, was: tuple[str, int], now: tuple[str, int]) -> StorageError:
    """The error for a handle if its place has another store, or a later epoch of the same store."""
    if was[0] == now[0]:
        fact = f"the store {was[0]} at {shown} was put back in time: this handle is of epoch {was[1]}, it is {now[1]}"
    else:
        fact = f"{shown} has another store: this handle belongs to {was[0]}, and {now[0] or 'no store'} is there now"
    return StorageError(
        fact,
        "nothing was written; end this process, then look: standfast store list",
        code="store_replaced",
    )


def behind(shown: str, last: int, seen: int) -> StorageError:
    """The error for a handle whose store lost rows that were noted before an effect was sent."""
    return StorageError(
        f"the store at {shown} went back in time: its journal ends at {last}, and this host has seen {seen}",
        "effects may have been sent that the store has no record of; end this process, then look: standfast doctor",
        code="store_replaced",
    )


def mixed(shown: str) -> StorageError:
    """The error for a handle whose database file was overwritten. The file and the WAL are of different states then."""
    return StorageError(
        f"the database at {shown} was overwritten or truncated while this process had it open",
        "nothing was written; end this process, then look: standfast doctor",
        code="store_replaced",
    )


def refuse_lost(tx: Tx, shown: str, newest: tuple[int, int, Numbered] | None) -> None:
    """Raise StorageError("store_replaced") if the journal has lost a row that was acknowledged: (seq, time_us)."""
    if newest is None:
        return
    row = tx.maybe(_TIME_AT, seq=newest[0])
    if row is None or row["time_us"] != newest[1]:
        raise StorageError(
            f"the store at {shown} went back in time: journal row {newest[0]}, acknowledged to this process, is gone",
            "nothing was written; end this process, then look: standfast doctor",
            code="store_replaced",
        )


# Writing.


class Memory:
    """The record that this host has of one open store. Its methods never raise for the file system."""

    def __init__(self, store_id: str, epoch: int, place: Place) -> None:
        self.store_id = store_id
        self.epoch = epoch
        self.place = place
        self.path = path_of(store_id)
        self.problem = ""
        """Why the last write failed; `doctor` says it."""

    def opened(self, now_us: int, *, gates: bool | None = None) -> None:
        """Remember that the store is open at this place. `gates=None` leaves that as it was."""
        from standfast.db.sqlite.location import make_private

        try:
            make_private(os.path.dirname(self.path))
            with _alone(self.path):
                self._opened(now_us, gates)
        except OSError as error:
            self.problem = error.strerror or str(error)

    def _opened(self, now_us: int, gates: bool | None) -> None:
        old = self.known() or Remembered(self.store_id, self.epoch, 0, "", 0, False, False, ())
        places = (self.place, *(place for place in old.places if place != self.place))[:PLACES_MAX]
        new = old._replace(epoch=self.epoch, given_up=False, places=places)
        if gates is not None:
            new = new._replace(gates=gates)
        if old.epoch != self.epoch:  # the row of the other epoch may be gone; the journal continues after it
            new = new._replace(seq=0, hash="")
        if new == old:
            self._patch(_SEQ_BYTES, _TIME.format(time_us=now_us))
        else:
            _write(self.path, new._replace(time_us=now_us))

    def in_place_of(self) -> str:
        """The id of another store that this host used at this place, if this store was never opened here. Empty if
        there is none.

        Also empty if the memory cannot be written, because each open would find the same store again.
        """
        known = self.known()
        if (known is not None and self.place in known.places) or unwritable():
            return ""
        others = [one.store_id for one in at(self.place) if one.store_id != self.store_id]
        return others[0] if others else ""

    def note(self, seq: int, hash: str) -> None:
        """Write the sequence number in place, without fsync, unless a higher one is there."""
        try:
            with _alone(self.path), _file(self.path) as fd:
                if int(os.pread(fd, 19, 8) or b"0") < seq:
                    os.pwrite(fd, _SEQ.format(seq=seq, hash=f'"{hash}"').encode(), 0)
        except (OSError, ValueError) as error:
            self.problem = getattr(error, "strerror", None) or str(error)

    def known(self) -> Remembered | None:
        """The current content of the file."""
        return read(self.path)

    def seq(self) -> int:
        """The highest sequence number that any process of this host has noted; 0 for none."""
        return self.noted()[0]

    def noted(self) -> tuple[int, str]:
        """The highest acknowledged sequence number with its hash; (0, "") if there is none."""
        known = self.known()
        return (known.seq, known.hash) if known is not None else (0, "")

    def _patch(self, offset: int, text: str) -> None:
        with _file(self.path) as fd:
            os.pwrite(fd, text.encode(), offset)


@contextmanager
def _alone(path: str) -> Iterator[None]:
    """Keep other processes from changing the memory. Without it a note could be lost: another process reads the file,
    and writes the older number back.

    After LOCK_WAIT_S the block runs without the lock, because a stopped process must not stop its neighbours.
    """
    fd = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _lock(fd)
        yield
    finally:
        with suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_UN)  # a child that was forked meanwhile has a copy of the descriptor
        os.close(fd)


def _lock(fd: int) -> None:
    end = time.monotonic() + LOCK_WAIT_S
    while time.monotonic() < end:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.001)
        except OSError:  # this file system has no such lock
            return
        else:
            return


@contextmanager
def _file(path: str) -> Iterator[int]:
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        yield fd
    finally:
        os.close(fd)


def memory_of(store_id: str, epoch: int, place: Place | None) -> Memory | None:
    """The memory of an open store. None if stores are not remembered at this place, or if the id, which becomes a file
    name, is not valid."""
    if place is None or not (store_id.startswith("sto_") and store_id.isascii() and store_id[4:].isalnum()):
        return None
    return Memory(store_id, epoch, place)


def path_of(store_id: str) -> str:
    return os.path.join(directory(), f"{store_id}.json")


@for_people("gives up a missing store")
def give_up(place: Place) -> None:
    """Give up the stores that are remembered at this place, so that another store may be created."""
    for known in at(place):
        _write(path_of(known.store_id), known._replace(given_up=True))


def forget(place: Place) -> None:
    """Remove the memory of every store at this place."""
    for known in stores():
        if place in known.places:
            os.unlink(path_of(known.store_id))


def unwritable() -> str:
    """Why the memory cannot be written. Empty if it can."""
    where = directory()
    while not os.path.isdir(where):
        if os.path.lexists(where):
            return f"{where} is not a directory"
        where = os.path.dirname(where)
    return "" if os.access(where, os.W_OK | os.X_OK) else f"{where} is not writable"


def _write(path: str, what: Remembered) -> None:
    from standfast.config.files import write
    from standfast.db.sqlite.location import make_private

    make_private(os.path.dirname(path))
    write(path, _text(what))


def _text(what: Remembered) -> str:
    import json

    head = _SEQ.format(seq=what.seq, hash=json.dumps(what.hash)) + _TIME.format(time_us=what.time_us)
    rest = {
        "schema_version": 1,
        "store_id": what.store_id,
        "epoch": what.epoch,
        "given_up": what.given_up,
        "places": [place._asdict() for place in what.places],
        "gates": what.gates,
    }
    return head + json.dumps(rest, indent=1).removeprefix("{\n") + "\n"
