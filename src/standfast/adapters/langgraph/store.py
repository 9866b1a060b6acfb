"""LangGraph's long-term store over `sf.items`, with time to live and, with an index, vector search."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import operator
import os
import threading
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from datetime import UTC, datetime
from typing import Any, NamedTuple

from langgraph.store.base import (
    BaseStore,
    GetOp,
    Item,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
    ensure_embeddings,
    get_text_at_path,
    tokenize_path,
)

from standfast import handle
from standfast.adapters.langgraph.connect import Opened, Shared
from standfast.errors import InvalidInput, StorageError
from standfast.record.items import Change
from standfast.record.items import Item as Remembered
from standfast.record.vectors import DIMENSIONS_MAX

SWEEP_EVERY_MIN = 5.0
DISTANCES = ("cosine", "l2", "inner_product")

Vectors = dict[str, Sequence[float]]


class Told(int):
    """A number that may be awaited and is there already."""

    def __await__(self) -> Generator[None, None, Told]:
        yield from ()
        return self


class Sweeping(Future[None]):
    """A task that runs until it is cancelled. Awaiting it waits for its start."""

    def __await__(self) -> Generator[None, None, Sweeping]:
        yield from ()
        return self


class Store(Opened, BaseStore):
    """LangGraph's long-term store over a store of standfast.

    `index` has the fields of the official stores: `dims`, `embed`, `fields` (default: the whole item) and
    `distance_type`. Without `index` nothing is embedded, and the query of a search is ignored.
    """

    supports_ttl = True

    def __init__(
        self,
        where: handle.Standfast | str | os.PathLike[str] | None = None,
        *,
        ttl: TTLConfig | None = None,
        index: Mapping[str, Any] | None = None,
    ) -> None:
        self.ttl_config = ttl
        self._index = None if index is None else _Index(index)
        self.index_config = None if index is None else dict(index)
        self.embeddings = None if self._index is None else self._index.embed
        self._sweeping = threading.Event()
        self._sweeper: threading.Thread | None = None
        self._shared = Shared(where)

    def close(self) -> None:
        self.stop_ttl_sweeper()
        super().close()

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Run the operations. Reads see the state before the puts. Puts are one commit, the last per key counts."""
        asked = list(ops)
        if self._index is None:
            return self._act(asked, _Meant({}, {}))
        return self._act(asked, self._index.meant(asked))

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        asked = list(ops)
        meant = _Meant({}, {}) if self._index is None else await self._index.ameant(asked)
        return await self._shared.run(functools.partial(self._act, asked, meant))

    def _act(self, asked: Sequence[Op], meant: _Meant) -> list[Result]:
        results = [self._read(op, meant) for op in asked]
        if last := _last(asked):
            self.sf.items.change([self._change(op, meant) for op in last])
        return results

    def _change(self, op: PutOp, meant: _Meant) -> Change:
        if op.value is None:
            return Change(op.namespace, op.key, None)
        found: Vectors = {}
        if self._index is not None:
            found = {field: meant.texts[text] for field, text in self._index.texts(op).items()}
        return Change(op.namespace, op.key, dict(op.value), _ttl_us(op.ttl), found)

    def _read(self, op: Op, meant: _Meant) -> Result:
        match op:
            case GetOp():
                found = self.sf.items.get(op.namespace, op.key, refresh=op.refresh_ttl)
                return None if found is None else Item(**_fields(found))
            case SearchOp():
                return self._search(op, meant)
            case ListNamespacesOp():
                return self._namespaces(op)
            case PutOp():
                return None
        raise InvalidInput(f"{type(op).__name__} is no operation of a store")

    def _search(self, op: SearchOp, meant: _Meant) -> list[SearchItem]:
        wanted: dict[str, Any] = {
            "matches": functools.partial(_fits, wanted=op.filter) if op.filter else None,
            "limit": op.limit,
            "offset": op.offset,
            "refresh": op.refresh_ttl,
        }
        path = tuple(op.namespace_prefix)
        if self._index is None or not op.query:
            return [SearchItem(**_fields(item)) for item in self.sf.items.search(path, **wanted)]
        found = self.sf.items.nearest(path, meant.queries[op.query], by=self._index.distance, **wanted)
        return [SearchItem(**_fields(one.item), score=one.nearness) for one in found]

    def _namespaces(self, op: ListNamespacesOp) -> list[tuple[str, ...]]:
        conditions = op.match_conditions or ()
        found = [path for path in self.sf.items.paths() if all(_matches(each, path) for each in conditions)]
        if op.max_depth is not None:
            found = sorted({path[: op.max_depth] for path in found})
        return found[op.offset : op.offset + op.limit]

    # -- time to live --------------------------------------------------------------------------------

    def sweep_ttl(self) -> Told:
        """Remove expired items and return their number. Reads skip expired items anyway."""
        total = 0
        while gone := self.sf.items.sweep():
            total += gone
        return Told(total)

    def start_ttl_sweeper(self, sweep_interval_minutes: float | None = None) -> Sweeping:
        """Start a thread that sweeps at an interval, until it is stopped or cancelled, or the store is closed."""
        done = Sweeping()
        if not self.ttl_config:
            done.set_result(None)
            return done
        done.add_done_callback(lambda future: self._sweeping.set() if future.cancelled() else None)
        if self._sweeper is None or not self._sweeper.is_alive():
            every = float(sweep_interval_minutes or self.ttl_config.get("sweep_interval_minutes") or SWEEP_EVERY_MIN)
            self._sweeping.clear()
            self._sweeper = threading.Thread(
                target=self._sweep, args=(every * 60, done), daemon=True, name="standfast-sweeper"
            )
            self._sweeper.start()
        return done

    def _sweep(self, every_s: float, done: Sweeping) -> None:
        while not self._sweeping.wait(every_s):
            with contextlib.suppress(StorageError):  # expired items stay expired: the next sweep removes them
                self.sweep_ttl()
        with contextlib.suppress(InvalidStateError):  # the caller cancelled the sweep
            done.set_result(None)

    def stop_ttl_sweeper(self, timeout: float | None = None) -> Told:
        """Stop the sweeper. Returns whether it ended within `timeout`."""
        self._sweeping.set()
        if self._sweeper is not None:
            self._sweeper.join(timeout)
            if self._sweeper.is_alive():
                return Told(False)
            self._sweeper = None
        return Told(True)


