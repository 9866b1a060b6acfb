"""Short scenes for the store, `doctor`, the MCP server, gates and the spool.

Each ends in AssertionError if its bug is there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import Any
from unittest import mock

import standfast
from standfast import handle
from standfast.admin.doctor import Finding, examine
from standfast.core import leases
from standfast.db import store_memory
from standfast.db.sql import statement
from standfast.interchange.hooks import spool
from standfast.interchange.hooks.payloads import Heard
from standfast.interchange.hooks.record import Hooks
from standfast.ledger import gate_patterns
from standfast_prove.faults.children import Child
from standfast_prove.faults.rows import INSERT
from standfast_prove.raising import raising

HIDE = (
    "PRAGMA writable_schema = ON;"
    "CREATE TABLE kept AS SELECT * FROM sqlite_schema WHERE type = 'index' AND tbl_name = 'task' AND sql NOT NULL;"
    "DELETE FROM sqlite_schema WHERE type = 'index' AND tbl_name = 'task' AND sql NOT NULL;"
)
CHANGE = "DROP TRIGGER guard_task_update; UPDATE task SET priority = 4, title = 'after', state = 'closed';"
SHOW = "PRAGMA writable_schema = ON; INSERT INTO sqlite_schema SELECT * FROM kept; DROP TABLE kept;"
"""Three scripts for stock sqlite3, one connection each. Afterwards the indexes of `task` lack a row."""

CHANGE_AND_CHECKPOINT = """
import standfast
from standfast.db.sql import statement
from standfast_prove.faults.limits import set_limit
set_limit("CHECKPOINT_FRAMES", 3)
change = statement("UPDATE meta SET value = :value WHERE key = 'k'")
with standfast.open(sys.argv[1], data_dir=sys.argv[2]) as sf:
    for value in "bcdef":
        sf._store.write(lambda tx: tx.run(change, value=value * 3000))
"""

SEND = """
import standfast
from standfast.db import store_memory
from standfast.db.sql import statement
store_memory.TEMPORARY = ()
with standfast.open(sys.argv[1], data_dir=sys.argv[2]) as sf, sf.session("job") as s:
    s.effect("mail.send", do=lambda call: 1)
"""
FORGET = statement("DELETE FROM meta WHERE key LIKE 'k-%'")
PUT_BACK = """
import os
os.replace(sys.argv[2], sys.argv[1])
for end in ("-wal", "-shm"):
    os.unlink(sys.argv[1] + end)
"""


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


def check_dropped_table(sf: standfast.Standfast) -> None:
    """Another program drops one of our tables. Every call raises an error that names it, and so does `doctor`."""
    stock_sqlite(sf, "DROP TABLE task")
    with raising(standfast.Corrupt, match="no such table: task"):
        sf.tasks.list()
    found = _examined(sf)
    assert "schema" in found, "doctor did not compare the schema"
    assert found["schema"].state == "error", found["schema"].text


def check_deleted_text(sf: standfast.Standfast) -> None:
    """Rows with a name are deleted; then another program searches the bytes of the file."""
    for n in range(50):
        sf._store.write(lambda tx, n=n: tx.run(INSERT, key=f"k-{n}", value="Zaphod Beeblebrox" * 20))  # type: ignore[misc]
    sf._store.write(lambda tx: tx.run(FORGET))
    stock_sqlite(sf, "PRAGMA wal_checkpoint(TRUNCATE)")
    _in_another_process(sf, "assert b'Zaphod' not in open(sys.argv[1], 'rb').read(), 'deleted text is in the file'")


def check_interrupted_import(sf: standfast.Standfast) -> None:
    """A thread is hit inside the import lock of a resource; then another thread uses the resource."""
    target = "standfast_prove.faults.imports:first_access_under_fire"
    with Child(target, directory=sf.settings.data_dir, resource="items", places=40) as child:
        assert child.end(50) == ["[]"], "an interrupted import hangs another thread"


def check_waiting_write(sf: standfast.Standfast) -> None:
    """A signal hits a caller whose write waits for another process's lock. The write must not be made later."""
    path = os.path.join(sf.settings.data_dir, "waiting.db")
    with Child("standfast_prove.campaigns.interrupts:interrupt_waiting", path=path, acts=3) as child:
        hit, made = child.end(50)
    assert int(hit) == 3, "the signal did not hit the waiting caller"
    assert made == "[]", f"writes were made after they had raised: {made}"


