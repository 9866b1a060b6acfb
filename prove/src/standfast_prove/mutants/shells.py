"""Bugs of the PostgreSQL connections, of `doctor`, of the MCP server, of gates and of the spool."""

from __future__ import annotations

from typing import Any

from standfast.db import catalogue
from standfast.db.postgres.wire import Wire
from standfast.db.sqlite import integrity
from standfast.interchange.hooks import spool
from standfast.ledger import gate_patterns
from standfast_prove.mutants.patching import Mutant, Setter, swapped
from standfast_prove.mutants.shell_scenes import mcp_server


def returned_anyway(m: Setter) -> None:
    """A foreign exception leaves answers on the connection, and the next caller reads them."""
    m.setattr(Wire, "reusable", property(lambda self: not self.broken))


def every_table(tables: Any) -> Any:
    """Litestream's table is taken for one of ours."""
    return lambda *args: [*tables(*args), "_litestream_seq"]


def arguments_dropped(m: Setter) -> None:
    m.setattr(mcp_server(), "refuse_unknown", lambda tool, given, known: None)


def short_texts_only(found: Any) -> Any:
    """A text that is too long to be read meets no gate."""
    return lambda pattern, text: len(text) <= gate_patterns.TEXT_MAX and found(pattern, text)


def as_written(_: Any) -> Any:
    """A record without a seal speaks for the actor and the session that it names."""
    return lambda record, place: record


MUTANTS: dict[str, Mutant] = {
    "a connection is returned after a foreign exception": Mutant(
        "the next caller gets the answers of another transaction",
        "campaign interrupts-postgres",
        returned_anyway,
        {"every": 7, "strikes": 20},
        engine="postgres",
    ),
    "doctor runs quick_check only": Mutant(
        "an index that lacks rows is called sound",
        "check index_lacks_rows",
        swapped(integrity, "FULL", lambda _: integrity.QUICK),
    ),
    "doctor guards foreign tables": Mutant(
        "Litestream cannot write its own table any more",
        "check foreign_tables",
        swapped(catalogue, "tables", every_table),
    ),
    "MCP drops unknown arguments": Mutant(
        "production and staging become one approval", "check unknown_arguments", arguments_dropped
    ),
    "a limit that passes": Mutant(
        "a padded command passes every gate",
        "check gate_limit",
        swapped(gate_patterns, "_some_literal", short_texts_only),
    ),
    "an unsealed record is believed": Mutant(
        "a clone answers the calls of a real session", "check unsealed_answer", swapped(spool, "_unsealed", as_written)
    ),
}