# -- vectors -----------------------------------------------------------------------------------------


class _Meant(NamedTuple):
    """The vectors of a batch, by text and by query."""

    texts: Vectors
    queries: Vectors


class _Index:
    """The configuration of an index: which fields are embedded, with which function and distance."""

    def __init__(self, told: Mapping[str, Any]) -> None:
        dims, distance = told.get("dims"), told.get("distance_type") or "cosine"
        if not isinstance(dims, int) or not 1 <= dims <= DIMENSIONS_MAX:
            raise InvalidInput(
                f"an index needs dims, from 1 to {DIMENSIONS_MAX:,}, not {dims!r}",
                'index={"dims": 1536, "embed": embed, "fields": ["text"]}',
            )
        if distance not in DISTANCES:
            raise InvalidInput(f"{distance!r} is no distance", f"one of {', '.join(DISTANCES)}")
        if told.get("embed") is None:
            raise InvalidInput(
                "an index needs embed: a function, an Embeddings of LangChain, or a provider's name",
                'index={"dims": 1536, "embed": "openai:text-embedding-3-small"}',
            )
        self.dims = dims
        self.distance = str(distance)
        self.embed = ensure_embeddings(told["embed"])
        # SqliteStore calls it text_fields, the other stores fields.
        fields = told.get("fields") or told.get("text_fields") or ["$"]
        self._fields = [fields] if isinstance(fields, str) else list(fields)

    def texts(self, op: PutOp) -> dict[str, str]:
        """The texts of an item to embed, by field."""
        if op.value is None or op.index is False:
            return {}
        found: dict[str, str] = {}
        for field in self._fields if op.index is None else op.index:
            texts = get_text_at_path(op.value, field if field == "$" else tokenize_path(field))
            for n, text in enumerate(texts):
                found[f"{field}.{n}" if len(texts) > 1 else field] = text
        return found

    def meant(self, asked: Sequence[Op]) -> _Meant:
        texts, queries = self._wanted(asked)
        embedded = self.embed.embed_documents(texts) if texts else []
        return self._checked(texts, embedded, queries, [self.embed.embed_query(query) for query in queries])

    async def ameant(self, asked: Sequence[Op]) -> _Meant:
        texts, queries = self._wanted(asked)
        embedded = await self.embed.aembed_documents(texts) if texts else []
        found = await asyncio.gather(*(self.embed.aembed_query(query) for query in queries))
        return self._checked(texts, embedded, queries, found)

    def _wanted(self, asked: Sequence[Op]) -> tuple[list[str], list[str]]:
        """Each text and each query of a batch, once."""
        texts = dict.fromkeys(text for op in _last(asked) for text in self.texts(op).values())
        queries = dict.fromkeys(op.query for op in asked if isinstance(op, SearchOp) and op.query)
        return list(texts), list(queries)

    def _checked(
        self,
        texts: Sequence[str],
        embedded: Sequence[Sequence[float]],
        queries: Sequence[str],
        found: Sequence[Sequence[float]],
    ) -> _Meant:
        if len(embedded) != len(texts):
            raise InvalidInput(f"embed made {len(embedded)} vectors of {len(texts)} texts")
        for vector in (*embedded, *found):
            if len(vector) != self.dims:
                raise InvalidInput(f"embed made a vector of {len(vector)} dimensions, and dims is {self.dims}")
        return _Meant(dict(zip(texts, embedded, strict=True)), dict(zip(queries, found, strict=True)))


