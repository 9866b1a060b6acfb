"""LangGraph's long-term store on `sf.items`: its operations, the expiry of items, and refused calls."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import standfast
from standfast import clock as clocks

pytest.importorskip("langgraph.store.base", reason="pip install '.[dev]' brings LangGraph")

from langgraph.store.base import GetOp, ListNamespacesOp, PutOp, SearchOp

from standfast.adapters.langgraph import Saver, Store


@pytest.fixture
def store(sf: standfast.Standfast) -> Store:
    return Store(sf)


def test_get_returns_the_put_value_and_its_creation_time_stays(store: Store) -> None:
    store.put(("users", "ada"), "taste", {"colour": "blue", "n": 1})
    first = store.get(("users", "ada"), "taste")
    store.put(("users", "ada"), "taste", {"colour": "red"})
    second = store.get(("users", "ada"), "taste")
    assert first is not None
    assert second is not None
    assert (first.value, second.value) == ({"colour": "blue", "n": 1}, {"colour": "red"})
    assert second.created_at == first.created_at <= second.updated_at
    store.delete(("users", "ada"), "taste")
    assert store.get(("users", "ada"), "taste") is None


def test_search_filters_by_path_field_and_comparison(store: Store) -> None:
    for n in range(5):
        store.put(("docs", "a" if n % 2 else "b"), f"k{n}", {"n": n, "at": {"page": n}})
    store.put(("docsother",), "k9", {"n": 9})
    assert {item.key for item in store.search(("docs",))} == {f"k{n}" for n in range(5)}
    assert [item.key for item in store.search(("docs",), limit=2)] == ["k4", "k3"]
    assert [item.key for item in store.search(("docs",), filter={"n": {"$gte": 2, "$lt": 4}})] == ["k3", "k2"]
    assert [item.key for item in store.search((), filter={"at": {"page": 1}})] == ["k1"]
    assert store.search((), filter={"n": {"$gt": "text"}}) == []
    assert store.search((), filter={"x') OR 1=1 --": 1}) == []
    with pytest.raises(standfast.InvalidInput, match="no comparison"):
        store.search((), filter={"n": {"$where": "1"}})


def test_namespaces_are_listed_by_pattern_and_depth(store: Store) -> None:
    for path in (("a", "x", "v1"), ("a", "y", "v1"), ("b", "x", "v2")):
        store.put(path, "k", {})
    assert store.list_namespaces(prefix=("a",)) == [("a", "x", "v1"), ("a", "y", "v1")]
    assert store.list_namespaces(suffix=("v2",)) == [("b", "x", "v2")]
    assert store.list_namespaces(prefix=("*", "x")) == [("a", "x", "v1"), ("b", "x", "v2")]
    assert store.list_namespaces(max_depth=1) == [("a",), ("b",)]


def test_a_batch_reads_what_was_there_and_writes_all_or_nothing(store: Store) -> None:
    done = store.batch([PutOp(("a",), "k", {"n": 1}), GetOp(("a",), "k"), PutOp(("a",), "k", {"n": 2})])
    assert done == [None, None, None]
    with pytest.raises(standfast.InvalidInput):
        store.batch([PutOp(("a",), "k", {"n": 3}), PutOp(("a",), "bad", {"n": object()})])
    (item, found, paths) = asyncio.run(store.abatch([GetOp(("a",), "k"), SearchOp(("a",)), ListNamespacesOp()]))
    assert item is not None
    assert item.value == {"n": 2}  # type: ignore[union-attr]
    assert len(found or ()) == 1  # type: ignore[arg-type]
    assert paths == [("a",)]


def test_reading_an_item_restarts_its_time_to_live(engine_url: str, tmp_path: object) -> None:
    clock = clocks.ManualClock()
    with standfast.open(engine_url, data_dir=str(tmp_path), clock=clock) as sf:
        store = Store(sf, ttl={"default_ttl": 10})
        store.put(("a",), "read", {})
        store.put(("a",), "left", {})
        store.put(("a",), "kept", {}, ttl=None)
        clock.advance("6m")
        assert store.get(("a",), "read") is not None
        assert store.get(("a",), "left", refresh_ttl=False) is not None
        clock.advance("6m")
        assert [item.key for item in store.search(("a",), refresh_ttl=False)] == ["kept", "read"]
        assert store.get(("a",), "left") is None
        assert store.sweep_ttl() == 1
        assert store.sweep_ttl() == 0


def test_repeated_reads_write_the_expiry_once(engine_url: str, tmp_path: object) -> None:
    """The expiry is written again only if it moves by more than 1 %, so an item may expire 1 % too early."""
    clock = clocks.ManualClock()
    with standfast.open(engine_url, data_dir=str(tmp_path), clock=clock) as sf:
        store = Store(sf, ttl={"default_ttl": 10})
        store.put(("a",), "k", {})

        def ends() -> int:
            (row,) = sf.rows("SELECT expires_us FROM item")
            return int(row["expires_us"])

        first = ends()
        clock.advance("5s")
        assert store.get(("a",), "k") is not None
        assert len(store.search(("a",))) == 1
        assert ends() == first
        clock.advance("2s")
        assert len(store.search(("a",))) == 1
        assert ends() == first + 7_000_000


def test_without_an_index_a_query_is_ignored(store: Store) -> None:
    """As in the official stores, the items changed last are first, and no item has a score."""
    store.put(("a",), "old", {"text": "something like this"}, index=["text"])
    store.put(("a",), "new", {"text": "otherwise"})
    assert [(item.key, item.score) for item in store.search(("a",), query="like this")] == [
        ("new", None),
        ("old", None),
    ]
    assert list(store.sf.rows("SELECT COUNT(*) AS n FROM item_vector")) == [{"n": 0}]


def test_each_of_many_awaited_calls_has_its_own_outcome(sf: standfast.Standfast) -> None:
    store = Store(sf)

    async def act() -> None:
        puts = [store.aput(("a",), f"k{n}", {"n": n or object()}) for n in range(100)]
        done = await asyncio.gather(*puts, return_exceptions=True)
        assert [type(one) for one in done] == [standfast.InvalidInput, *[type(None)] * 99]
        found: Any = await asyncio.gather(*(store.asearch(("a",), limit=1000) for _ in range(50)))
        assert [len(one) for one in found] == [99] * 50
        found[0][0].value["n"] = "changed by its reader"
        assert all("changed" not in str(one[0].value) for one in found[1:])

    asyncio.run(act())


def test_a_put_that_is_cancelled_happens_whole_or_not_at_all(sf: standfast.Standfast) -> None:
    store = Store(sf)

    async def act() -> None:
        puts = [asyncio.ensure_future(store.aput(("a",), f"k{n}", {"n": n})) for n in range(50)]
        await asyncio.sleep(0)
        for put in puts[::2]:
            put.cancel()
        await asyncio.wait(puts)
        there = {item.key for item in await store.asearch(("a",), limit=100)}
        assert {f"k{n}" for n in range(50) if not puts[n].cancelled()} <= there

    asyncio.run(act())


def test_a_graph_has_its_threads_and_its_memory_in_one_store(engine_url: str) -> None:
    async def both() -> None:
        async with Saver.from_conn_string(engine_url) as saver, Store.from_conn_string(engine_url) as store:
            await store.aput(("a",), "k", {"n": 1})
            assert (await store.aget(("a",), "k")).value == {"n": 1}  # type: ignore[union-attr]
            assert saver.sf.items.paths() == [("a",)]

    asyncio.run(both())
