"""The contract between engines and methods: the calls that a method may make on any engine.

A method's body is a function of a transaction. An engine may run it twice, on another thread, and together with other
bodies in one commit. So the body uses only `tx` and its arguments. It ends in one of three ways:

    return value     committed, durable, then given to the caller
    return error     a refusal: committed like a value, raised in the caller's thread
    raise error      this body alone is rolled back, raised in the caller's thread

The tests run every method on both engines and compare whole objects. They define the contract; this module only names
its parts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from standfast.config.scope import OUTSIDE, Keyspace, Label
from standfast.errors import Busy, Corrupt, InvalidInput, StorageError

if TYPE_CHECKING:
    from standfast.clock import Clock
    from standfast.db.sql import Statement

T = TypeVar("T")
Row = dict[str, Any]

Done = Callable[[T | None, BaseException | None], None]
"""Called with the result, or with the error. It must not block: the writer thread may call it."""

BATCH_MAX = 256
"""The most bodies that share one commit."""
TRANSACTION_MAX_S = 5.0
"""How long a caller may hold `with sf.transaction()`, which keeps every other writer waiting."""
DEADLINE_S = 30.0
"""How long a write waits for its turn. Then it raises Busy, which names the blocking process."""
READ_MAX_S = 5.0
"""How long one read may pin its snapshot. Meanwhile SQLite cannot reuse the WAL."""


OnMigrate = Callable[[str, int, int], None]
"""Called before a store with rows is migrated, with the store's id, its schema and the new schema."""


def no_copy(store_id: str, found: int, latest: int) -> None:
    """Migrate without a copy: for tests of the engines alone."""


OnRemoved = Callable[[str, Callable[[str], object]], str]
"""Called if the files of an open store were removed, with the store's id and a function that saves the store to a new
file. Returns the id of the copy, or an empty text."""


def no_rescue(store_id: str, save: Callable[[str], object]) -> str:
    """Take no copy: for tests of the engines alone."""
    return ""


class Caller:
    """The caller. The journal and the leases record it."""

    __slots__ = ("actor", "clock", "holder", "label", "repository", "scope", "session_id")

    def __init__(
        self,
        *,
        actor: str,
        holder: str,
        scope: str,
        clock: Clock,
        session_id: str | None = None,
        label: Label = OUTSIDE,
        repository: str | None = None,
    ) -> None:
        self.actor = actor
        self.holder = holder
        self.scope = scope
        """The name that a user sets to separate keys; empty by default."""
        self.label = label
        """The repository that every row of this caller records."""
        self.repository = repository
        """The id of that repository in the store: see core/repositories.py. None outside any repository: then lists
        show everything. Empty: lists show only rows without a repository."""
        self.clock = clock
        self.session_id = session_id
        """The caller's session. The journal records it for changes that belong to no other session."""

    @property
    def keyspace(self) -> Keyspace:
        """The keyspace of this caller's tasks, decisions, state values and gates."""
        return Keyspace(self.scope, self.repository or "")

    def labelled(self) -> Row:
        """Parameters for a statement that records the label."""
        return {"git_dir": self.label.git_dir, "origin": self.label.origin}


class Numbered(Protocol):
    """A row that is being inserted, and gets its number from the engine."""

    seq: int | None

    @property
    def hash(self) -> str: ...


class Tx(ABC):
    """One transaction, as the body of a method sees it."""

    __slots__ = ("_now_us", "after", "caller")

    dialect: str
    """"sqlite" or "postgres"; for `db` and `core` only."""

    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        self._now_us: int | None = None
        self.after: list[Callable[[], None]] | None = None
        """A callback that runs after a caller's own transaction (`with sf.transaction()`) has committed."""

    @abstractmethod
    def maybe(self, statement: Statement, /, **params: object) -> Row | None:
        """The first row, or None. The statement runs to its end."""

    @abstractmethod
    def all(self, statement: Statement, /, **params: object) -> list[Row]:
        """All rows. The statement itself must have a LIMIT or another bound."""

    @abstractmethod
    def run(self, statement: Statement, /, **params: object) -> None:
        """Run it without a result. On PostgreSQL it is queued, so an error may be raised by a later call."""

    def many(self, statement: Statement, rows: Iterable[Row]) -> None:
        """Run it for each of `rows`, without results."""
        for row in rows:
            self.run(statement, **row)

    @abstractmethod
    def defer(self, statement: Statement, then: Callable[[Row], None], /, **params: object) -> None:
        """Run it without waiting for its row. `then` gets the row, at the latest at the commit."""

    @abstractmethod
    def insert(self, statement: Statement, row: Numbered, values: tuple[object, ...]) -> None:
        """Insert one row. `row.seq` gets the number that the engine assigned, at the latest at the commit.

        The values are in the order in which the statement names them. Every method that writes calls this once, so it
        is fast.
        """

    @abstractmethod
    def now_us(self) -> int:
        """The time of this transaction, in microseconds. It does not change within the transaction."""

    def now_us_if_known(self) -> int | None:
        """The value for `{now_us}` in a statement. On PostgreSQL it may be None, and the server inserts its own time:
        so a first query needs no extra round trip."""
        return self.now_us()

    @abstractmethod
    def compares_vectors(self) -> bool:
        """Whether statements of this transaction may compare vectors: by sqlite-vec, or by pgvector."""

    def one(self, statement: Statement, /, **params: object) -> Row:
        """The row that must exist. Raises Corrupt if it does not."""
        row = self.maybe(statement, **params)
        if row is None:
            raise missing(statement)
        return row

    def lease_clock(self) -> dict[str, object]:
        """The parameters of the lease fragments in `sql.py`."""
        if self.dialect == "sqlite":
            return {"boot_id": self.caller.clock.boot_id(), "mono_us": self.caller.clock.mono_us()}
        return {"now_us": self.now_us()}

    def lease_clock_if_known(self) -> dict[str, object]:
        """The lease clock, if it is known without a query. For a first query that uses `{now_us}`."""
        return {"now_us": self.now_us_if_known()} if self.dialect == "postgres" else self.lease_clock()


