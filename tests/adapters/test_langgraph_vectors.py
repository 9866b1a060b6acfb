"""Search by meaning in LangGraph's store: plain Python compares the caller's embeddings on both engines."""

from __future__ import annotations

import asyncio
import math
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import standfast
from standfast import clock as clocks
from standfast.record import items as items_room
from standfast.record import vectors
from standfast.record.items import Change

pytest.importorskip("langgraph.store.base", reason="pip install '.[dev]' brings LangGraph")

from langgraph.store.base import PutOp, SearchOp

from standfast.adapters.langgraph import Store

LETTERS = "abcdefgh"
NUMBERS = st.lists(st.floats(-1e6, 1e6, width=32), min_size=3, max_size=3)


def embed(texts: list[str]) -> list[list[float]]:
    """The vector of a text: the count of each letter."""
    return [[float(text.count(letter)) for letter in LETTERS] for text in texts]


def indexed(sf: standfast.Standfast, **more: Any) -> Store:
    return Store(sf, index={"dims": len(LETTERS), "embed": embed} | more)


def keys(found: list[Any]) -> list[str]:
    return [item.key for item in found]


def test_the_nearest_come_first_with_their_scores(sf: standfast.Standfast) -> None:
    """001-51: by meaning, in one namespace. A search without a limit returns the ten nearest."""
    store = indexed(sf, fields=["text"])
    store.put(("docs", "x"), "near", {"text": "aab", "other": "hhh"})
    store.put(("docs", "y"), "far", {"text": "abbbbb"})
    store.put(("docs",), "apart", {"text": "h"})
    store.put(("docs",), "unsaid", {"other": "aab"})
    store.put(("docs",), "aside", {"text": "aab"}, index=False)
    store.put(("other",), "elsewhere", {"text": "aab"})
    found = store.search(("docs",), query="aab")
    assert keys(found) == ["near", "far", "apart"]
    assert [item.score for item in found] == pytest.approx([1.0, 7 / math.sqrt(5 * 26), 0.0], abs=1e-6)
    assert keys(store.search(("docs",), query="aab", limit=1, offset=1)) == ["far"]
    assert keys(store.search((), query="aab", limit=2)) == ["near", "elsewhere"]
    store.batch([PutOp(("many",), str(n), {"text": "aab"}) for n in range(12)])
    assert len(store.search(("many",), query="aab")) == 10
    assert keys(store.search(("doc",), query="aab")) == []
    assert keys(store.search(("docs",), query="aab", filter={"other": "hhh"})) == ["near"]


def test_each_put_may_name_the_searched_fields(sf: standfast.Standfast) -> None:
    """For several texts of one item, the nearest text counts. A list in a field is several texts."""
    store = indexed(sf, fields=["nothing"])
    store.put(("a",), "one", {"title": "aaa", "parts": [{"text": "ccc"}, {"text": "ddd"}]}, index=["parts[*].text"])
    store.put(("a",), "two", {"title": "ccd"}, index=["title"])
    found = store.search(("a",), query="d")
    assert [(item.key, item.score) for item in found] == [("one", 1.0), ("two", pytest.approx(1 / math.sqrt(5)))]
    assert store.search(("a",), query="a")[0].score == 0.0
    fields = sf.rows("SELECT field FROM item_vector ORDER BY field")
    assert [row["field"] for row in fields] == ["parts[*].text.0", "parts[*].text.1", "title"]


def test_the_vector_of_an_item_is_replaced_and_removed_with_it(sf: standfast.Standfast) -> None:
    """After an update, a deletion or its expiry, an item is not found by its old vector."""
    store = indexed(sf)
    store.put(("a",), "k", {"text": "aaaa"})
    store.put(("a",), "k", {"text": "hhhh"}, index=["text"])
    assert store.search(("a",), query="hh")[0].score == pytest.approx(1.0)
    store.put(("a",), "k", {"text": "aaaa"}, index=False)
    assert store.search(("a",), query="aa") == []
    store.put(("a",), "k", {"text": "aaaa"})
    Store(sf).put(("a",), "k", {"text": "bbbb"})
    assert store.search(("a",), query="aa") == []
    store.put(("a",), "k", {"text": "aaaa"})
    store.delete(("a",), "k")
    assert list(sf.rows("SELECT COUNT(*) AS n FROM item_vector")) == [{"n": 0}]


def test_expired_items_are_not_found_and_a_hit_starts_the_time_to_live_again(engine_url: str, tmp_path: Path) -> None:
    clock = clocks.ManualClock()
    with standfast.open(engine_url, data_dir=tmp_path, clock=clock) as sf:
        store = Store(sf, ttl={"default_ttl": 10}, index={"dims": len(LETTERS), "embed": embed})
        for key in ("read", "left"):
            store.put(("a", key), key, {"text": "abc"})
        clock.advance("6m")
        assert keys(store.search(("a", "read"), query="abc")) == ["read"]
        clock.advance("6m")
        assert keys(store.search(("a",), query="abc")) == ["read"]
        assert store.sweep_ttl() == 1
        assert list(sf.rows("SELECT COUNT(*) AS n FROM item_vector")) == [{"n": 1}]


