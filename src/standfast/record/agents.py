"""Agents: their names, kinds, configurations and status.

There is no registration. An agent is known by name once it opens a session, claims a task or claims mail: `notice`
then writes its last-seen time, after the work, at most every five minutes per handle, and without waiting for fsync.
`set` writes what an agent reports about itself, such as its kind, its configuration or that it is blocked.

The shown status is computed on each read. *active*: the agent holds a task or a session now. *crashed*: its process
has exited and it still held something. *stale*: it reported work and was not seen for an hour.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, TypeAlias

from standfast import crash, serial
from standfast.clock import HOUR_US, MINUTE_US
from standfast.core import journal, keys, leases, removed
from standfast.core.checks import NAME_MAX, NOT_GIVEN, page_size
from standfast.core.receipts import Receipt
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.db.store import Resource, Store, query
from standfast.errors import InvalidInput, NotFound, StorageError
from standfast.models import Model

SQL = load(__name__)

STATUSES = ("idle", "active", "blocked", "error")
WHY_MAX = 500
CONFIG_MAX_BYTES = 64 * 1024
NOTICE_EVERY_US = 5 * MINUTE_US
STALE_US = HOUR_US
SCAN_PAGE = 200
SCAN_PAGES_MAX = 50
"""The most pages that a search by status or configuration reads."""

AgentList: TypeAlias = "list[Agent]"


class Agent(Model):
    """One agent and its status."""

    scope: str
    name: str
    kind: str | None
    status: str
    """idle, active, blocked or error. It is active while it holds a task or a session."""
    status_why: str | None
    task_id: str | None
    """The task that it holds, or the open task that it named."""
    session_id: str | None
    config: serial.Json
    metadata: serial.Json
    holder: str | None
    first_seen_us: int
    last_seen_us: int
    crashed: bool
    """The agent's process has exited while it had a claim or reported `active`."""
    stale: bool
    """The agent reported work, has no claim, and was not seen for an hour."""
    receipt: Receipt | None = None

    @property
    def status_shown(self) -> str:
        """The status, marked if it is crashed or stale: `active (crashed)`."""
        return self.status + (" (crashed)" if self.crashed else " (stale)" if self.stale else "")

    @property
    def place(self) -> tuple[str, str]:
        """The cursor of a list: pass it as `after=`."""
        return self.scope, self.name

    @staticmethod
    def columns() -> tuple[str, ...]:
        return "name", "kind", "status_shown status", "task_id", "last_seen_us", "status_why why"


