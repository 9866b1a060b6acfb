"""Bugs of the PostgreSQL connections, of `doctor`, of the MCP server, of gates and of the spool."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from standfast import modules
from standfast.admin import doctor
from standfast.db import catalogue
from standfast.db.postgres.wire import Wire
from standfast.db.sqlite import integrity, library, open_store
from standfast.errors import ApprovalRequired
from standfast.interchange.hooks import spool
from standfast.ledger import gate_patterns
from standfast_prove.mutants.patching import Mutant, Setter, swapped, without
from standfast_prove.mutants.shell_scenes import mcp_server


def returned_anyway(m: Setter) -> None:
    """A foreign exception leaves answers on the connection, and the next caller reads them."""
    m.setattr(Wire, "reusable", property(lambda self: not self.broken))


def every_table(tables: Any) -> Any:
    """Litestream's table is taken for one of ours."""
    return lambda *args: [*tables(*args), "_litestream_seq"]


def arguments_dropped(m: Setter) -> None:
    m.setattr(mcp_server(), "refuse_unknown", lambda tool, given, known: None)


def waiting_in_a_thread(m: Setter) -> None:
    """Each waiting call keeps one of the threads that all calls share."""

    def approval_wait(self: Any, id: str, timeout_s: int = 30) -> dict[str, Any]:
        with suppress(ApprovalRequired):
            self.sf.approvals.wait(id, timeout_s)
        return {"id": id}

    m.setattr(mcp_server().Tools, "approval_wait", approval_wait)


def short_texts_only(found: Any) -> Any:
    """A text over the size limit matches no gate."""
    return lambda pattern, text: len(text) <= gate_patterns.TEXT_MAX and found(pattern, text)


def as_written(_: Any) -> Any:
    """A record without a seal counts as written by the actor and session that it names."""
    return lambda record, place: record


MUTANTS: dict[str, Mutant] = {
    "a connection is returned after a foreign exception": Mutant(
        "the next caller gets the answers of another transaction",
        "campaign interrupts-postgres",
        returned_anyway,
        {"every": 7, "acts": 20},
        engine="postgres",
    ),
    "doctor runs quick_check only": Mutant(
        "an index that lacks rows is reported as sound",
        "check index_lacks_rows",
        swapped(integrity, "FULL", lambda _: integrity.QUICK),
    ),
    "doctor guards foreign tables": Mutant(
        "Litestream can no longer write its own table",
        "check foreign_tables",
        swapped(catalogue, "tables", every_table),
    ),
    "MCP drops unknown arguments": Mutant(
        "one approval covers production and staging", "check unknown_arguments", arguments_dropped
    ),
    "MCP waits in a thread": Mutant(
        "40 waiting calls block all other calls", "check waiting_calls", waiting_in_a_thread
    ),
    "a caller imports by itself": Mutant(
        "an exception leaves the import lock held, and other threads hang",
        "check interrupted_import",
        without(modules, "load"),
    ),
    "a dropped table is an I/O error": Mutant(
        "a program retries although only a restore can help",
        "check dropped_table",
        swapped(library, "SCHEMA_DAMAGED", lambda _: ()),
    ),
    "doctor does not compare the schema": Mutant(
        "a store without its tables is reported as sound",
        "check dropped_table",
        swapped(doctor, "_schema", lambda _: lambda store: iter(())),
    ),
    "deleted text stays in the file": Mutant(
        "secure_delete is off",
        "check deleted_text",
        swapped(open_store, "_PRAGMAS", lambda text: text.replace("secure_delete=ON", "secure_delete=OFF")),
    ),
    "a long command passes every gate": Mutant(
        "a command over the size limit is allowed",
        "check gate_limit",
        swapped(gate_patterns, "_some_literal", short_texts_only),
    ),
    "an unsealed record is believed": Mutant(
        "records of a cloned repository change a real session",
        "check unsealed_answer",
        swapped(spool, "_unsealed", as_written),
    ),
}
