"""Gates: which commands need a person's yes (`approval`, `ask`), or to be recorded first (`effect`).

    standfast gate add "git push*" --need approval --why "main is protected"

The hooks of an agent and `standfast once` enforce gates. They are
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

from standfast import crash, hints, serial
from standfast.clock import DAY_US, Duration, duration_us, iso
from standfast.config import regular_files
from standfast.config.people import for_people
from standfast.config.scope import OUTSIDE, Keyspace, Label
from standfast.core import journal, removed
from standfast.core.checks import bounded_us, page_size
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.db.store import Resource
from standfast.errors import Busy, Corrupt, InvalidInput, KeyConflict, NotFound, StorageError
from standfast.ids import Id, like_suffix, new_id, short
from standfast.ledger.gate_patterns import Gate, gate_of, match, met
from standfast.ledger.gate_presets import preset_patterns

__all__ = ["Gate", "Gates", "match", "read_copy"]

SQL = load(__name__)

FILE = "gates.json"
FILE_MAX_BYTES = 4 << 20
LOCK_WAIT_S = 5.0
NEEDS = ("approval", "effect", "ask")
PAUSE_MAX_US = 7 * DAY_US
PATTERN_MAX = 500
WHY_MAX = 1000
GATES_MAX = 1000
"""Standing gates of one store; a hook reads them all."""


def page(
    tx: Tx,
    keyspace: Keyspace,
    *,
    everywhere: bool = False,
    paused: bool = False,
    after: str = "",
    limit: int = GATES_MAX,
) -> list[Gate]:
    """The gates of a repository, found by either label, and those of none; with `paused`, also the paused ones."""
    asked: Row = {"everywhere": int(everywhere), "paused": int(paused), "now_us": tx.now_us()}
    where: Row = {**keyspace._asdict(), **_label(tx, keyspace).as_dict()}
    return [gate_of(row) for row in tx.all(SQL.page, after=after, limit=limit, **asked, **where)]


def _label(tx: Tx, keyspace: Keyspace) -> Label:
    return tx.caller.label if keyspace == tx.caller.keyspace else OUTSIDE


class Gates(Resource):
    """Add, remove, list, check."""

    __slots__ = ()

    def add(self, pattern: str, *, need: str = "approval", why: str | None = None, scope: str | None = None) -> Gate:
        """Let commands or tools that match PATTERN (a glob: quote it) pass only with what they need.

        - `need`: approval, effect (recorded first), or ask (Claude Code asks its user; elsewhere as approval).
        - `why`: the reason that a refused agent reads.

        The same gate again changes nothing. Scope "" is every scope. Raises KeyConflict if the need is another.
        """
        wanted: Row = {"pattern": checked_pattern(pattern), "need": checked_need(need), "why": checked_why(why)}
        wanted |= self._keyspace(scope)._asdict()
        made = self._write(lambda tx: _add(tx, wanted))
        self.mirror_after()
        return made

    def add_preset(
        self, preset: str, *, need: str = "approval", why: str | None = None, scope: str | None = None
    ) -> list[Gate]:
        """Add every gate of a preset (git-push, publish, terraform, kubectl-delete), all or none. See `add`."""
        wanted: Row = {"need": checked_need(need), "why": checked_why(why)}
        wanted |= self._keyspace(scope)._asdict()
        patterns = preset_patterns(preset)
        made = self._write(lambda tx: [_add(tx, {"pattern": pattern, **wanted}) for pattern in patterns])
        self.mirror_after()
        return made

    @for_people("pauses a gate")
    def pause(self, gate: str, *, for_: Duration, why: str, scope: str | None = None) -> Gate:
        """Let what a GATE would stop pass for a while: its pattern or id. For people: refused to agents.

        - `for_`: how long, at most 7 days.
        - `why`: the reason, for the journal.

        A second pause replaces the end of the first. Raises NotFound.
        """
        reason = checked_why(why)
        if reason is None:
            raise InvalidInput("a pause needs a reason", "for example: --why 'release 2.0'")
        lasting_us = bounded_us(
            duration_us(for_, "for_"), "a pause", most_us=PAUSE_MAX_US, hint="for example: --for 2h"
        )
        made = self._write(lambda tx: _pause(tx, gate, self._keyspace(scope), lasting_us, reason))
        self.mirror_after()
        return made

    def resume(self, gate: str, *, scope: str | None = None) -> Gate:
        """End the pause of a GATE: its pattern or id. A gate that is not paused stays as it is. Raises NotFound."""
        made = self._write(lambda tx: _resume(tx, gate, self._keyspace(scope)))
        self.mirror_after()
        return made

    @for_people("removes a gate")
    def remove(self, gate: str, *, scope: str | None = None) -> Gate:
        """Remove a GATE: its pattern in this scope, its id, or the end of it. For people: refused to agents.

        Raises NotFound.
        """
        made = self._write(lambda tx: _remove(tx, gate, self._keyspace(scope)))
        self.mirror_after()
        return made

    def check(self, command: str | Sequence[str], *, tool: str | None = None, scope: str | None = None) -> list[Gate]:
        """List the gates that a COMMAND line meets: exit 0 for none, 5 needs a yes, 4 needs to be an effect.

        - `tool`: the name of the tool, as the agent calls it.
        """
        return met(self._read(lambda tx: page(tx, self._keyspace(scope))), command, tool=tool)

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
                f"the store has the gates, but {FILE} in {directory} cannot be written: {error.strerror}",
                "hooks that cannot read the store will not know them; repair it with: standfast gate list",
                code="gates_copy",
            ) from error

    # -- parts of the methods above ----------------------------------------------------------------

    def _keyspace(self, scope: str | None) -> Keyspace:
        """Here, or every repository of a scope."""
        return self.keyspace if scope is None else Keyspace(checked_scope(scope))

    def mirror_after(self) -> None:
        """Bring `gates.json` up to the store: now, or after the transaction that this resource is in."""
        if self.tx is not None:
            outside = Gates(self.store)
            self.tx.after = [*(self.tx.after or ()), lambda: _ignored(outside.mirror())]
            return
        crash.point("gate.before_copy")
        self.mirror()

    def _mirror(self, directory: str) -> bool:
        # Read after the lock is held: of two that changed gates, the last to write has seen both.
        stands = self._read(_standing)
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

    # Last: from here on `list` is this method, also in annotations.
    def list(
        self, *, scope: str | None = None, everywhere: bool = False, after: Id | None = None, limit: int = 50
    ) -> list[Gate]:
        """List the gates that hold here: those of this scope, and those that hold everywhere; also paused ones.

        `after` is the last id of a page.
        """
        where, most = self._keyspace(scope), page_size(limit)
        return self._read(lambda tx: page(tx, where, everywhere=everywhere, paused=True, after=after or "", limit=most))


class _Standing(NamedTuple):
    store_id: str
    gates: list[Gate]


def _standing(tx: Tx) -> _Standing:
    return _Standing(tx.one(SQL.store_id)["value"], page(tx, Keyspace(), everywhere=True, paused=True))


def read_copy(data_dir: str) -> dict[str, Any]:
    """`gates.json` as it is, for `match`; without a file, no gates. Raises Corrupt for anything else."""
    path = os.path.join(data_dir, FILE)
    try:
        text = regular_files.read(path, FILE_MAX_BYTES + 1)
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
    return all(isinstance(gate.get(name), str) for name in ("id", "scope", "repository", "pattern", "need"))


def _damaged(path: str, fact: str) -> Corrupt:
    return Corrupt(f"{path} cannot be read: {fact}", "write it again: standfast gate list", code="gates_copy")


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


def _add(tx: Tx, wanted: Row) -> Gate:
    if tx.one(SQL.count)["n"] >= GATES_MAX:
        raise InvalidInput(
            f"there are {GATES_MAX:,} gates, which is the limit", "use one pattern with *: standfast gate list"
        )
    label = _label(tx, Keyspace(wanted["scope"], wanted["repository"]))
    own: Row = {"id": new_id("gat"), "actor": tx.caller.actor, "now_us": tx.now_us(), **label.as_dict()}
    by_prompt: Row = {"need": "approval", "via": "ask"} if wanted["need"] == "ask" else {"via": None}
    row = tx.maybe(SQL.add, **{**wanted, **by_prompt}, **own)
    if row is not None:
        return _kept(tx, _journalled(tx, gate_of(row), "added"), removed_us=(tx.now_us(), None))
    found = gate_of(tx.one(SQL.by_pattern, **wanted))
    if found.need == wanted["need"]:
        return found
    raise KeyConflict(
        f"the gate {found.pattern!r} exists and needs {found.need}, not {wanted['need']}",
        f"{hints.command('gate', 'remove', short(found.id))}; then add it again",
    )


def _remove(tx: Tx, gate: str, keyspace: Keyspace) -> Gate:
    row = tx.maybe(SQL.remove, id=_find(tx, gate, keyspace).id, now_us=tx.now_us())
    if row is None:
        raise _unknown(gate)
    return _kept(tx, _journalled(tx, gate_of(row), "removed"), removed_us=(None, tx.now_us()))


def _pause(tx: Tx, gate: str, keyspace: Keyspace, lasting_us: int, why: str) -> Gate:
    until_us = tx.now_us() + lasting_us
    found = _find(tx, gate, keyspace)
    row = tx.maybe(SQL.pause, id=found.id, until_us=until_us)
    if row is None:
        raise _unknown(gate)
    data: Row = {"pattern": found.pattern, "until_us": until_us, "why": why}
    made = _journalled(tx, gate_of(row), "paused", f"{found.pattern} until {iso(until_us)}: {why}", data)
    return _kept(tx, made, paused_until_us=(found.paused_until_us, until_us))


def _resume(tx: Tx, gate: str, keyspace: Keyspace) -> Gate:
    found = _find(tx, gate, keyspace)
    if found.paused_until_us is None:
        return found
    row = tx.maybe(SQL.pause, id=found.id, until_us=None)
    if row is None:
        raise _unknown(gate)
    made = _journalled(tx, gate_of(row), "resumed", found.pattern, {"pattern": found.pattern})
    return _kept(tx, made, paused_until_us=(found.paused_until_us, None))


def _find(tx: Tx, gate: str, keyspace: Keyspace) -> Gate:
    """A gate by its pattern in the keyspace, its id, or the end of its id."""
    rows = tx.all(SQL.by_pattern, pattern=" ".join(gate.split()), **keyspace._asdict())
    suffix = like_suffix(gate, prefix="gat")
    if not rows and suffix is not None:
        rows = tx.all(SQL.by_suffix, pattern=f"gat_%{suffix}")
    if len(rows) > 1:
        raise InvalidInput(f"{gate!r} names more than one gate", "give more of its characters")
    if not rows:
        raise _unknown(gate)
    return gate_of(rows[0])


def _unknown(gate: str) -> NotFound:
    return NotFound(f"there is no gate {serial.clean(gate, 60)!r} here", "standfast gate list --all")


def _journalled(tx: Tx, made: Gate, what: str, summary: str = "", data: Row | None = None) -> Gate:
    data = data or {"pattern": made.pattern, "need": made.need}
    summary = summary or f"{made.pattern} needs {made.need}" + (f": {made.why}" if made.why else "")
    receipt = journal.append(tx, f"gate.{what}", made.id, summary=summary, data=data, state=what, scope=made.scope)
    return made.replace(receipt=receipt)


def _kept(tx: Tx, made: Gate, **changed: tuple[int | None, int | None]) -> Gate:
    """Keep what `undo` needs: each column as it was and as it is. A gate that is not there yet counts as removed."""
    was, now = ({"id": made.id, **{name: pair[n] for name, pair in changed.items()}} for n in (0, 1))
    removed.keep(tx, "gate", was, now)
    return made


def _plain(gate: Gate) -> dict[str, serial.Json]:
    """The gate in the copy. A pause is not in it: a hook that cannot read the store counts none."""
    return {name: value for name, value in gate.as_dict().items() if name not in ("receipt", "paused_until_us")}


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
        raise InvalidInput(f"a gate needs {', '.join(NEEDS)}, not {serial.clean(need, 40)!r}", "--need approval")
    return need


def checked_scope(scope: str) -> str:
    """A gate that does not fit into the copy is refused in the store too."""
    serial.canonical(scope, what="scope")
    return scope


def checked_why(why: str | None) -> str | None:
    if not why:
        return None
    if len(why) > WHY_MAX:
        raise InvalidInput(f"why: {len(why):,} characters, and the limit is {WHY_MAX:,}")
    serial.canonical(why, what="why")
    return why