class Watch(ABC):
    """Wait for a hint that a transaction was committed. Callers read the store again after their timeout anyway."""

    @abstractmethod
    def wait(self, timeout_s: float) -> bool:
        """True if woken, False after `timeout_s`. It may return True without a commit, and may rarely miss one."""

    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class Engine(ABC):
    """One open database, shared by every handle of this process on it."""

    name: str
    identity: str
    """The path of the file, or the URL of the server with its password. Used only inside this process."""
    dead: BaseException | None
    store_id: str = ""
    """The id the store was created with, read at open."""
    epoch: int = 1
    """The number of restores of this store plus one, read at open."""
    copy_of: str = ""
    """The copy that was restored into this read-only store. Empty for an ordinary store."""
    moved: str = ""
    """The move of this store that `meta` records. A moved store refuses writes. See db/move_mark.py."""
    standby: bool = False
    """Whether this is a replica. A replica may lag, so rows that it lacks are not lost."""
    newest: tuple[int, int, Numbered] | None = None
    """Sequence number and time of the newest journal row that this engine made durable, and the row. SQLite only,
    because another program can replace the files."""
    changes: int = 0
    """The change counter that was last seen in the header of the database file; it never goes back. SQLite only."""

    @abstractmethod
    def write(self, body: Callable[[Tx], T], caller: Caller, *, durable: bool = True) -> T:
        """Run `body` in a transaction and return once it is on disk.

        `durable=False` is for heartbeats: the rows are visible immediately, and on disk with the next durable write.
        """

    @abstractmethod
    def read(self, body: Callable[[Tx], T], caller: Caller) -> T:
        """Run `body` on one consistent snapshot, writing nothing."""

    @abstractmethod
    def transaction(self, caller: Caller) -> AbstractContextManager[Tx]:
        """The only transaction that a caller holds open. It lasts at most TRANSACTION_MAX_S and never runs twice."""

    @abstractmethod
    def submit(self, body: Callable[[Tx], T], caller: Caller, done: Done[T]) -> Callable[[], bool]:
        """Like `write`, without blocking: `done` is called on another thread once the rows are on disk.

        The returned function withdraws the body. It returns True if the body had not begun: then the body never runs,
        and `done` is not called.
        """

    def overdue(self) -> Busy:
        """The error for a submitted body that did not begin within DEADLINE_S."""
        return Busy(f"a write did not begin within {DEADLINE_S:.0f} s", "try again, or see the load: standfast doctor")

    @abstractmethod
    def rows(self, text: str, params: dict[str, object] | None = None) -> Iterator[Row]:
        """Stream the rows of a person's query. A query that writes is refused."""

    @abstractmethod
    def sync(self) -> None:
        """Return once everything visible now is durable."""

    @abstractmethod
    def watch(self) -> Watch:
        """A watch that wakes after commits of this process and of others."""

    def index_vectors(self, table: str, dimensions: int) -> tuple[str, int]:
        """Make an index of the vectors of a table; returns its name and the number of vectors. PostgreSQL only."""
        raise InvalidInput(
            "SQLite compares all vectors: there is no index to make", "standfast knowledge search 'WORDS'"
        )

    @abstractmethod
    def schema_version(self) -> int: ...

    @abstractmethod
    def facts(self) -> dict[str, object]:
        """Facts for `doctor`, `status` and `--version`: versions, path, sizes and the lock holder."""

    def held_back(self) -> str:
        """The transaction that delays readers of the journal, as a sentence. Empty if there is none."""
        return ""  # only PostgreSQL commits rows in another order than their numbers

    def care(self) -> None:
        """Release reserved disk space. The daemon calls this when it is idle."""
        return  # PostgreSQL does this itself

    @abstractmethod
    def retain(self) -> None:
        """Count one more handle."""

    @abstractmethod
    def release(self) -> None:
        """Count one handle fewer. The last one closes the engine."""


def refuse_copy(engine: Engine) -> None:
    """Raise if the store is a restored copy: it has no record of effects that were sent after the copy was taken."""
    if engine.copy_of:
        raise StorageError(
            f"this store is restored from {engine.copy_of} and is read only",
            "nothing was written; work in the store itself: standfast store list; to make this the store to work in: "
            "standfast restore promote",
            code="read_only_copy",
        )


def missing(statement: Statement) -> Corrupt:
    """The error for a missing row that must exist: an index disagrees with its table, or a page is damaged."""
    return Corrupt(f"the store contradicts itself: {statement.name!r} found no row", "standfast doctor")
