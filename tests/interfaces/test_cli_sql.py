"""`standfast sql` runs every query, returns every row and refuses every change, on both engines."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path

import pytest

import standfast
from standfast.cli import app
from standfast.errors import InvalidInput


@pytest.fixture
def store(engine_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("STANDFAST_DB_URL", engine_url)
    monkeypatch.setenv("STANDFAST_DATA_DIR", str(tmp_path / "data"))
    standfast.open().close()
    return engine_url


SERIES = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {}) SELECT i, i * i AS square FROM n"


def test_rows_are_objects_by_column_name(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["sql", SERIES.format(3), "--json"]) == 0
    wanted = [{"i": 1, "square": 1}, {"i": 2, "square": 4}, {"i": 3, "square": 9}]
    document = json.loads(capsys.readouterr().out)
    assert document == {"schema_version": 1, "data": wanted, "next": None}
    assert app.run(["sql", SERIES.format(3), "--jsonl"]) == 0
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == wanted


def test_every_row_is_streamed(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["sql", SERIES.format(20_000)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 20_001
    assert lines[-1] == "20000\t400000000"


def test_the_query_may_come_from_stdin_or_without_quotes(
    store: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for words in (["-"], []):
        monkeypatch.setattr(sys, "stdin", io.StringIO("-- a comment\nSELECT 7 AS n\n"))
        assert app.run(["sql", *words]) == 0
        assert capsys.readouterr().out == "n\n7\n"
    assert app.run(["sql", "SELECT", "7", "AS", "n"]) == 0
    assert capsys.readouterr().out == "n\n7\n"


def test_an_empty_result_is_reported(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["sql", "SELECT 1 AS n WHERE 1 = 0"]) == 0
    assert capsys.readouterr() == ("", "no rows\n")
    assert app.run(["sql", "SELECT 1 AS n WHERE 1 = 0", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["data"] == []


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("INSERT INTO meta VALUES ('a', 'b')", "INSERT is refused"),
        ("  /* x */ -- y\n update meta SET value = 'x'", "UPDATE is refused"),
        ("DELETE FROM meta", "DELETE is refused"),
        ("DROP TABLE meta", "DROP is refused"),
        ("ATTACH 'x.db' AS x", "ATTACH is refused"),
        ("VACUUM", "VACUUM is refused"),
        ("BEGIN", "BEGIN is refused"),
        ("WITH x AS (SELECT 1) DELETE FROM meta", ""),
        ("SELECT * FROM there_is_no_such_table", ""),
        ("SELEKT 1", ""),
        ("", "there is no query"),
        (" ; ", ""),
    ],
)
def test_what_does_more_than_read_is_refused(
    store: str, query: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """000-27: rows can only be changed by methods."""
    before = meta()
    code = app.run(["sql", query])
    shown = capsys.readouterr()
    if query.strip(" ;") or says:
        assert code == 2, shown
        assert says in shown.err
    assert "Traceback" not in shown.err
    assert meta() == before


def meta() -> list[dict[str, object]]:
    with standfast.open() as sf:
        return list(sf.rows("SELECT key, value FROM meta ORDER BY key"))


def test_an_endless_query_is_refused_by_its_length() -> None:
    from standfast.cli.sql import checked

    with pytest.raises(InvalidInput, match="longer than"):
        checked("SELECT 1" + " " * 1_000_001)


def test_a_receipt_is_verified(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    """DESIGN, decision 15: a receipt proves later that a row was written unchanged."""
    from standfast.core import journal

    with standfast.open(agent="ada") as sf:
        receipt = sf._store.write(lambda tx: journal.append(tx, "test.happened", "thing"))
    assert app.run(["verify", str(receipt)]) == 0
    assert "test.happened thing by ada" in capsys.readouterr().out
    assert app.run(["verify", json.dumps(receipt.as_json()), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)["data"]
    assert (shown["verified"], shown["type"], shown["seq"]) == (True, "test.happened", receipt.seq)

    assert app.run(["verify", f"{receipt.seq}:h1:{'0' * 64}"]) == 1
    assert "differs from the receipt" in capsys.readouterr().err
    assert app.run(["verify", f"99999:{receipt.hash}"]) == 3
    assert app.run(["verify", "nonsense"]) == 2


DOCS = Path(__file__).parents[2] / "docs"
PRINTED = re.compile(r"```sql\n(SELECT.*?)```|`(SELECT [^`]* FROM [^`]*)`", re.DOTALL)


def test_each_query_of_the_docs_runs_as_printed(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    """000-18, 002-36: the query is pasted into `standfast sql`, with a value for each of its parameters."""
    texts = [page.read_text() for page in sorted(DOCS.rglob("*.md"))]
    queries = [block or inline for text in texts for block, inline in PRINTED.findall(text)]
    assert len(queries) >= 7
    for query in queries:
        names = re.findall(r"(?<![:\w]):([a-z_]+)", re.sub(r"'[^']*'", "", query))
        given = [word for name in names for word in ("--param", f"{name}={0 if name.endswith('_us') else 'x'}")]
        assert app.run(["sql", query, "--times", *given]) == 0, (query, capsys.readouterr().err)
