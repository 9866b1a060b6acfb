"""Short scenes for the store, `doctor`, the MCP server, gates and the spool.

Each ends in AssertionError if its bug is there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

import standfast
from standfast import handle
from standfast.footings import leases
from standfast.interchange.hooks import spool
from standfast.interchange.hooks.hearing import Heard
from standfast.interchange.hooks.keeping import Hooks
from standfast.ledger import gate_patterns
from standfast.upkeep.doctor import Finding, examine
from standfast_prove.raising import raising

HIDE = (
    "PRAGMA writable_schema = ON;"
    "CREATE TABLE kept AS SELECT * FROM sqlite_schema WHERE type = 'index' AND tbl_name = 'task' AND sql NOT NULL;"
    "DELETE FROM sqlite_schema WHERE type = 'index' AND tbl_name = 'task' AND sql NOT NULL;"
)
CHANGE = "DROP TRIGGER guard_task_update; UPDATE task SET priority = 4, title = 'after', state = 'closed';"
SHOW = "PRAGMA writable_schema = ON; INSERT INTO sqlite_schema SELECT * FROM kept; DROP TABLE kept;"
"""Three scripts for stock sqlite3, one connection each: afterwards the indexes of `task` lack a row."""


def check_index_lacks_rows(sf: standfast.Standfast) -> None:
    """Another program hid the indexes of a table, changed its row, and put them back."""
    sf.tasks.add("before")
    for script in (HIDE, CHANGE, SHOW):
        stock_sqlite(sf, script)
    assert _examined(sf)["integrity"].state == "error", "an index that lacks rows was not found"


def check_foreign_tables(sf: standfast.Standfast) -> None:
    """Litestream keeps two tables in the file and writes them."""
    stock_sqlite(sf, "CREATE TABLE _litestream_seq (id INTEGER PRIMARY KEY, seq INTEGER)")
    _examined(sf, fix=True)
    stock_sqlite(sf, "INSERT INTO _litestream_seq (seq) VALUES (1)")


def check_lost_rows(sf: standfast.Standfast) -> None:
    """The WAL is truncated, and the thread that renews leases gets the first error, which it ignores."""
    stock_sqlite(sf, "PRAGMA wal_checkpoint(TRUNCATE)")
    sf.state.set("acknowledged", 1)
    os.truncate(f"{sf.settings.target.location}-wal", 0)
    with raising(standfast.CommitUnknown):
        leases.renewer(sf._store).renew()
    with raising(standfast.StorageError):
        sf.state.set("later", 1)


def check_unknown_arguments(sf: standfast.Standfast) -> None:
    """A model calls a tool with an argument of another name."""
    import anyio

    async def call() -> None:
        async with import_module("mcp").Client(mcp_server().build(sf)) as client:
            answer = await client.call_tool("approval_request", {"tool": "deploy", "intent": {"to": "x"}, "input": 1})
            assert answer.is_error, "an unknown argument was dropped"

    anyio.run(call)


def check_gate_limit(sf: standfast.Standfast) -> None:
    """An agent pads its command until nobody reads it to the end."""
    sf.gates.add("git push*")
    padded = "true;" * gate_patterns.TEXT_MAX + "git push"
    assert sf.gates.check(padded), "a text beyond the limit passed the gate"


def check_unsealed_answer(sf: standfast.Standfast) -> None:
    """A repository brings a spool along that answers a call of a real session."""
    call = Heard("claude-code", "call", "PreToolUse", "s1", 1, None, None, "t1", "Bash", "{}", None, "pending")
    Hooks(sf._store).keep(call)
    answer = call._replace(kind="answer", name="PostToolUse", at_us=2, output="all passed", status="ok")
    there = os.path.join(sf.settings.data_dir, "clone", ".standfast", "spool")
    os.makedirs(there, 0o700)
    line = json.dumps({"v": 1, "actor": sf.settings.actor, "scope": sf.scope, **answer._asdict()})
    with open(os.open(os.path.join(there, "open.ndjson"), os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
        file.write(f"- {line}\n")
    assert spool.drain(sf._store, [there], sf.settings.data_dir).kept == 1
    outputs = [row["output"] for row in sf.rows("SELECT output FROM tool_call WHERE status = 'pending'")]
    assert outputs == [None], "a record without a seal changed a call that standfast recorded"


def mcp_server() -> Any:
    """By name: the MCP server lies above the evaluation."""
    return import_module("standfast.mcp.server")


def _examined(sf: standfast.Standfast, *, fix: bool = False) -> dict[str, Finding]:
    return {one.id: one for one in examine(lambda: sf.settings, handle.connect, fix=fix)}


def stock_sqlite(sf: standfast.Standfast, script: str) -> None:
    """Another program, in another process."""
    code = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.executescript(sys.argv[2]); c.commit()"
    path = sf.settings.target.location
    done = subprocess.run([sys.executable, "-P", "-c", code, path, script], capture_output=True, text=True)
    assert done.returncode == 0, f"another program could not write its own table: {done.stderr[-200:]}"


SCENES: dict[str, Callable[[standfast.Standfast], None]] = {
    name.removeprefix("check_"): scene for name, scene in list(globals().items()) if name.startswith("check_")
}
