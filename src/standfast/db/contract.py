"""The contract between engines and methods: the calls that every engine offers to the body of a method.

A method's body is a function of a transaction. An engine may run it twice and on another
thread, together with the bodies of other callers in one commit; so the body touches only
`tx` and its arguments. It ends in one of three ways:

    return value     committed, durable, then given to the caller
    return error     a refusal: committed like a value, raised in the caller's thread
    raise error      this body alone is rolled back, raised in the caller's thread

The suite in `tests/` runs every method on both engines and compares whole objects: that suite
is the contract; this page only names its parts.
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
"""Bodies that share one commit at most."""
TRANSACTION_MAX_S = 5.0
"""How long a caller may hold `with sf.transaction()`, which keeps every other writer waiting."""
DEADLINE_S = 30.0
"""How long a write waits for its turn before it says who is in the way."""
READ_MAX_S = 5.0
"""How long one read may pin its snapshot: a pinned snapshot keeps the log from being reused."""


OnMigrate = Callable[[str, int, int], None]
"""Called with the store's id, its schema and the schema to come, before a store with rows is migrated."""


def no_copy(store_id: str, found: int, latest: int) -> None:
    """Migrate without a copy: for tests of the engines alone."""


OnRemoved = Callable[[str, Callable[[str], object]], str]
"""Called with the store's id, and a function that saves the store to a new file, if the files of an open store were
removed. Returns the id of the copy that it took; empty if it took none."""


def no_rescue(store_id: str, save: Callable[[str], object]) -> str:
    """Take no copy: for tests of the engines alone."""
    return ""


class Caller:
    """The caller. Each transaction copies it into the journal and the leases."""

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
        """The name that separates keys on purpose; empty by default."""
        self.label = label
        """The repository of the rows written here: every row records it."""
        self.repository = repository
        """The id of that repository in the store: see core/repositories.py. None outside any, where lists show
        everything; empty for a list of what belongs to none."""
        self.clock = clock
        self.session_id = session_id
        """The caller's session: changes that belong to no other session are journalled under it."""

    @property
    def keyspace(self) -> Keyspace:
        """Where tasks, decisions, state values and gates of this caller are kept."""
        return Keyspace(self.scope, self.repository or "")

    def labelled(self) -> Row:
        """Parameters for a statement that records the label."""
        return {"git_dir": self.label.git_dir, "origin": self.label.origin}


class Numbered(Protocol):
    """A row in flight into the store."""

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
        """Every row: the statement itself bounds them."""

    @abstractmethod
    def run(self, statement: Statement, /, **params: object) -> None:
        """Run it for its effect. On PostgreSQL it is queued: an error may surface later."""

    def many(self, statement: Statement, rows: Iterable[Row]) -> None:
        """Run it for each of `rows`, for its effect: for what comes in bulk."""
        for row in rows:
            self.run(statement, **row)

    @abstractmethod
    def defer(self, statement: Statement, then: Callable[[Row], None], /, **params: object) -> None:
        """Run it, and hand its row to `then` no later than the commit, without waiting for it."""

    @abstractmethod
    def insert(self, statement: Statement, row: Numbered, values: tuple[object, ...]) -> None:
        """Add one row, and put the number the engine counted into `row` no later than the commit.

        The values come in the order in which the statement names them: every method does this once, so it is lean.
        """

    @abstractmethod
    def now_us(self) -> int:
        """The moment of this transaction, one and the same until it ends."""

    def now_us_if_known(self) -> int | None:
        """For `{now_us}` in a statement: on PostgreSQL a first question needs no trip for the time alone."""
        return self.now_us()

    @abstractmethod
    def compares_vectors(self) -> bool:
        """Whether statements of this transaction may compare vectors: by sqlite-vec, or by pgvector."""

    def one(self, statement: Statement, /, **params: object) -> Row:
        """The row that must be there: its absence is a broken invariant, not an answer. Raises Corrupt."""
        row = self.maybe(statement, **params)
        if row is None:
            raise missing(statement)
        return row

    def lease_clock(self) -> dict[str, object]:
        """The parameters by which the lease fragments of `sql` judge time."""
        if self.dialect == "sqlite":
            return {"boot_id": self.caller.clock.boot_id(), "mono_us": self.caller.clock.mono_us()}
        return {"now_us": self.now_us()}

    def lease_clock_if_known(self) -> dict[str, object]:
        """The same for a first question that uses `{now_us}`."""
        return {"now_us": self.now_us_if_known()} if self.dialect == "postgres" else self.lease_clock()


class Watch(ABC):
    """A hint that something was committed. Never relied on: the reader looks again anyway."""

    @abstractmethod
    def wait(self, timeout_s: float) -> bool:
        """True if woken, False after `timeout_s`. May wake for nothing; may rarely miss."""

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
    """Which store this is, for this process alone: its path, or its address with all that is in it."""
    dead: BaseException | None
    store_id: str = ""
    """The id the store was created with, read at open."""
    epoch: int = 1
    """How often the store was put back in time, plus one; read at open."""
    copy_of: str = ""
    """The copy that this store was restored from, to look at: nothing is written into it."""
    moved: str = ""
    """The move of this store that `meta` records. A moved store refuses writes. See db/moved.py."""
    standby: bool = False
    """A replica that may lag behind: what it lacks is not lost."""
    newest: tuple[int, int, Numbered] | None = None
    """Sequence number and time of the newest journal row that this engine made durable, and the row. SQLite only:
    files can lose rows in ways that no server allows."""
    changes: int = 0
    """The change counter that was last seen in the header of the database file; it never goes back. SQLite only."""

    @abstractmethod
    def write(self, body: Callable[[Tx], T], caller: Caller, *, durable: bool = True) -> T:
        """Run `body` in a transaction and return once it is on disk.

        `durable=False` is for heartbeats: visible at once, on disk with the next durable write.
        """

    @abstractmethod
    def read(self, body: Callable[[Tx], T], caller: Caller) -> T:
        """Run `body` on one consistent snapshot, writing nothing."""

    @abstractmethod
    def transaction(self, caller: Caller) -> AbstractContextManager[Tx]:
        """The one place where a caller holds a transaction; bounded, never rerun."""

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
        """Stream a read-only query of a person's; anything that writes is refused."""

    @abstractmethod
    def sync(self) -> None:
        """Return once everything visible now is durable."""

    @abstractmethod
    def watch(self) -> Watch:
        """Be woken after commits, this process's and others'."""

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
        """The transaction that keeps readers of the journal from newer rows, as a sentence; empty if none does."""
        return ""  # only PostgreSQL commits in another order than it counts

    def care(self) -> None:
        """Give reserved space back to the file system. The daemon calls this when it is idle."""
        return  # most engines look after themselves

    @abstractmethod
    def retain(self) -> None:
        """One more handle uses this engine."""

    @abstractmethod
    def release(self) -> None:
        """One handle fewer; the last one closes it."""


def refuse_copy(engine: Engine) -> None:
    """Raise if the store is a restored copy: it does not know what was sent after it was taken."""
    if engine.copy_of:
        raise StorageError(
            f"this store is restored from {engine.copy_of} and is read only",
            "nothing was written; work in the store itself: standfast store list; to make this the store to work in: "
            "standfast restore promote",
            code="read_only_copy",
        )


def missing(statement: Statement) -> Corrupt:
    """A row that must be there is not: an index that disagrees with its table, a damaged page."""
    return Corrupt(f"the store contradicts itself: {statement.name!r} found no row", "standfast doctor")
