"""Gates: patterns of commands that need a person's approval (`approval`, `ask`) or must be effects (`effect`).

    standfast gate add "git push*" --need approval --why "main is protected"

Agents' hooks and `standfast once` enforce gates. They are rows in the store. `gates.json` in the data directory is a
copy: a hook that cannot read the store refuses the commands that match there. The copy is written after the commit. If
the process is killed in between, the next gate command writes it.

`gate_patterns` compares a pattern with a command.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

from standfast import crash, hints, serial
from standfast.clock import DAY_US, Duration, duration_us, iso
from standfast.config import regular_files
from standfast.config.people import for_people
from standfast.config.scope import OUTSIDE, Keyspace, Label
from standfast.core import file_lock, journal, lookup, removed
from standfast.core.checks import bounded_us, page_size
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.db.store import Resource
from standfast.errors import Corrupt, InvalidInput, KeyConflict, NotFound, StorageError
from standfast.ids import Id, new_id, short
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
"""Gates of one store. A hook reads all of them."""


def page(
    tx: Tx,
    keyspace: Keyspace,
    *,
    everywhere: bool = False,
    paused: bool = False,
    after: str = "",
    limit: int = GATES_MAX,
) -> list[Gate]:
    """The gates of a repository, found by either part of its label, and those of no repository. With `paused`, also
    paused ones.
    """
    asked: Row = {"everywhere": int(everywhere), "paused": int(paused), "now_us": tx.now_us()}
    where: Row = {**keyspace._asdict(), **_label(tx, keyspace).as_dict()}
    return [gate_of(row) for row in tx.all(SQL.page, after=after, limit=limit, **asked, **where)]


def _label(tx: Tx, keyspace: Keyspace) -> Label:
    return tx.caller.label if keyspace == tx.caller.keyspace else OUTSIDE


class Gates(Resource):
    """Gates: add, pause, remove, list and check them."""

    __slots__ = ()

    def add(self, pattern: str, *, need: str = "approval", why: str | None = None, scope: str | None = None) -> Gate:
        """Stop commands and tools that match PATTERN (a glob: quote it) until they have what the gate needs.

        - `need`: approval, effect (recorded first), or ask (Claude Code asks its user; elsewhere as approval).
        - `why`: the reason that a refused agent reads.

        Adding the same gate again changes nothing. Scope "" means every scope. Raises KeyConflict if the gate has
        another need.
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
        """Pause a GATE, given by its pattern or id: it stops nothing for a while. Refused to agents.

        - `for_`: pause it for this long, at most 7 days.
        - `why`: record the reason in the journal.

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
        """End the pause of a GATE, given by its pattern or id. Does nothing if it is not paused. Raises NotFound."""
        made = self._write(lambda tx: _resume(tx, gate, self._keyspace(scope)))
        self.mirror_after()
        return made

    @for_people("removes a gate")
    def remove(self, gate: str, *, scope: str | None = None) -> Gate:
        """Remove a GATE, given by its pattern in this scope, its id, or the end of its id. Refused to agents.

        Raises NotFound.
        """
        made = self._write(lambda tx: _remove(tx, gate, self._keyspace(scope)))
        self.mirror_after()
        return made

    def check(self, command: str | Sequence[str], *, tool: str | None = None, scope: str | None = None) -> list[Gate]:
        """List the gates that match a COMMAND line: exit 0 for none, 5 needs approval, 4 must be an effect.

        - `tool`: the name of the tool, as the agent calls it.
        """
        return met(self._read(lambda tx: page(tx, self._keyspace(scope))), command, tool=tool)

    def mirror(self) -> bool:
        """Write `gates.json` if it differs from the store, and return whether it did. Raises StorageError."""
        directory = self.store.data_dir
        if directory is None:
            return False
        try:
            from standfast.config.files import private_directory

            private_directory(directory)
            path = os.path.join(directory, FILE + ".lock")
            busy = f"{path} has been locked for {LOCK_WAIT_S:.0f} s"
            with file_lock.locked(file_lock.opened(path), busy, "try again", wait_s=LOCK_WAIT_S):
                return self._mirror(directory)
        except OSError as error:
            raise StorageError(
                f"the store has the gates, but {FILE} in {directory} cannot be written: {error.strerror}",
                "hooks that cannot read the store do not enforce them; write it again: standfast gate list",
                code="gates_copy",
            ) from error

    # -- private methods ---------------------------------------------------------------------------

    def _keyspace(self, scope: str | None) -> Keyspace:
        """The keyspace of the caller; with `scope`, every repository of that scope."""
        return self.keyspace if scope is None else Keyspace(checked_scope(scope))

    def mirror_after(self) -> None:
        """Write `gates.json` now, or after the commit of the transaction that this resource is in."""
        if self.tx is not None:
            outside = Gates(self.store)
            self.tx.after = [*(self.tx.after or ()), lambda: _ignored(outside.mirror())]
            return
        crash.point("gate.before_copy")
        self.mirror()

    def _mirror(self, directory: str) -> bool:
        # Read under the lock: of two processes that changed gates, the last one to write has then seen both changes.
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

    # The last method: after it, `list` means this method in the class, also in annotations.
    def list(
        self, *, scope: str | None = None, everywhere: bool = False, after: Id | None = None, limit: int = 50
    ) -> list[Gate]:
        """List the gates that apply here, paused ones included: those of this scope and those of every scope.

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
    """The content of `gates.json`, for `match`; no gates if there is no file. Raises Corrupt for any other content."""
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
        return _kept(tx, _journal_change(tx, gate_of(row), "added"), removed_us=(tx.now_us(), None))
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
    return _kept(tx, _journal_change(tx, gate_of(row), "removed"), removed_us=(None, tx.now_us()))