class Agents(Resource):
    """Agents: set, name, get and list them."""

    __slots__ = ()

    def set(
        self,
        name: str | None = None,
        *,
        kind: str | None = NOT_GIVEN,
        status: str = NOT_GIVEN,
        why: str | None = NOT_GIVEN,
        task: str | None = NOT_GIVEN,
        config: serial.Json = NOT_GIVEN,
        metadata: serial.Json = NOT_GIVEN,
    ) -> Agent:
        """Record the status or configuration of an agent; without a name, of the caller. Other fields stay.

        - `name`: the agent.
        - `kind`: the kind of agent: claude-code, codex, reviewer.
        - `status`: what it does.
        - `why`: record why it is blocked, or what went wrong.
        - `task`: the task it works on; empty for none.
        - `config`: replace its whole configuration.
        - `metadata`: replace its other facts.

        A new status without `why` clears the old reason. Raises NotFound for an unknown task.
        """
        given: Row = {
            "kind": kind if kind in (NOT_GIVEN, None) else keys.checked(kind, "an agent's kind", limit=NAME_MAX),
            "status": status if status is NOT_GIVEN else _checked_status(status),
            "status_why": why if why is NOT_GIVEN or why is None else serial.clean(why, WHY_MAX),
            "task_id": task,
            "config": config if config is NOT_GIVEN else _json(config, "config"),
            "metadata": metadata if metadata is NOT_GIVEN else _json(metadata, "metadata"),
        }
        columns = {column: value for column, value in given.items() if value is not NOT_GIVEN}
        if "status" in columns:
            columns.setdefault("status_why", None)
        agent = checked_name(self.agent if name is None else name)
        return self._write(lambda tx: self._changed(tx, agent, columns))

    def _changed(self, tx: Tx, name: str, columns: Row) -> Agent:
        if columns.get("task_id") is not None:
            from standfast.record.tasks import changes

            columns = columns | {"task_id": changes.find(tx, columns["task_id"])["id"]}
        crash.point("agent.before_set")
        tx.run(SQL.add, scope=self.scope, name=name, now_us=tx.now_us(), **tx.caller.labelled())
        row = tx.one(SQL.by_name_for_update, scope=self.scope, name=name)
        old, changed = row, {column: value for column, value in columns.items() if row[column] != value}
        if name == tx.caller.actor:
            row = row | {"holder": tx.caller.holder, "last_seen_us": tx.now_us()}
        tx.one(SQL.change, **{k: v for k, v in (row | changed).items() if k != "first_seen_us"})
        words = ", ".join(f"{column} {serial.clean(str(value), 60)}" for column, value in changed.items())
        receipt = journal.append(tx, "agent.set", f"agent:{name}", summary=words or "nothing new", data=changed)
        removed.keep(tx, "agent", old, old | changed)
        return _agent(tx, row | changed).replace(receipt=receipt)

    def name(self, name: str, *, agent: str | None = None) -> Agent:
        """Give an agent's session a NAME: mail to NAME or role:NAME reaches it.

        - `agent`: the session's actor, as `standfast agent list` shows it: claude-code:ID.  [default: the caller]

        The name moves if another session had it. Raises NotFound for an agent that was never seen.
        """
        wanted, given = checked_name(name), checked_name(self.store.caller.actor if agent is None else agent)
        return self._write(lambda tx: self._named(tx, wanted, given))

    def _named(self, tx: Tx, name: str, given: str) -> Agent:
        found = tx.maybe(SQL.by_name, scope=self.scope, name=given)
        known = found or given == tx.caller.actor or tx.maybe(SQL.session, scope=self.scope, key=given)
        if not known:
            raise NotFound(f"no agent {given!r} is known in this scope", "standfast agent list")
        crash.point("agent.before_set")
        tx.run(SQL.add, scope=self.scope, name=name, now_us=tx.now_us(), **tx.caller.labelled())
        row = tx.one(SQL.by_name_for_update, scope=self.scope, name=name)
        kind = row["kind"] or (found["kind"] if found else None)
        row = row | {"holder": leases.actor_holder(given), "kind": kind, "last_seen_us": tx.now_us()}
        tx.one(SQL.change, **{k: v for k, v in row.items() if k != "first_seen_us"})
        receipt = journal.append(tx, "agent.named", f"agent:{name}", summary=given, data={"agent": given})
        return _agent(tx, row).replace(receipt=receipt)

    @query
    def get(self, tx: Tx, name: str | None = None) -> Agent:
        """Show one agent: its status, what it holds, its configuration; without a name, the caller.

        - `name`: the agent.

        Raises NotFound.
        """
        name = self.agent if name is None else name
        row = tx.maybe(SQL.by_name, scope=self.scope, name=checked_name(name))
        if row is None:
            raise NotFound(f"no agent {name!r} is known in this scope", "standfast agent list")
        return _agent(tx, row)

    @query
    def list(
        self,
        tx: Tx,
        *,
        status: str | None = None,
        kind: str | None = None,
        config: Mapping[str, Any] | None = None,
        crashed: bool | None = None,
        stale: bool | None = None,
        everywhere: bool = False,
        after: tuple[str, str] | None = None,
        limit: int = 50,
    ) -> AgentList:
        """List agents by name.

        - `status`: only with this status.
        - `kind`: only list agents of this kind: claude-code, codex.
        - `config`: only list agents with this value in the configuration: model=claude-*; may be given several times.
        - `crashed`: only list agents whose process exited while it held a task or a session.
        - `stale`: only list agents that were active and have not reported for an hour.
        - `after`: start after this cursor, the (scope, name) of the last one of the page before.

        A name in `config` may be a path with dots. A text that ends in `*` is a prefix:
        `list(status="active", config={"model": "claude-*"})`.
        """
        if status is not None:
            _checked_status(status)
        limit, wanted = page_size(limit), config or {}
        scope, name = after or (("", "") if everywhere else (self.scope, ""))
        found: list[Agent] = []
        plain = status is None and crashed is None and stale is None and not wanted
        size = limit if plain else SCAN_PAGE
        for _ in range(SCAN_PAGES_MAX):
            asked: Row = {"scope": self.scope, "everywhere": int(everywhere), "after_scope": scope, "after": name}
            rows = tx.all(SQL.page, kind=kind or "", limit=size, **asked)
            found += [
                one
                for one in (_agent(tx, row) for row in rows if configured(serial.read(row["config"]), wanted))
                if status in (None, one.status) and crashed in (None, one.crashed) and stale in (None, one.stale)
            ]
            if len(rows) < size or len(found) >= limit:
                break
            scope, name = rows[-1]["scope"], rows[-1]["name"]
        return found[:limit]


