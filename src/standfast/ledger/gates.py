"""Gates: which commands need a person's yes (`approval`), or to be recorded first (`effect`).

    standfast gate add "git push*" --need approval --why "main is protected"

Gates are enforced where commands pass by: in the hooks of an agent, and in `standfast once`. They are
rows in the store, and a copy is kept in `gates.json` in the data directory, so that a hook that
cannot read the store refuses what matches there and passes the rest. The copy is written after
the commit; killed in between, the next gate command repairs it.

How a pattern is compared with a command: `gate_patterns`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from standfast import crash, serial
from standfast.config import regular
from standfast.config.people import for_people
from standfast.config.scope import OUTSIDE, home_of, scope_of
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.db.store import Room, query, verb
from standfast.errors import Busy, Corrupt, InvalidInput, KeyConflict, NotFound, StandfastError, StorageError
from standfast.footings import journal
from standfast.ids import like_suffix, new_id, short
from standfast.ledger.gate_patterns import Gate, match, met

__all__ = ["Gate", "Gates", "match", "read_copy"]

SQL = load(__name__)

FILE = "gates.json"
FILE_MAX_BYTES = 4 << 20
LOCK_WAIT_S = 5.0
NEEDS = ("approval", "effect")
PATTERN_MAX = 500
WHY_MAX = 1000
GATES_MAX = 1000
"""Standing gates of one store; a hook reads them all."""


def page(tx: Tx, scope: str, *, everywhere: bool = False, after: str = "", limit: int = GATES_MAX) -> list[Gate]:
    """The gates of a repository, found by either label, and those of none."""
    within = home_of(scope_of(scope), "%")
    label = tx.caller.label if scope == tx.caller.home else OUTSIDE
    asked: Row = {"everywhere": int(everywhere), "after": after, "limit": limit, **label._asdict()}
    rows = tx.all(SQL.page, scope=scope, within=within, **asked)
    within_scope = ("", scope_of(scope))
    return [_gate(row) for row in rows if everywhere or scope_of(row["scope"]) in within_scope]


class Gates(Room):
    """Add, remove, list, check."""

    __slots__ = ()

    def add(self, pattern: str, *, need: str = "approval", why: str | None = None, scope: str | None = None) -> Gate:
        """Let a gate stand in this repository; scope "" is everywhere. The same gate again is the one that stands.

        Raises KeyConflict if the pattern stands with another need.
        """
        checked = checked_pattern(pattern), checked_need(need), checked_why(why)
        made = self._add(*checked, self.home if scope is None else checked_scope(scope))
        self._after()
        return made

    @verb
    def _add(self, tx: Tx, pattern: str, need: str, why: str | None, scope: str) -> Gate | StandfastError:
        if tx.one(SQL.count)["n"] >= GATES_MAX:
            return InvalidInput(f"{GATES_MAX} gates stand already", "one pattern with * may do: standfast gate list")
        wanted: Row = {"scope": scope, "pattern": pattern, "need": need, "why": why}
        here = scope in ("", tx.caller.home)
        wanted |= (tx.caller.label if here else OUTSIDE)._asdict()
        wanted |= {"id": new_id("gat"), "actor": tx.caller.actor, "now_us": tx.now_us()}
        row = tx.maybe(SQL.add, **wanted)
        if row is not None:
            return _journalled(tx, _gate(row), "added")
        found = _gate(tx.one(SQL.by_pattern, scope=scope, pattern=pattern))
        if found.need == need:
            return found
        return KeyConflict(
            f"the gate {pattern!r} stands and needs {found.need}, not {need}",
            f"standfast gate remove {short(found.id)}; then add it again",
        )

    @for_people("removes a gate")
    def remove(self, gate: str, *, scope: str | None = None) -> Gate:
        """Take down a gate, named by its id, the end of it, or its pattern in this scope. Raises NotFound."""
        made = self._remove(gate, self.home if scope is None else scope)
        self._after()
        return made

    @verb
    def _remove(self, tx: Tx, gate: str, scope: str) -> Gate | StandfastError:
        rows = tx.all(SQL.by_pattern, scope=scope, pattern=" ".join(gate.split()))
        suffix = like_suffix(gate, prefix="gat")
        if not rows and suffix is not None:
            rows = tx.all(SQL.by_suffix, pattern=f"gat_%{suffix}")
        if len(rows) > 1:
            return InvalidInput(f"{gate!r} names more than one gate", "give more of its characters")
        row = tx.maybe(SQL.remove, id=rows[0]["id"], now_us=tx.now_us()) if rows else None
        if row is None:
            return NotFound(f"no gate {serial.clean(gate, 60)!r} stands here", "standfast gate list --all")
        return _journalled(tx, _gate(row), "removed")

    def check(self, command: str | Sequence[str], *, tool: str | None = None, scope: str | None = None) -> list[Gate]:
        """The gates that a command line (or its words) or a tool meets; those that need a yes first."""
        return met(self._page(self.home if scope is None else scope, False, "", GATES_MAX), command, tool=tool)

    def mirror(self) -> bool:
        """Bring `gates.json` up to the store. True if it was not. Raises StorageError if it cannot be written."""
        directory = self.store.data_dir
        if directory is None:
            return False
        try:
            from standfast.config.files import private_directory

            private_directory(directory)
            with _alone(os.path.join(directory, FILE + ".lock")):
                return self._mirror(directory)
        except OSError as error:
            raise StorageError(
                f"the gates stand in the store, but {FILE} in {directory} cannot be written: {error.strerror}",
                "hooks that cannot read the store will not know them; repair it with: standfast gate list",
                code="gates_copy",
            ) from error

    # -- parts of the verbs above ----------------------------------------------------------------

    @query
    def _page(self, tx: Tx, scope: str, everywhere: bool, after: str, limit: int) -> list[Gate]:
        return page(tx, scope, everywhere=everywhere, after=after, limit=limit)

    def _after(self) -> None:
        if self.tx is not None:
            outside = Gates(self.store)
            self.tx.after = [*(self.tx.after or ()), lambda: _ignored(outside.mirror())]
            return
        crash.point("gate.before_copy")
        self.mirror()

    def _mirror(self, directory: str) -> bool:
        # Read after the lock is held: of two that changed gates, the last to write has seen both.
        stands = self._standing()
        if self.store.memory is not None:
            self.store.memory.opened(self.store.caller.clock.now_us(), gates=bool(stands.gates))
        path = os.path.join(directory, FILE)
        try:
            old: dict[str, Any] | None = read_copy(directory)
        except Corrupt:
            old = None
        stores = {**(old["stores"] if old else {}), stands.store_id: [_plain(gate) for gate in stands.gates]}
        stores = {id: gates for id, gates in stores.items() if gates}
        if old is not None and old["stores"] == stores:
            return False
        from standfast.config.files import write

        write(path, serial.canonical({"schema_version": 1, "stores": stores}) + "\n")
        return True

    @query
    def _standing(self, tx: Tx) -> _Standing:
        asked: Row = {"everywhere": 1, "after": "", "limit": GATES_MAX, "within": "", **tx.caller.labelled()}
        rows = tx.all(SQL.page, scope="", **asked)
        return _Standing(tx.one(SQL.store_id)["value"], [_gate(row) for row in rows])

    # Last: from here on `list` is this verb, also in annotations.
    def list(
        self, *, scope: str | None = None, everywhere: bool = False, after: str | None = None, limit: int = 50
    ) -> list[Gate]:
        """The gates that hold in this scope, or in every one. `after` is the last id of a page."""
        return self._page(self.home if scope is None else scope, everywhere, after or "", max(1, min(limit, 1000)))


class _Standing(NamedTuple):
    store_id: str
    gates: list[Gate]


def read_copy(data_dir: str) -> dict[str, Any]:
    """`gates.json` as it is, for `match`; without a file, no gates. Raises Corrupt for anything else."""
    path = os.path.join(data_dir, FILE)
    try:
        text = regular.read(path, FILE_MAX_BYTES + 1)
    except FileNotFoundError:
        return {"schema_version": 1, "stores": {}}
    except OSError as error:
        raise _damaged(path, error.strerror or "") from error
    document: dict[str, Any] = serial.read(text.decode(errors="replace")) if len(text) <= FILE_MAX_BYTES else {}
    if not _is_copy(document):
        raise _damaged(path, "it is not what standfast wrote")
    return document


def _is_copy(document: Any) -> bool:
    stores = document.get("stores") if isinstance(document, dict) else None
    return isinstance(stores, dict) and all(
        isinstance(gates, list) and all(isinstance(gate, dict) and _is_rule(gate) for gate in gates)
        for gates in stores.values()
    )


def _is_rule(gate: dict[str, Any]) -> bool:
    return all(isinstance(gate.get(name), str) for name in ("id", "scope", "pattern", "need"))


def _damaged(path: str, fact: str) -> Corrupt:
    return Corrupt(f"{path} cannot be read: {fact}", "write it anew: standfast gate list", code="gates_copy")


@contextmanager
def _alone(path: str) -> Iterator[None]:
    """Hold the lock on `path`; it is held for the length of one small file."""
    import fcntl
    import time

    end = time.monotonic() + LOCK_WAIT_S
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise Busy(f"{path} has been locked for {LOCK_WAIT_S:.0f} s", "try again") from None
                time.sleep(0.005)
        yield
    finally:
        os.close(fd)


def _journalled(tx: Tx, made: Gate, what: str) -> Gate:
    data: Row = {"pattern": made.pattern, "need": made.need}
    summary = f"{made.pattern} needs {made.need}" + (f": {made.why}" if made.why else "")
    scope = scope_of(made.scope)
    receipt = journal.append(tx, f"gate.{what}", made.id, summary=summary, data=data, state=what, scope=scope)
    return made._replace(receipt=receipt)


def _gate(row: Row) -> Gate:
    return Gate(*(row[name] for name in Gate._fields[:-1]))


def _plain(gate: Gate) -> dict[str, serial.Json]:
    return {name: value for name, value in gate._asdict().items() if name != "receipt"}


def _ignored(_: object) -> None:
    """An action after a transaction returns nothing."""


def checked_pattern(text: str) -> str:
    """White space counts as one space in a pattern, as in the commands it is compared with."""
    pattern = " ".join(text.split())
    if not pattern or len(pattern) > PATTERN_MAX or not pattern.isprintable():
        raise InvalidInput(
            f"a gate's pattern is one line of 1 to {PATTERN_MAX} printable characters",
            'for example: standfast gate add "git push*"',
        )
    return pattern


def checked_need(need: str) -> str:
    if need not in NEEDS:
        raise InvalidInput(f"a gate needs {' or '.join(NEEDS)}, not {serial.clean(need, 40)!r}", "--need approval")
    return need


def checked_scope(scope: str) -> str:
    """What the copy cannot hold may not stand in the store either."""
    serial.canonical(scope, what="scope")
    return scope


def checked_why(why: str | None) -> str | None:
    if not why:
        return None
    if len(why) > WHY_MAX:
        raise InvalidInput(f"why: {len(why):,} characters, and the limit is {WHY_MAX:,}")
    serial.canonical(why, what="why")
    return why