def check_missing_store(sf: standfast.Standfast) -> None:
    """The directory of the store is removed under this process, which tries to write again."""
    with _store_of_its_own(sf) as own:
        own.state.set("before", 1)
        _in_another_process(own, "import os, shutil; shutil.rmtree(os.path.dirname(sys.argv[1]))")
        for _ in range(2):
            with raising(standfast.StorageError):
                own.state.set("later", 1)
        assert not os.path.exists(own.settings.target.location), "a second store was created"


def check_another_store(sf: standfast.Standfast) -> None:
    """Another store replaces one that this process has open and has not written to."""
    other = os.path.join(sf.settings.data_dir, "other.db")
    with standfast.open(other, data_dir=sf.settings.data_dir) as there:
        stock_sqlite(there, "PRAGMA wal_checkpoint(TRUNCATE)")
    with _store_of_its_own(sf) as own:
        _in_another_process(own, PUT_BACK, other)
        for _ in range(2):
            with raising(standfast.StorageError):
                own.state.set("later", 1)


def check_lost_rows(sf: standfast.Standfast) -> None:
    """The WAL is truncated, and the thread that renews leases gets the first error, which it ignores."""
    stock_sqlite(sf, "PRAGMA wal_checkpoint(TRUNCATE)")
    sf.state.set("acknowledged", 1)
    os.truncate(f"{sf.settings.target.location}-wal", 0)
    with raising(standfast.CommitUnknown):
        leases.renewer(sf._store).renew()
    with raising(standfast.StorageError):
        sf.state.set("later", 1)


def check_foreign_header(sf: standfast.Standfast) -> None:
    """Another program writes a header with a higher change counter; the WAL index knows of no checkpoint."""
    sf.state.set("before", 1)
    stock_sqlite(sf, "PRAGMA wal_checkpoint(TRUNCATE)")
    sf.state.set("seen", 1)
    _in_another_process(sf, "f = open(sys.argv[1], 'r+b'); f.seek(24); f.write(b'\\x00\\x0f\\x00\\x00')")
    with raising(standfast.CommitUnknown):
        sf.state.set("later", 1)


def check_older_copy(sf: standfast.Standfast) -> None:
    """Another process changes a row and checkpoints. Then the older file, which this process knows, is put back."""
    sf._store.write(lambda tx: tx.run(INSERT, key="k", value="a" * 3000))
    stock_sqlite(sf, "PRAGMA wal_checkpoint(TRUNCATE)")
    older = os.path.join(sf.settings.data_dir, "older.db")
    _in_another_process(sf, "import shutil; shutil.copyfile(sys.argv[1], sys.argv[2])", older)
    _in_another_process(sf, CHANGE_AND_CHECKPOINT, sf.settings.data_dir)
    _in_another_process(sf, "import shutil; shutil.copyfile(sys.argv[2], sys.argv[1])", older)
    with raising(standfast.CommitUnknown):
        sf.state.set("later", 1)


def check_older_state(sf: standfast.Standfast) -> None:
    """Another process sends an effect. Then an older copy of the store is put back. This process itself lost no row."""
    older = os.path.join(sf.settings.data_dir, "older.db")
    with _store_of_its_own(sf) as own:
        own.state.set("before", 1)
        stock_sqlite(own, "PRAGMA wal_checkpoint(TRUNCATE)")
        _in_another_process(own, "import shutil; shutil.copyfile(sys.argv[1], sys.argv[2])", older)
        _in_another_process(own, SEND, own.settings.data_dir)
        _in_another_process(own, PUT_BACK, older)
        with raising(standfast.CommitUnknown):
            own.state.set("later", 1)
        with raising(standfast.StorageError):
            own.state.set("later", 1)


@contextmanager
def _store_of_its_own(sf: standfast.Standfast) -> Iterator[standfast.Standfast]:
    """Creates another store that the host remembers."""
    home = os.path.join(sf.settings.data_dir, "home")
    os.mkdir(home, 0o700)
    directory = os.path.join(home, "store")
    with _remembering(home), standfast.open(os.path.join(directory, "own.db"), data_dir=directory) as own:
        yield own


