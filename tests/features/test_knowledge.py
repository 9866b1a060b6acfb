"""Knowledge: texts with their sources, searched by words and by vectors, on both engines."""

from __future__ import annotations

import importlib.util
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import standfast
from standfast.clock import ManualClock
from standfast.db.contract import Tx
from standfast.db.sql import statement
from standfast.errors import InvalidInput, NotFound
from standfast.record import knowledge as module
from standfast.testing import hashing_embedder

DIMENSIONS = 48


def vector(seed: object) -> list[float]:
    chance = random.Random(str(seed))
    return [chance.gauss(0, 1) for _ in range(DIMENSIONS)]


def nearest(query: list[float], rows: dict[str, list[float]], k: int) -> list[str]:
    """The nearest vectors by brute force, in float64."""

    def cosine(other: list[float]) -> float:
        length = sum(x * x for x in other) ** 0.5
        return sum(x * y for x, y in zip(query, other, strict=True)) / length

    return sorted(rows, key=lambda text: -cosine(rows[text]))[:k]


def with_pgvector(sf: standfast.Standfast) -> None:
    if sf.engine.name == "postgres":
        import psycopg

        with psycopg.connect(sf.engine.identity, autocommit=True) as connection:
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector")


def test_a_fact_is_stored_once_per_agent_and_source(sf: standfast.Standfast) -> None:
    """002-51: a fact names its source, its writer and its time."""
    made = sf.knowledge.add("CI needs node 20", source="https://ci.test/41", agent="coder", tags=["ci", "node"])
    assert (made.text, made.agent, made.source, made.tags) == (
        "CI needs node 20",
        "coder",
        "https://ci.test/41",
        ("ci", "node"),
    )
    assert (made.author, made.fresh, made.stale, made.superseded_by) == (sf._store.caller.actor, True, False, None)
    assert sf.knowledge.show(made.id) == made.replace(fresh=False, receipt=None)
    again = sf.knowledge.add("CI needs node 20", source="https://ci.test/41", agent="coder", tags=["other"])
    assert again == made.replace(fresh=False, receipt=None)
    assert sf.knowledge.add("CI needs node 20", source="https://ci.test/42", agent="coder").id != made.id
    assert sf.knowledge.add("CI needs node 20", source="https://ci.test/41", agent="other").id != made.id
    assert len(sf.knowledge.list()) == 3
    types = [row["type"] for row in sf.rows("SELECT type FROM event WHERE subject = :id", {"id": made.id})]
    assert types == ["knowledge.added"], "a repeated call writes nothing"


def test_a_search_ranks_by_words_and_filters_by_agent_and_tags(sf: standfast.Standfast) -> None:
    sf.knowledge.add("The deploy script needs the staging key", agent="ops", tags=["deploy"])
    sf.knowledge.add("Deploy, deploy, deploy: it fails on Fridays", agent="coder", tags=["deploy", "ci"])
    sf.knowledge.add("The parser is slow", agent="coder", tags=["code"])
    assert sf.knowledge.search("the DEPLOY script")[0].text.startswith("The deploy script")
    assert [one.agent for one in sf.knowledge.search("deploy", agent="coder")] == ["coder"]
    assert {one.agent for one in sf.knowledge.search("deploy", tags=["deploy"])} == {"coder", "ops"}
    assert [one.agent for one in sf.knowledge.search("deploy", tags=["ci", "deploy"])] == ["coder"]
    assert sf.knowledge.search("deploy", tags=["dep"]) == []
    assert sf.knowledge.search("unheard") == []
    assert len(sf.knowledge.search("the deploy parser", k=2)) == 2
    assert {one.found_by for one in sf.knowledge.search("deploy")} == {"words"}


def test_word_and_vector_rankings_are_joined_by_reciprocal_rank(sf: standfast.Standfast) -> None:
    with_pgvector(sf)
    for text in ("node 20 for CI", "rust for the parser", "python for the tests"):
        sf.knowledge.add(text, embedding=hashing_embedder)
    sf.knowledge.add("node without a vector")
    found = sf.knowledge.search("node 20", embedding=hashing_embedder)
    assert (found[0].text, found[0].found_by) == ("node 20 for CI", "both")
    assert {one.text: one.found_by for one in found}["node without a vector"] == "words"
    assert {one.text: one.found_by for one in found}["rust for the parser"] == "vector"
    assert found[0].score == pytest.approx(1 / 61 + 1 / 61, abs=0.001)
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)  # type: ignore[type-var]