def test_pages_do_not_matter(sf: standfast.Standfast, monkeypatch: pytest.MonkeyPatch) -> None:
    """Namespaces, items and fields need several pages each. None is skipped or read twice."""
    store = indexed(sf)
    store.batch(
        PutOp((f"n{n % 3}", "é\\"), f"k{n}", {"a": "a" * (n + 1), "b": "b"}, index=["a", "b"]) for n in range(20)
    )
    whole = keys(store.search((), query="ab", limit=100)), keys(store.search((), limit=100))
    for page in (1, 2, 3, 7):
        monkeypatch.setattr(items_room, "PAGE", page)
        assert (keys(store.search((), query="ab", limit=100)), keys(store.search((), limit=100))) == whole
        assert len(store.search(("n1", "é\\"), query="ab", limit=100)) == 7
    assert sorted(whole[0]) == sorted(f"k{n}" for n in range(20))


@pytest.mark.parametrize("distance", ["cosine", "l2", "inner_product"])
def test_distances_are_those_of_the_official_stores(sf: standfast.Standfast, distance: str) -> None:
    store = indexed(sf, distance_type=distance, fields=["text"])
    store.put(("a",), "small", {"text": "ab"})
    store.put(("a",), "large", {"text": "aaaabbbb"})
    found = {item.key: item.score for item in store.search(("a",), query="aab")}
    scores = {
        "cosine": {"small": 3 / math.sqrt(10), "large": 3 / math.sqrt(10)},
        "l2": {"small": -1.0, "large": -math.sqrt(13)},
        "inner_product": {"small": 3.0, "large": 12.0},
    }
    assert found == pytest.approx(scores[distance], abs=1e-5)


def test_an_embedding_that_is_awaited_serves_the_awaited_methods(sf: standfast.Standfast) -> None:
    async def later(texts: list[str]) -> list[list[float]]:
        await asyncio.sleep(0)
        return embed(texts)

    async def act() -> list[Any]:
        store = Store(sf, index={"dims": len(LETTERS), "embed": later})
        await store.aput(("a",), "k", {"text": "abc"})
        return await store.asearch(("a",), query="abc")

    assert keys(asyncio.run(act())) == ["k"]


def test_a_batch_embeds_each_stored_text_once(sf: standfast.Standfast) -> None:
    asked: list[list[str]] = []

    def counted(texts: list[str]) -> list[list[float]]:
        asked.append(texts)
        return embed(texts)

    store = indexed(sf, embed=counted, fields=["text"])
    store.batch(
        [
            PutOp(("a",), "k", {"text": "first"}),
            PutOp(("a",), "k", {"text": "abc"}),
            PutOp(("a",), "l", {"text": "abc"}),
        ]
    )
    assert asked == [["abc"]]
    store.batch([SearchOp(("a",), query="q"), SearchOp(("a",), query="q")])
    assert asked == [["abc"], ["q"]]


def test_an_invalid_search_is_refused_and_nothing_is_written(
    sf: standfast.Standfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    for index, words in (
        ({"embed": embed}, "needs dims"),
        ({"dims": 0, "embed": embed}, "needs dims"),
        ({"dims": 8}, "needs embed"),
        ({"dims": 8, "embed": embed, "distance_type": "hamming"}, "no distance"),
    ):
        with pytest.raises(standfast.InvalidInput, match=words):
            Store(sf, index=index)
    with pytest.raises(standfast.InvalidInput, match="8 dimensions, and dims is 3"):
        indexed(sf, dims=3).put(("a",), "k", {"text": "abc"})
    for wrong, words in ((math.nan, "not finite"), ("x", "not a list of numbers")):
        with pytest.raises(standfast.InvalidInput, match=words):
            indexed(sf, embed=lambda texts, wrong=wrong: [[wrong] * 8 for _ in texts]).put(("a",), "k", {"text": "abc"})
    assert sf.items.get(("a",), "k") is None
    indexed(sf).put(("a",), "k", {"text": "abc"})
    with pytest.raises(standfast.InvalidInput, match="8 dimensions, and the query has 3"):
        sf.items.nearest(("a",), [1, 2, 3])
    monkeypatch.setattr(items_room, "VECTORS_MAX", 0)
    with pytest.raises(standfast.InvalidInput, match=re.escape("more than 0 vectors at or below ('a',)")):
        sf.items.nearest(("a",), [1.0] * 8, by="l2")  # this measure is computed in Python


@given(NUMBERS, NUMBERS)
def test_nearness_is_what_the_definition_says(one: list[float], other: list[float]) -> None:
    product = sum(a * b for a, b in zip(one, other, strict=True))
    lengths = math.hypot(*one) * math.hypot(*other)
    stored = vectors.packed(one)
    scale = max(1.0, lengths)
    assert vectors.nearness(other)(stored) == pytest.approx(product / lengths if lengths else 0.0, abs=1e-5)
    assert vectors.nearness(other, "inner_product")(stored) / scale == pytest.approx(product / scale, abs=1e-5)
    # Stored vectors have 32-bit numbers, too coarse for the distance of two nearly equal vectors.
    assert vectors.nearness(other, "l2")(stored) == pytest.approx(-math.dist(one, other), rel=1e-3, abs=1e-3 * scale)


def test_a_cut_off_vector_is_damage(sf: standfast.Standfast) -> None:
    sf.items.change([Change(("a",), "k", {}, vectors={"f": [1.0, 2.0]})])
    with pytest.raises(standfast.Corrupt, match="cut off"):
        vectors.nearness([1.0, 2.0])(vectors.packed([1.0, 2.0])[:-1])