@contextmanager
def _remembering(home: str) -> Iterator[None]:
    """Makes the host remember stores in `home`, although it is a temporary directory."""
    with mock.patch.dict(os.environ, HOME=home), mock.patch.object(store_memory, "TEMPORARY", ()):
        for name in ("STANDFAST_REMEMBER", "XDG_STATE_HOME", "TMPDIR"):
            os.environ.pop(name, None)
        yield


def check_unknown_arguments(sf: standfast.Standfast) -> None:
    """An LLM calls a tool with an argument of a wrong name."""
    import anyio

    async def call() -> None:
        async with import_module("mcp").Client(mcp_server().build(sf)) as client:
            answer = await client.call_tool("approval_request", {"tool": "deploy", "intent": {"to": "x"}, "input": 1})
            assert answer.is_error, "an unknown argument was dropped"

    anyio.run(call)


def check_waiting_calls(sf: standfast.Standfast) -> None:
    """50 calls wait for an approval, more than the server has threads; tasks are added meanwhile."""
    import anyio

    ended = list[object]()

    async def wait(client: Any, id: str) -> None:
        ended.append(await client.call_tool("approval_wait", {"id": id, "timeout_s": 5}))

    async def call() -> None:
        async with import_module("mcp").Client(mcp_server().build(sf)) as client:
            asked = await client.call_tool("approval_request", {"tool": "deploy", "intent": {"to": "x"}})
            id = asked.structured_content["id"]
            async with anyio.create_task_group() as waiting:
                for _ in range(50):
                    waiting.start_soon(wait, client, id)
                await anyio.sleep(0)
                for n in range(5):  # the first ones may overtake the waiting calls
                    await client.call_tool("task_add", {"title": f"meanwhile {n}"})
                early = len(ended)
                await anyio.to_thread.run_sync(partial(sf.approvals.grant, id, approver="ada"))
            assert not early, f"a task was added only after {early} of 50 waiting calls had ended"

    anyio.run(call)


def check_gate_limit(sf: standfast.Standfast) -> None:
    """An agent pads its command until a person stops reading."""
    sf.gates.add("git push*")
    padded = "true;" * gate_patterns.TEXT_MAX + "git push"
    assert sf.gates.check(padded), "a text beyond the limit passed the gate"


def check_unsealed_answer(sf: standfast.Standfast) -> None:
    """A repository brings a spool along that answers a call of a real session."""
    call = Heard("claude-code", "call", "PreToolUse", "s1", 1, None, None, "t1", "Bash", "{}", None, "pending")
    Hooks(sf._store).keep(call)
    answer = call.replace(kind="answer", name="PostToolUse", at_us=2, output="all passed", status="ok")
    there = os.path.join(sf.settings.data_dir, "clone", ".standfast", "spool")
    os.makedirs(there, 0o700)
    line = json.dumps({"v": 1, "actor": sf.settings.actor, "scope": sf.scope, **answer.as_dict()})
    with open(os.open(os.path.join(there, "open.ndjson"), os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
        file.write(f"- {line}\n")
    assert spool.drain(sf._store, [there], sf.settings.data_dir).kept == 1
    outputs = [row["output"] for row in sf.rows("SELECT output FROM tool_call WHERE status = 'pending'")]
    assert outputs == [None], "a record without a seal changed a call that standfast recorded"


def mcp_server() -> Any:
    """Start an MCP server. It is imported by name, because it is a layer above the evaluation."""
    return import_module("standfast.mcp.server")


def _examined(sf: standfast.Standfast, *, fix: bool = False) -> dict[str, Finding]:
    return {one.id: one for one in examine(lambda: sf.settings, handle.connect, fix=fix)}


def stock_sqlite(sf: standfast.Standfast, script: str) -> None:
    """Run a script for stock sqlite3 in another process."""
    _in_another_process(
        sf, "import sqlite3; c = sqlite3.connect(sys.argv[1]); c.executescript(sys.argv[2]); c.commit()", script
    )


def _in_another_process(sf: standfast.Standfast, code: str, *given: str) -> None:
    """`sys.argv[1]` is the database: closing it in this process would drop SQLite's locks."""
    command = [sys.executable, "-P", "-c", f"import sys; {code}", sf.settings.target.location, *given]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"another program failed: {done.stderr[-200:]}"


SCENES: dict[str, Callable[[standfast.Standfast], None]] = {
    name.removeprefix("check_"): scene for name, scene in list(globals().items()) if name.startswith("check_")
}
