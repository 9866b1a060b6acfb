"""Search finds words in every kind of row, on both engines, immediately after the commit."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import standfast
from standfast.checkpoint import search_index
from standfast.checkpoint.search_index import words
from standfast.clock import ManualClock
from standfast.views import search as searching
from standfast.views.search import Hits
from tests.interfaces.test_cli import run


def filled(sf: standfast.Standfast) -> None:
    with sf.session("fix-42", agent="coder") as s:
        s.say("user", "The parser is flaky: connection refused on port 8080")
        s.say("assistant", {"text": "I shall fix parser.py, naïve as the café 日本語テスト"})
        s.decide("edit the grammar", why="the test names it", then="patch, then refuse nothing").done(
            "merged as a1b2c3"
        )
    sf.tasks.add("flaky parser test", labels=["ci"], body="seen on main")
    sf.mail.send("reviewer", {"note": "please look at the parser", "pr": 42}, subject="Review")


def kinds(found: Hits) -> list[str]:
    return sorted(hit.kind for hit in found.hits)


ASKED: dict[str, list[str]] = {
    "parser": ["mail", "message", "message", "task"],
    "PARSER flaky": ["message", "task"],
    '"connection refused"': ["message"],
    '"refused connection"': [],
    "parser -flaky": ["mail", "message"],
    'parser -"flaky parser"': ["mail", "message", "message"],
    "gramm*": ["decision"],
    "gramm": [],
    "cafe naive": ["message"],
    "日本語": ["message"],
    "本日語": [],
    "a1b2c3": ["decision"],
    "ci main": ["task"],
    "review 42": ["mail"],
    "parser.py": ["message"],
    "nowhere": [],
}


def test_words_are_found_in_every_kind_of_row(sf: standfast.Standfast) -> None:
    """000-9, 001-22: one query searches every kind of record. A search without the index finds the same."""
    filled(sf)
    with sf.transaction() as tx:
        assert {text: kinds(tx.search(text)) for text in ASKED} == ASKED
    assert {text: kinds(sf.search(text)) for text in ASKED} == ASKED


def test_nothing_is_missing_right_after_it_was_written(sf: standfast.Standfast) -> None:
    filled(sf)
    sf.search("parser")
    sf.tasks.add("the parser again")
    with sf.transaction() as tx:
        assert kinds(tx.search("parser")) == ["mail", "message", "message", "task", "task"]
        tx.tasks.add("a parser without a commit")
        assert kinds(tx.search("parser")).count("task") == 3


def test_a_changed_row_is_found_by_its_new_words_and_not_by_its_old_ones(sf: standfast.Standfast) -> None:
    decided = sf.decisions.record("take the train", why="it is late")
    task = sf.tasks.add("paint the shed", body="green")
    assert kinds(sf.search("outcome")) == []
    sf.decisions.done(decided.id, "the outcome was a delay")
    sf.tasks.add("paint the shed", body="blue")
    for _ in range(2):
        assert [hit.id for hit in sf.search("delay").hits] == [decided.id]
        assert [hit.id for hit in sf.search("blue").hits] == [task.id]
        assert sf.search("green").hits == []


def test_the_newest_hits_come_first_and_pages_follow_each_other(sf: standfast.Standfast) -> None:
    with sf.session("k") as s:
        for n in range(7):
            s.say("user", f"word number {n}")
        found, cursor, pages = list[str](), None, 0
        while True:
            page = sf.search("word", limit=3, after=cursor)
            found += [hit.snippet for hit in page.hits]
            cursor, pages = page.next, pages + 1
            if cursor is None:
                break
    assert found == [f"word number {n}" for n in reversed(range(7))]
    assert pages == 3


def test_hits_can_be_narrowed_down(sf: standfast.Standfast) -> None:
    filled(sf)
    assert kinds(sf.search("parser", kind="task")) == ["task"]
    assert kinds(sf.search("parser", role="user")) == ["message"]
    assert kinds(sf.search("parser", agent="coder")) == ["message", "message"]
    assert kinds(sf.search("parser", session="fix-42")) == ["message", "message"]
    assert kinds(sf.search("parser", since="1h")) == ["mail", "message", "message", "task"]
    assert sf.search("parser", repo="somewhere/else").hits == []
    with pytest.raises(standfast.NotFound, match="no session"):
        sf.search("parser", session="missing's")
    with pytest.raises(standfast.InvalidInput, match="kind is one of"):
        sf.search("parser", kind="dream")


def test_by_rank_the_best_match_comes_first(sf: standfast.Standfast) -> None:
    with sf.session("k") as s:
        s.say("user", "parser parser parser")
        s.say(
            "user", "once upon a time there was a parser among very many other words that say nothing about it at all"
        )
    assert sf.search("parser", by_rank=True).hits[0].snippet == "parser parser parser"


def test_the_index_can_be_thrown_away(sf: standfast.Standfast) -> None:
    """The index is rebuilt from the record."""
    filled(sf)
    before = sf.search("parser")
    sf.search_index.clear()
    assert sf.search("parser") == before


def test_two_that_index_at_once_write_the_same(sf: standfast.Standfast) -> None:
    filled(sf)
    threads = [threading.Thread(target=sf.search_index.catch_up) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert kinds(sf.search("parser")) == ["mail", "message", "message", "task"]
    assert sf.read(lambda tx: list(search_index.unindexed(tx, 100))) == []


def test_a_row_that_is_committed_late_is_found(pg_database: str, tmp_path: Path) -> None:
    """On PostgreSQL its sequence number may be lower than that of rows that are already indexed."""
    written, go = threading.Event(), threading.Event()

    def late() -> None:
        with sf.transaction() as tx:
            tx.sessions.say("k", "user", "the late word")
            written.set()
            go.wait(4)

    with standfast.open(pg_database, data_dir=tmp_path / "data") as sf:
        sf.sessions.open("k")
        thread = threading.Thread(target=late)
        thread.start()
        assert written.wait(4)
        sf.tasks.add("an early word")
        assert kinds(sf.search("word")) == ["task"]
        go.set()
        thread.join()
        assert kinds(sf.search("word")) == ["message", "task"]


def test_the_index_position_moves_past_old_rows_and_no_row_is_read_twice(engine_url: str, tmp_path: Path) -> None:
    clock = ManualClock()
    with standfast.open(engine_url, data_dir=tmp_path / "data", clock=clock) as sf:
        filled(sf)
        assert [sf.search_index.catch_up(), sf.search_index.catch_up()] == [5, 0]
        assert [row["source"] for row in sf.rows("SELECT source FROM search_mark")] == ["entry"]
        clock.advance("2m")
        sf.tasks.add("one more")
        assert [sf.search_index.catch_up(), sf.search_index.catch_up()] == [1, 0]
        marks = {row["source"]: row["mark"] for row in sf.rows("SELECT source, mark FROM search_mark")}
        assert set(marks) == {"entry", "message", "mail", "decision", "task"}
        assert kinds(sf.search("parser")) == ["mail", "message", "message", "task"]


NOTHING = ["", "   ", "-parser", '""', "!!! ???", "*", "<->", " ".join(["w"] * 40)]
ODD = [
    "a AND b",
    "NOT x",
    "a OR (b",
    "x:*",
    "'; DROP TABLE task; --",
    "a & !b",
    "col:x",
    "NEAR(a b)",
    "^a",
    "{body}: a",
]


def test_no_word_is_read_as_an_operator(sf: standfast.Standfast) -> None:
    with sf.session("k") as s:
        s.say("user", "a and b not x col x drop table task or near body")
    for text in NOTHING:
        with pytest.raises(standfast.InvalidInput):
            sf.search(text)
    with sf.transaction() as tx:
        direct = [tx.search(text) for text in ODD]
    assert [sf.search(text) for text in ODD] == direct


ALPHABET = st.sampled_from(["alpha", "beta", "gamma", "Gämma", "delta9", "x"])


@settings(max_examples=40, deadline=None)
@given(
    text=st.lists(ALPHABET, min_size=1, max_size=6),
    asked=st.lists(ALPHABET, min_size=1, max_size=3),
    rest=st.text(max_size=40),
)
def test_the_direct_read_and_the_index_agree(text: list[str], asked: list[str], rest: str) -> None:
    """A ten-line model: a text is found by any of its words, in any order."""
    body = words(" ".join(text) + " " + rest)
    having = set(body.split())
    terms = searching.parse(" ".join(asked))
    assert searching._matches(body, terms) == all(word in having for term in terms for word in term.phrase.split())


@pytest.mark.parametrize(
    ("json_text", "plain"),
    [('{"a": "line\\nbreak"}', "a\nline\nbreak"), ("[1, null, true, 2.5]", "1\n2.5"), ("{broken", "{broken"), ("", "")],
)
def test_json_is_found_by_its_words(json_text: str, plain: str) -> None:
    assert search_index.plain(json_text) == plain


def test_the_command_prints_hits_and_the_next_command(tmp_path: Path) -> None:
    assert run("task", "add", "flaky parser test", home=tmp_path).returncode == 0
    found = run("search", "parser", "--json", home=tmp_path)
    assert [hit["kind"] for hit in json.loads(found.stdout)["data"]] == ["task"]
    shown = run("search", "flaky parser", home=tmp_path)
    assert "flaky parser test" in shown.stdout
    assert "next: standfast task show" in shown.stderr
    assert run("search", home=tmp_path).returncode == 2
    assert run("search", "nothing", "--kind", "dream", home=tmp_path).returncode == 2
    assert "nothing was found" in run("search", "nowhere", home=tmp_path).stderr