# -- private functions -------------------------------------------------------------------------------


def _last(asked: Sequence[Op]) -> list[PutOp]:
    """The last put of each namespace and key. Earlier puts are not written."""
    return list({(op.namespace, op.key): op for op in asked if isinstance(op, PutOp)}.values())


def _ttl_us(minutes: float | None) -> int | None:
    return None if minutes is None else int(minutes * 60_000_000)


def _fields(item: Remembered) -> dict[str, Any]:
    return {
        "namespace": item.path,
        "key": item.key,
        "value": item.value,
        "created_at": _moment(item.created_us),
        "updated_at": _moment(item.updated_us),
    }


def _moment(us: int) -> datetime:
    return datetime.fromtimestamp(us / 1_000_000, UTC)


def _matches(condition: MatchCondition, path: tuple[str, ...]) -> bool:
    wanted = condition.path
    if len(path) < len(wanted):
        return False
    part = path[: len(wanted)] if condition.match_type == "prefix" else path[len(path) - len(wanted) :]
    return all(name in ("*", found) for name, found in zip(wanted, part, strict=True))


_COMPARED: dict[str, Callable[[Any, Any], bool]] = {
    "$eq": operator.eq,
    "$ne": operator.ne,
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}


def _fits(value: Any, wanted: Any) -> bool:
    """Whether a value matches a filter. Filters are compared in Python and never become SQL."""
    if not isinstance(wanted, dict):
        return bool(value == (list(wanted) if isinstance(wanted, tuple) else wanted))
    if any(name.startswith("$") for name in wanted):
        return all(_compares(value, name, other) for name, other in wanted.items())
    return isinstance(value, dict) and all(_fits(_field(value, name), other) for name, other in wanted.items())


def _field(value: dict[str, Any], name: str) -> Any:
    """A field by its name, or by a path of names with dots."""
    if name in value or "." not in name:
        return value.get(name)
    first, _, rest = name.partition(".")
    inner = value.get(first)
    return _field(inner, rest) if isinstance(inner, dict) else None


def _compares(value: Any, name: str, other: Any) -> bool:
    if name not in _COMPARED:
        raise InvalidInput(f"{name!r} is no comparison", f"one of {', '.join(_COMPARED)}")
    try:
        return bool(_COMPARED[name](value, other))
    except TypeError:  # a number and a text have no order
        return False