def notice(store: Store, tx: Tx | None, name: str | None = None) -> None:
    """Write the last-seen time of the actor, after its work. In a caller's transaction it runs after the commit."""
    name = name or store.caller.actor
    if tx is not None:
        tx.after = [*(tx.after or ()), lambda: notice(store, None, name)]
        return
    now_us, who = store.caller.clock.mono_us(), (name, store.caller.holder)
    last_us = store.noticed.get(who)
    if last_us is not None and 0 <= now_us - last_us < NOTICE_EVERY_US:
        return
    from standfast.config import agent_present

    kind = agent_present()
    with suppress(StorageError, InvalidInput):  # if it fails, the last-seen time only stays older
        store.write(lambda tx: _seen(tx, str(name), kind), durable=False)
        store.noticed[who] = now_us


def _seen(tx: Tx, name: str, kind: str | None) -> None:
    """Writes no journal row, because the journal row of the work has the agent's name."""
    asked: Row = {"scope": tx.caller.scope, "name": checked_name(name), "kind": kind, "holder": tx.caller.holder}
    tx.run(SQL.seen, now_us=tx.now_us(), **asked, **tx.caller.labelled())


def configured(config: serial.Json, wanted: Mapping[str, Any]) -> bool:
    """Whether a configuration has all of these values."""
    return all(_says(config, path.split("."), value) for path, value in wanted.items())


def _says(config: serial.Json, path: list[str], wanted: Any) -> bool:
    for name in path:
        if not isinstance(config, dict) or name not in config:
            return False
        config = config[name]
    if isinstance(wanted, str) and wanted.endswith("*"):
        return isinstance(config, str) and config.startswith(wanted[:-1])
    return type(config) is type(wanted) and bool(config == wanted)


# -- private functions -------------------------------------------------------------------------------


def _agent(tx: Tx, row: Row) -> Agent:
    """The model of a row, with the status that its leases and its process have now."""
    holder = row["holder"] or ""
    asked: Row = {"scope": row["scope"], "holder": holder, "actor_holder": leases.actor_holder(row["name"])}
    task, session = tx.maybe(SQL.held_task, **asked), tx.maybe(SQL.held_session, **asked)
    held = [one for one in (task, session) if one is not None]
    working = any(leases.judge(tx, one).live for one in held)
    gone = row["holder"] is not None and leases.is_gone(row["holder"], tx.caller.clock)
    status = row["status"] if row["status"] in ("blocked", "error") or not working else "active"
    silent = tx.now_us() - row["last_seen_us"] > STALE_US
    crashed = not working and ((gone and row["status"] == "active") or any(_left(tx, one) for one in held))
    return Agent(
        scope=row["scope"],
        name=row["name"],
        kind=row["kind"],
        status=status,
        status_why=row["status_why"] if status == row["status"] else None,
        task_id=task["id"] if task is not None else _open_task(tx, row["task_id"]),
        session_id=session["id"] if session is not None else None,
        config=serial.read(row["config"]),
        metadata=serial.read(row["metadata"]),
        holder=row["holder"],
        first_seen_us=row["first_seen_us"],
        last_seen_us=row["last_seen_us"],
        crashed=crashed,
        stale=not crashed and not working and silent and (row["status"] != "idle" or bool(held)),
    )


def _left(tx: Tx, held: Row) -> bool:
    return leases.judge(tx, held).gone


def _open_task(tx: Tx, task_id: str | None) -> str | None:
    """The id of the task that the agent named, unless that task is closed."""
    row = None if task_id is None else tx.maybe(SQL.task, id=task_id)
    return task_id if row is not None and row["state"] != "closed" else None


def checked_name(name: object) -> str:
    return keys.checked(name, "an agent's name", limit=NAME_MAX)


def _checked_status(status: object) -> str:
    if status not in STATUSES:
        raise InvalidInput(f"a status is {', '.join(STATUSES)}, not {serial.clean(str(status), 40)!r}")
    return str(status)


def _json(value: serial.Json, what: str) -> str | None:
    if value is None:
        return None
    plain = serial.encode(value, what=what)
    if not isinstance(plain, dict):
        raise InvalidInput(f"{what} is an object of names and values, not {type(value).__name__}")
    return serial.dumps(plain, what=what, limit_bytes=CONFIG_MAX_BYTES)
