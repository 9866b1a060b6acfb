"""The SQL statements: one text for both engines, a reason for each variant, none missing and none unused."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from standfast.db import sql
from standfast.db.catalogue import wanted
from standfast.db.columns import COLUMNS

SOURCE = Path(__file__).parents[2] / "src" / "standfast"
FILES = sorted(SOURCE.rglob("*.sql"))
OWN_COLUMNS = {"git_dir", "origin"}
"""The repository of a row: statements ask for it where they need it."""
NOT_READ = {
    "approval": {"question", "proof"},
    "decision": {"identity"},
    "event": {"ref", "backrefs", "commit_ref", "salt", "db_user", "late_us", "xid"},
    "effect": {"retry_at_us"},
    "item_vector": {"embedding"},
    "knowledge": {"hash", "words", "vector", "embedding"},
    "message": {"seq", "summary", "native", "import_seq", "import_offset", "revised_us"},
    "node": {"description", "tool_use_id"},
    "run": {"seq"},
    "session": {"title", "cut_cursor", "expires_us"},
    "task": {"last_sweep"},
    "usage": {"seq", "created_us", "import_seq", "price"},
}
"""Columns that no model shows."""
HEAD = re.compile(r"^-- name: (\w+)(?: \[(\w+)\])?$", re.MULTILINE)


def test_a_parameter_is_translated_and_a_string_a_comment_and_a_cast_are_not() -> None:
    made = sql.statement("SELECT ':no', a::text, '50%' FROM t WHERE b = :yes -- :no")
    assert made.postgres == "SELECT ':no', a::text, '50%%' FROM t WHERE b = %(yes)s -- :no"
    assert made.params == {"yes"}


def test_a_statement_without_a_text_for_one_engine_is_refused() -> None:
    with pytest.raises(AssertionError, match="lacks a text for SQLite"):
        sql.parse("-- name: only [postgres]\nSELECT 1\n")


def test_a_name_written_twice_is_refused() -> None:
    with pytest.raises(AssertionError, match="written twice"):
        sql.parse("-- name: a\nSELECT 1\n-- name: a\nSELECT 2\n")


def test_a_lease_fragment_takes_the_table_it_is_about() -> None:
    made = sql.statement("SELECT 1 FROM task t WHERE {lease_over:t}")
    assert "t.lease_mono_us <= :mono_us" in made.sqlite
    assert "t.lease_until_us <= %(now_us)s" in made.postgres


def test_the_columns_of_a_table_take_its_alias() -> None:
    made = sql.statement("SELECT {columns:gate:g} FROM gate g")
    assert made.sqlite.startswith("SELECT g.id, g.scope, g.repository, g.pattern,")
    assert "{" not in made.postgres


@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
@pytest.mark.parametrize("table", sorted(COLUMNS))
def test_the_columns_of_a_table_are_those_of_the_schema(table: str, dialect: str) -> None:
    """002-22: a new column is either read by the model or listed in NOT_READ."""
    schema = {one.name.partition(".")[2] for one in wanted(dialect) if one.kind == "column" and one.table == table}
    listed = COLUMNS[table]
    assert len(set(listed)) == len(listed)
    assert schema - set(listed) - NOT_READ.get(table, set()) - OWN_COLUMNS == set()
    assert set(listed) - schema == set()


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.stem)
def test_no_statement_repeats_a_column_list_or_selects_everything(file: Path) -> None:
    text = file.read_text()
    assert not re.search(r"(?:SELECT|RETURNING)\s+(?:\w+\.)?\*", text)
    spelled = [set(re.findall(r"[a-z_]+", found)) for found in re.findall(r"(?:SELECT|RETURNING)\s([a-z_,.\s]+)", text)]
    assert [table for table, listed in COLUMNS.items() if any(set(listed) <= one for one in spelled)] == []


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.stem)
def test_every_variant_has_its_reason(file: Path) -> None:
    lines = file.read_text().splitlines()
    variants: dict[str, bool] = {}
    for number, line in enumerate(lines):
        head = HEAD.match(line)
        if head and head.group(2):  # the two variants of a pair may share one reason
            explained = number > 0 and lines[number - 1].startswith("--")
            variants[head.group(1)] = variants.get(head.group(1), False) or explained
    assert [name for name, explained in variants.items() if not explained] == []


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.stem)
def test_every_statement_is_used_and_every_used_one_is_there(file: Path) -> None:
    named = {match.group(1) for match in HEAD.finditer(file.read_text())}
    used = set()
    # A feature with several modules has a folder. Each module may use the SQL of every file in the folder.
    for module in file.parent.glob("*.py"):
        text = module.read_text()
        used |= set(re.findall(rf"\b{file.stem}\.SQL\.(\w+)", text))
        if "SQL = load(__name__)" not in text or module.stem == file.stem:
            used |= set(re.findall(r"(?<![.\w])SQL\.(\w+)", text))
    assert named <= used, f"idle statements in {file.name}: {sorted(named - used)}"
    own = file.with_suffix(".py")
    if own.exists():
        assert set(re.findall(r"(?<![.\w])SQL\.(\w+)", own.read_text())) <= named


def test_no_query_reads_into_json() -> None:
    """002-22: queries filter on columns, not inside JSON. Only a list of parameters may be passed as JSON."""
    looks = re.compile(r"json_?b?\w*\s*\(\s*([^)\s]+)|(->>?)", re.IGNORECASE)
    found = {
        (file.stem, match.group(0))
        for file in FILES
        if file.stem != "m0001_guards"  # this trigger reads the number of attempts from the stored question
        for match in looks.finditer(re.sub(r"--.*", "", file.read_text()))
        if not (match.group(1) or "").startswith((":", "CAST(:"))
    }
    assert found == set()


def test_no_text_is_put_together_on_its_way_to_the_database() -> None:
    """Identifiers are constants and values are bound: `execute` gets no text built with an f-string, % or +."""
    # These modules run DDL with names from the schema itself, and a constant of the same file.
    allowed = {"db/sqlite/migrate.py", "db/postgres/migrate.py"}
    guilty = []
    for file in SOURCE.rglob("*.py"):
        name = str(file.relative_to(SOURCE))
        for node in ast.walk(ast.parse(file.read_text())):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args):
                continue
            if node.func.attr in ("execute", "executemany", "run_sql") and isinstance(
                node.args[0], ast.JoinedStr | ast.BinOp
            ):
                guilty.append(f"{name}:{node.lineno}")
    assert [place for place in guilty if place.split(":")[0] not in allowed] == []