@pytest.mark.parametrize("library", ["with a library", "plain Python"])
def test_a_search_by_vector_is_exact(sf: standfast.Standfast, library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """001-51: search returns the same as brute force (recall 1.0) with sqlite-vec, with pgvector and without either."""
    if library == "plain Python":
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    else:
        with_pgvector(sf)
    rows = {f"text {n}": vector(n) for n in range(200)}
    for text, made in rows.items():
        sf.knowledge.add(text, embedding=made, agent=f"agent-{int(text[5:]) % 4}")
    assert sf._store.read(lambda tx: tx.compares_vectors()) == (library == "with a library")
    for seed in ("a", "b", "c"):
        query = vector(seed)
        assert [one.text for one in sf.knowledge.search("", embedding=query)] == nearest(query, rows, 10)
        of_one = {text: made for text, made in rows.items() if int(text[5:]) % 4 == 1}
        found = sf.knowledge.search("", embedding=query, agent="agent-1", k=5)
        assert [one.text for one in found] == nearest(query, of_one, 5)


def test_a_search_for_one_agent_reads_only_its_rows(tmp_path: Path) -> None:
    asked = re.sub(r":(\w+)", "NULL", module._nearest(DIMENSIONS, of_one=True).sqlite)

    def explain(tx: Tx) -> list[str]:
        assert tx.compares_vectors()
        return [row["detail"] for row in tx.all(statement(f"EXPLAIN QUERY PLAN {asked}"))]

    with standfast.open(data_dir=tmp_path) as sf:
        assert any("(scope=? AND agent=?)" in step for step in sf._store.read(explain))


def test_too_many_vectors_for_python_name_the_library(sf: standfast.Standfast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(module, "VECTORS_MAX", 3)
    for n in range(4):
        sf.knowledge.add(f"text {n}", embedding=vector(n))
    with pytest.raises(InvalidInput, match="more than 3 vectors") as caught:
        sf.knowledge.search("", embedding=vector("q"))
    assert "sqlite-vec" in caught.value.hint
    assert len(sf.knowledge.search("text")) == 4, "words need no library"


def test_an_hnsw_index_answers_like_the_exact_search(sf: standfast.Standfast) -> None:
    rows = {f"text {n}": vector(n) for n in range(300)}
    for text, made in rows.items():
        sf.knowledge.add(text, embedding=made)
    if sf.engine.name == "sqlite":
        with pytest.raises(InvalidInput, match="no index to make"):
            sf.knowledge.index()
        return
    made = sf.knowledge.index()
    assert (made.dimensions, made.vectors) == (DIMENSIONS, 300)
    assert sf.knowledge.index() == made, "a second call changes nothing"
    hits = 0
    for seed in range(20):
        query = vector(f"q{seed}")
        found = {one.text for one in sf.knowledge.search("", embedding=query)}
        hits += len(found & set(nearest(query, rows, 10)))
    assert hits >= 190, "recall of at least 0.95"


def test_a_newer_text_supersedes_an_older_one(sf: standfast.Standfast) -> None:
    old = sf.knowledge.add("CI needs node 20")
    new = sf.knowledge.add("CI needs node 22", supersedes=old.id[-6:])
    assert [one.id for one in sf.knowledge.search("node")] == [new.id]
    assert [one.id for one in sf.knowledge.list()] == [new.id]
    both = sf.knowledge.search("node", superseded=True)
    assert {one.id: one.superseded_by for one in both} == {old.id: new.id, new.id: None}
    sf.knowledge.add("CI needs node 20")
    assert sf.knowledge.show(old.id).superseded_by == new.id, "a replay of the older call changes nothing"
    with pytest.raises(NotFound):
        sf.knowledge.add("x", supersedes="knw_nothing")
    assert len(sf.knowledge.list(superseded=True)) == 2, "the refused call added nothing"


def test_a_stale_text_is_found_and_marked(engine_url: str, tmp_path: Path) -> None:
    clock = ManualClock()
    with standfast.open(engine_url, data_dir=tmp_path, clock=clock) as sf:
        made = sf.knowledge.add("the build takes 4 minutes", fresh_for="2h")
        assert not made.stale
        clock.advance("3h")
        assert [(one.id, one.stale) for one in sf.knowledge.search("build")] == [(made.id, True)]


def test_undo_restores_a_forgotten_fact(sf: standfast.Standfast) -> None:
    with_pgvector(sf)
    old = sf.knowledge.add("CI needs node 20", embedding=hashing_embedder)
    new = sf.knowledge.add("CI needs node 22", supersedes=old.id, embedding=hashing_embedder)
    gone = sf.knowledge.forget(new.id)
    assert [one.id for one in sf.knowledge.search("node", embedding=hashing_embedder)] == [old.id]
    with pytest.raises(NotFound):
        sf.knowledge.show(new.id)
    assert gone.receipt is not None
    sf.undo(new.id)
    assert sf.knowledge.show(new.id) == new.replace(fresh=False, receipt=None)
    found = sf.knowledge.search("node", embedding=hashing_embedder)
    assert [(one.id, one.found_by) for one in found] == [(new.id, "both")]


def test_vectors_of_another_embedder_are_refused(sf: standfast.Standfast) -> None:
    sf.knowledge.add("a", embedding=hashing_embedder)
    bad: list[tuple[Any, str]] = [
        ([1.0, 2.0], "2 dimensions; the embeddings here have 384 dimensions by hashing_embedder"),
        (lambda text: hashing_embedder(f"{text}!"), "by test_vectors"),
        ([0.0] * 384, "only zeros"),
        ([], "0 dimensions"),
        ([float("nan")], "not finite"),
        ("no vector", "not a list of numbers"),
    ]
    for embedding, words in bad:
        with pytest.raises(InvalidInput, match=words):
            sf.knowledge.add("b", embedding=embedding)
        with pytest.raises(InvalidInput, match=words):
            sf.knowledge.search("a", embedding=embedding)
    assert [one.text for one in sf.knowledge.list()] == ["a"]


def test_a_text_gets_its_vector_later(sf: standfast.Standfast) -> None:
    plain = sf.knowledge.add("node 20 for CI")
    assert plain.dimensions is None
    made = sf.knowledge.add("node 20 for CI", embedding=hashing_embedder)
    assert (made.id, made.dimensions, made.embedder) == (plain.id, 384, "hashing_embedder")
    assert sf.knowledge.search("", embedding=hashing_embedder("node 20 for CI"))[0].id == plain.id


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda k: k.add(""), "text is empty"),
        (lambda k: k.add("x" * 20_001), "20,001 characters"),
        (lambda k: k.add(7), "text is text"),
        (lambda k: k.add("x", tags="ci"), "a list of texts"),
        (lambda k: k.add("x", tags=["a,b"]), "not a tag"),
        (lambda k: k.add("x", source="a\nb"), "source"),
        (lambda k: k.add("x", agent=""), "agent"),
        (lambda k: k.add("x", fresh_for=-1), "fresh_for"),
        (lambda k: k.search("!!!"), "no word"),
        (lambda k: k.search(7), "a query is text"),
        (lambda k: k.search("a", k=0), "k is a whole number"),
        (lambda k: k.search("a", k=1_001), "1,000"),
    ],
)
def test_bad_input_is_refused_and_nothing_is_written(
    sf: standfast.Standfast, call: Callable[[Any], object], words: str
) -> None:
    with pytest.raises(InvalidInput, match=words):
        call(sf.knowledge)
    assert sf.knowledge.list() == []


def test_an_embedder_cannot_run_inside_a_transaction(sf: standfast.Standfast) -> None:
    with sf.transaction() as tx:
        tx.knowledge.add("given as a vector", embedding=vector(1))
        with pytest.raises(InvalidInput, match="inside a transaction"):
            tx.knowledge.add("x", embedding=hashing_embedder)
    assert [one.text for one in sf.knowledge.list()] == ["given as a vector"]


def test_facts_of_another_scope_or_repository_are_separate(engine_url: str, tmp_path: Path) -> None:
    with standfast.open(engine_url, data_dir=tmp_path, scope="a") as one:
        made = one.knowledge.add("only in a")
    with standfast.open(engine_url, data_dir=tmp_path, scope="b") as other:
        assert other.knowledge.search("only") == []
        with pytest.raises(NotFound):
            other.knowledge.forget(made.id)
