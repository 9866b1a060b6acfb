"""Imports the checkpoints and writes of LangGraph's own savers, and does not change the source."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("langgraph.checkpoint.sqlite", reason="pip install '.[dev]' brings LangGraph")

from langgraph.checkpoint.sqlite import SqliteSaver

from standfast.adapters.langgraph import Saver
from standfast.interchange import langgraph as reader
from standfast_prove.graphs import answering, at, growing, on
from tests.adapters.test_langgraph import Secret
from tests.interfaces.test_cli import run as cli


def run_some(saver: Any) -> None:
    """Run two threads of a real graph: one stores a custom type, one is long."""
    app = answering(lambda state: {"said": [Secret(f"answer {len(state['said'])}")]}, saver)
    for thread in ("one", "two"):
        for question in ("a", "b"):
            app.invoke({"said": [question]}, on(thread))
    list(growing(saver, 30, size=200, constant=2000))


def told(saver: Any) -> list[Any]:
    return [
        (found.config, found.checkpoint, found.metadata, found.parent_config, found.pending_writes)
        for thread in ("one", "two", "growing")
        for found in saver.list(at(thread))
    ]


def test_threads_of_sqlitesaver_are_taken_over_whole(engine_url: str, tmp_path: Path) -> None:
    source = tmp_path / "theirs.sqlite"
    with SqliteSaver.from_conn_string(str(source)) as theirs:
        run_some(theirs)
        expected = told(theirs)
    before = hashlib.sha256(source.read_bytes()).hexdigest()
    with Saver.from_conn_string(engine_url, allow=[Secret]) as ours:
        taken = reader.run(ours.sf.threads, str(source))
        assert taken.checkpoints == len(expected)
        assert told(ours) == expected
        again = reader.run(ours.sf.threads, str(source))
        assert (again.checkpoints, again.known) == (0, len(expected))
        ours.delete_thread("two")
        assert reader.run(ours.sf.threads, str(source)).deleted > 0
        assert ours.get_tuple(on("two")) is None
        # The graph continues where it stopped.
        end = answering(lambda state: {"said": ["end"]}, ours).invoke({"said": ["c"]}, on("one"))
        assert end["said"][-2:] == ["c", "end"]
    assert hashlib.sha256(source.read_bytes()).hexdigest() == before


def test_threads_of_postgressaver_are_taken_over_whole(pg_database: str, tmp_path: Path) -> None:
    from langgraph.checkpoint.postgres import PostgresSaver

    with PostgresSaver.from_conn_string(pg_database) as theirs:
        theirs.setup()
        run_some(theirs)
        expected = told(theirs)
    with Saver.from_conn_string(str(tmp_path / "ours.db"), allow=[Secret]) as ours:
        taken = reader.run(ours.sf.threads, pg_database)
        assert taken.checkpoints == len(expected)
        assert told(ours) == expected


def test_what_cannot_be_read_is_counted_and_keeps_nothing_else_from_coming(tmp_path: Path) -> None:
    source = tmp_path / "theirs.sqlite"
    with SqliteSaver.from_conn_string(str(source)) as theirs:
        list(growing(theirs, 2))
        add = "INSERT INTO checkpoints VALUES (?, '', ?, NULL, ?, ?, ?)"
        junk = [("msgpack", b"\xff\x00"), ("msgpack", b"\x01"), ("json", b"[1]"), ("pickle", b"x"), (None, None)]
        for n, (kind, data) in enumerate(junk):
            theirs.conn.execute(add, ("junk", f"id{n}", kind, data, b"no json"))
        theirs.conn.execute(add, ("\x01", "id", "msgpack", b"\x80", b"{}"))  # not a valid name
        theirs.conn.execute(add, ("sealed", "id", "msgpack+aes", b"?", b"{}"))
        theirs.conn.commit()
    with Saver.from_conn_string(tmp_path / "ours.db") as ours:
        taken = reader.run(ours.sf.threads, str(source))
        assert (taken.checkpoints, taken.bad, taken.encrypted) == (2, 6, 1)
        assert [thread.key for thread in ours.sf.threads.threads()] == ["growing"]


def test_the_command_prints_what_it_imported_and_refuses_other_files(tmp_path: Path) -> None:
    source = tmp_path / "theirs.sqlite"
    with SqliteSaver.from_conn_string(str(source)) as theirs:
        list(growing(theirs, 5))
    data = tmp_path / "data"
    dry = cli("import", "langgraph", str(source), "--dry-run", "--json", home=tmp_path, STANDFAST_DATA_DIR=str(data))
    assert json.loads(dry.stdout)["data"]["checkpoints"] == 5
    assert not (data / "standfast.db").exists()
    wet = cli("import", "langgraph", str(source), home=tmp_path, STANDFAST_DATA_DIR=str(data))
    assert wet.stdout == "imported 5 checkpoints and 5 writes of 1 threads\n"
    with Saver.from_conn_string(data / "standfast.db") as ours:
        assert len(list(ours.list(at("growing")))) == 5
    for wrong, code, words in (
        (str(tmp_path / "nowhere"), 3, "there is no file"),
        (str(data / "standfast.db"), 2, "this store itself"),
        (__file__, 2, "cannot be read"),
    ):
        refused = cli("import", "langgraph", wrong, home=tmp_path, STANDFAST_DATA_DIR=str(data))
        assert refused.returncode == code, refused.stderr
        assert words in refused.stderr