def _pause(tx: Tx, gate: str, keyspace: Keyspace, lasting_us: int, why: str) -> Gate:
    until_us = tx.now_us() + lasting_us
    found = _find(tx, gate, keyspace)
    row = tx.maybe(SQL.pause, id=found.id, until_us=until_us)
    if row is None:
        raise _unknown(gate)
    data: Row = {"pattern": found.pattern, "until_us": until_us, "why": why}
    made = _journal_change(tx, gate_of(row), "paused", f"{found.pattern} until {iso(until_us)}: {why}", data)
    return _kept(tx, made, paused_until_us=(found.paused_until_us, until_us))


def _resume(tx: Tx, gate: str, keyspace: Keyspace) -> Gate:
    found = _find(tx, gate, keyspace)
    if found.paused_until_us is None:
        return found
    row = tx.maybe(SQL.pause, id=found.id, until_us=None)
    if row is None:
        raise _unknown(gate)
    made = _journal_change(tx, gate_of(row), "resumed", found.pattern, {"pattern": found.pattern})
    return _kept(tx, made, paused_until_us=(found.paused_until_us, None))


def _find(tx: Tx, gate: str, keyspace: Keyspace) -> Gate:
    """A gate by its pattern in the keyspace, its id, or the end of its id."""

    def of_pattern(text: str) -> Row | None:
        return tx.maybe(SQL.by_pattern, pattern=" ".join(text.split()), **keyspace._asdict())

    row = lookup.row_of(tx, gate, "gat", by_key=of_pattern)
    if row is None or row["removed_us"] is not None:
        raise _unknown(gate)
    return gate_of(row)


def _unknown(gate: str) -> NotFound:
    return NotFound(f"there is no gate {serial.clean(gate, 60)!r} here", "standfast gate list --all")


def _journal_change(tx: Tx, made: Gate, what: str, summary: str = "", data: Row | None = None) -> Gate:
    data = data or {"pattern": made.pattern, "need": made.need}
    summary = summary or f"{made.pattern} needs {made.need}" + (f": {made.why}" if made.why else "")
    receipt = journal.append(tx, f"gate.{what}", made.id, summary=summary, data=data, state=what, scope=made.scope)
    return made.replace(receipt=receipt)


def _kept(tx: Tx, made: Gate, **changed: tuple[int | None, int | None]) -> Gate:
    """Keep the old and the new value of each changed column for `undo`. A new gate has the old state "removed"."""
    was, now = ({"id": made.id, **{name: pair[n] for name, pair in changed.items()}} for n in (0, 1))
    removed.keep(tx, "gate", was, now)
    return made


def _plain(gate: Gate) -> dict[str, serial.Json]:
    """The gate as `gates.json` has it, without its pause: a hook that cannot read the store ignores pauses."""
    return {name: value for name, value in gate.as_dict().items() if name not in ("receipt", "paused_until_us")}


def _ignored(_: object) -> None:
    """An action after a transaction returns nothing."""


def checked_pattern(text: str) -> str:
    """The pattern with each run of white space as one space, as in the commands that it is compared with."""
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
    """The scope, if JSON can hold it: `gates.json` must be able to."""
    serial.canonical(scope, what="scope")
    return scope


def checked_why(why: str | None) -> str | None:
    if not why:
        return None
    if len(why) > WHY_MAX:
        raise InvalidInput(f"why: {len(why):,} characters, and the limit is {WHY_MAX:,}")
    serial.canonical(why, what="why")
    return why
