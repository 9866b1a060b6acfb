"""LangGraph: a checkpointer and a store over `sf.threads` and `sf.items`.

    from standfast.adapters.langgraph import Saver

    with Saver.from_conn_string("app.db") as saver:          # or postgresql://…
        graph = builder.compile(checkpointer=saver)

One class, sync and async. Acknowledged means durable. What is stored is what changed; what is read back
is made only of types on an allow-list, and nothing is ever unpickled. Two runs of one thread: the one
that comes second is told, with Conflict. A deleted thread stays deleted.
"""

from __future__ import annotations

import asyncio
import functools
import json
import operator
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any, Generic, Self, TypeVar

from standfast import config, handle
from standfast.errors import Conflict, InvalidInput
from standfast.record.items import Change
from standfast.record.items import Item as Remembered
from standfast.record.threads.nouns import Checkpoint as Kept
from standfast.record.threads.nouns import Value, Write
from standfast.record.threads.room import fields_match
from standfast.record.threads.sealing import Seal

try:
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import (
        WRITES_IDX_MAP,
        BaseCheckpointSaver,
        ChannelVersions,
        Checkpoint,
        CheckpointMetadata,
        CheckpointTuple,
        DeltaChannelHistory,
        get_checkpoint_id,
        get_checkpoint_metadata,
    )
    from langgraph.checkpoint.serde.base import SerializerProtocol
    from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
    from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
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
    )
except ImportError as error:
    raise InvalidInput(
        f"LangGraph's checkpoint package is not installed ({error.name})", "pip install 'standfast[langgraph]'"
    ) from error

THREADS_MAX = 64
"""Calls under way at once in one saver; more wait for a thread."""
WAIT_MAX_S = 10.0
"""How long a write waits for the beginning of its thread, which is on its way in this process."""

T = TypeVar("T")
A = TypeVar("A", bound="_Opened")


class _Nothing:
    """Done already; may be awaited."""

    def __await__(self) -> Iterator[None]:
        return iter(())


class _Opened:
    """What a saver and a store have in common: how they are opened and closed."""

    _shared: _Shared

    @classmethod
    def from_conn_string(cls: type[A], conn_string: str | os.PathLike[str] | None = None, **options: Any) -> Opening[A]:
        """`with` or `async with`: on a path or postgresql:// address, closed at the end of the block."""
        return Opening(lambda: cls(conn_string, **options))  # type: ignore[call-arg]  # each has its own options

    def setup(self) -> _Nothing:
        """Nothing to do: the schema is made when the store is opened. Await it or not."""
        return _Nothing()

    def close(self) -> None:
        """Wait for what is under way, and close the store; one that was open already stays open."""
        self._shared.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def sf(self) -> handle.Standfast:
        """The store beneath: its other rooms are in the same file."""
        return self._shared.sf


class Saver(_Opened, BaseCheckpointSaver[Any]):
    """LangGraph's checkpointer over a store of standfast.

    `where` is an open handle, a path, a postgresql:// address, or nothing for the default store. `allow` names
    further types, as classes or (module, name), that may be made again from what is stored.
    `writers="any"` lets two runs of one thread overwrite each other, as the official savers do.
    """

    def __init__(
        self,
        where: handle.Standfast | str | os.PathLike[str] | None = None,
        *,
        serde: SerializerProtocol | None = None,
        allow: Iterable[type | tuple[str, ...]] = (),
        writers: str = "one",
    ) -> None:
        super().__init__(serde=serde or strict(allow))
        if writers not in ("one", "any"):
            raise InvalidInput(f'writers is "one" or "any", not {writers!r}')
        self.writers = writers
        self._shared = _Shared(where)

    # -- reading -------------------------------------------------------------------------------------

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        thread, namespace = _place(config)
        id, (_, seal) = get_checkpoint_id(config), _coding(self.serde)
        kept = self.sf.threads.get(thread, id, namespace=namespace, seal=seal)
        return None if kept is None else self._tuple(kept, config if id else None)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return await self._shared.run(functools.partial(self.get_tuple, config))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        wanted = (config or {}).get("configurable", {})
        thread, id = wanted.get("thread_id"), wanted.get("checkpoint_id")
        seal = _coding(self.serde)[1]
        for kept in self.sf.threads.list(
            None if thread is None else str(thread),
            namespace=wanted.get("checkpoint_ns"),
            before=get_checkpoint_id(before) if before else None,
            matches=functools.partial(fields_match, wanted=filter) if filter else None,
            limit=limit if id is None else None,
            seal=seal,
        ):
            if id is None or kept.id == id:
                yield self._tuple(kept)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        found = self.list(config, filter=filter, before=before, limit=limit)
        while (item := await self._shared.run(lambda: next(found, None))) is not None:
            yield item

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        thread, namespace = _place(config)
        id, (serde, seal) = get_checkpoint_id(config), _coding(self.serde)
        if id is None:
            head = self.sf.threads.get(thread, namespace=namespace, seal=seal)
            id = head.id if head else None
        found = {} if id is None else self.sf.threads.ancestry(thread, id, channels, namespace=namespace, seal=seal)
        history: dict[str, DeltaChannelHistory] = {}
        for channel in channels:
            told = found.get(channel)
            history[channel] = {"writes": [_pending(serde, write) for write in told.writes] if told else []}
            if told is not None and told.seed is not None:
                history[channel]["seed"] = serde.loads_typed(told.seed)
        return history

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        return await self._shared.run(
            functools.partial(self.get_delta_channel_history, config=config, channels=channels)
        )

    def _tuple(self, kept: Kept, config: RunnableConfig | None = None) -> CheckpointTuple:
        serde = _coding(self.serde)[0]
        checkpoint = _header(serde, kept.header)
        checkpoint["channel_values"] = {name: serde.loads_typed(value) for name, value in kept.values.items()}
        return CheckpointTuple(
            config or _config(kept.thread, kept.namespace, kept.id),
            checkpoint,
            json.loads(kept.metadata),
            _config(kept.thread, kept.namespace, kept.parent_id) if kept.parent_id else None,
            [_pending(serde, write) for write in kept.writes],
        )

    # -- writing -------------------------------------------------------------------------------------

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        return self._putting(config, checkpoint, metadata, new_versions)()

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        return await self._shared.run(self._putting(config, checkpoint, metadata, new_versions))

    def _putting(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> Callable[[], RunnableConfig]:
        """The put, with all that changed encoded now: what the graph does to its values later is not in it."""
        thread, namespace = _place(config)
        serde, seal = _coding(self.serde)
        parent_id, values = get_checkpoint_id(config), checkpoint["channel_values"]
        told = get_checkpoint_metadata(config, metadata)
        changed = {name: name in new_versions or not new_versions for name in values}
        encoded = {name: serde.dumps_typed(values[name]) for name, differs in changed.items() if differs}
        small = {name: value for name, value in checkpoint.items() if name != "channel_values"}
        header, meta = _typed(serde.dumps_typed(small)), json.dumps(told).encode()
        run_id = told.get("run_id")

        def value_of(name: str) -> Value:
            return _plain(encoded.get(name) or serde.dumps_typed(values[name]))

        def put() -> RunnableConfig:
            beginning = parent_id is None and namespace == ""
            with self._shared.beginning(thread, beginning):
                self._shared.after_beginning(
                    thread,
                    lambda: self.sf.threads.put(
                        thread,
                        checkpoint["id"],
                        header=header,
                        metadata=meta,
                        namespace=namespace,
                        parent_id=parent_id,
                        values=changed,
                        value_of=value_of,
                        run_id=None if run_id is None else str(run_id),
                        expect_head=self.writers == "one" and namespace == "" and _goes_on(config),
                        seal=seal,
                    ),
                    own=beginning,
                )
            return _config(config["configurable"]["thread_id"], namespace, checkpoint["id"])

        return put

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        self._writing(config, writes, task_id, task_path)()

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        await self._shared.run(self._writing(config, writes, task_id, task_path))

    def _writing(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str
    ) -> Callable[[], None]:
        thread, namespace = _place(config)
        serde, seal = _coding(self.serde)
        rows = [
            Write(task_id, task_path, WRITES_IDX_MAP.get(channel, n), channel, _plain(serde.dumps_typed(value)))
            for n, (channel, value) in enumerate(writes)
        ]
        special = all(channel in WRITES_IDX_MAP for channel, _ in writes)
        id = str(config["configurable"]["checkpoint_id"])

        def put() -> None:
            def act() -> None:
                self.sf.threads.put_writes(thread, id, rows, namespace=namespace, replace=special, seal=seal)

            self._shared.after_beginning(thread, act)

        return put

    # -- taking away ---------------------------------------------------------------------------------

    def delete_thread(self, thread_id: str) -> None:
        self.sf.threads.delete(str(thread_id))

    async def adelete_thread(self, thread_id: str) -> None:
        await self._shared.run(functools.partial(self.delete_thread, thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        self.sf.threads.delete_runs([str(run_id) for run_id in run_ids])

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        await self._shared.run(functools.partial(self.delete_for_runs, run_ids))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        self.sf.threads.copy(str(source_thread_id), str(target_thread_id))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        await self._shared.run(functools.partial(self.copy_thread, source_thread_id, target_thread_id))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        if strategy not in ("keep_latest", "delete"):
            raise InvalidInput(f'a strategy is "keep_latest" or "delete", not {strategy!r}')
        for thread in map(str, thread_ids):
            if strategy == "delete":
                self.sf.threads.delete(thread)
            else:
                self.sf.threads.prune(thread, keep=self._needed(thread))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        await self._shared.run(functools.partial(self.prune, thread_ids, strategy=strategy))

    def _needed(self, thread: str) -> dict[str, Sequence[str]]:
        """What the newest of each namespace is made of: a DeltaChannel's value is spread over its ancestors."""
        seal = _coding(self.serde)[1]
        needed: dict[str, Sequence[str]] = {}
        for kept in self.sf.threads.newest(thread, seal=seal):
            deltas = json.loads(kept.metadata).get("counters_since_delta_snapshot") or {}
            missing = [name for name in deltas if name not in kept.values]
            needed[kept.namespace] = self.sf.threads.path(thread, kept.id, missing, namespace=kept.namespace)
        return needed

    # -- versions ------------------------------------------------------------------------------------

    def get_next_version(self, current: Any, channel: None) -> Any:
        """Whole numbers; a thread that began with another saver's text goes on in kind."""
        if isinstance(current, str):
            return f"{int(current.split('.')[0]) + 1:032}.{0:016}"
        return 1 if current is None else int(current) + 1


class Store(_Opened, BaseStore):
    """LangGraph's long-term store over `sf.items`, with time to live. There is no vector search: it is refused."""

    supports_ttl = True

    def __init__(
        self,
        where: handle.Standfast | str | os.PathLike[str] | None = None,
        *,
        ttl: TTLConfig | None = None,
        index: object = None,
    ) -> None:
        if index is not None:
            raise _no_vectors()
        self.ttl_config = ttl
        self._shared = _Shared(where)

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Reads see what was there before; what is put is committed together, the last of a name counts."""
        asked = list(ops)
        results = [self._read(op) for op in asked]
        changes = [
            Change(op.namespace, op.key, None if op.value is None else dict(op.value), _ttl_us(op.ttl))
            for op in asked
            if isinstance(op, PutOp)
        ]
        if changes:
            self.sf.items.change(changes)
        return results

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        return await self._shared.run(functools.partial(self.batch, list(ops)))

    def sweep_ttl(self) -> int:
        """Remove what is over; nobody sees it anyway. How many went."""
        total = 0
        while gone := self.sf.items.sweep():
            total += gone
        return total

    def _read(self, op: Op) -> Result:
        match op:
            case GetOp():
                found = self.sf.items.get(op.namespace, op.key, refresh=op.refresh_ttl)
                return None if found is None else Item(**_fields(found))
            case SearchOp():
                return self._search(op)
            case ListNamespacesOp():
                return self._namespaces(op)
            case PutOp():
                return None
        raise InvalidInput(f"{type(op).__name__} is no operation of a store")

    def _search(self, op: SearchOp) -> list[SearchItem]:
        if op.query:
            raise _no_vectors()
        found = self.sf.items.search(
            op.namespace_prefix,
            matches=functools.partial(_fits, wanted=op.filter) if op.filter else None,
            limit=op.limit,
            offset=op.offset,
            refresh=op.refresh_ttl,
        )
        return [SearchItem(**_fields(item)) for item in found]

    def _namespaces(self, op: ListNamespacesOp) -> list[tuple[str, ...]]:
        conditions = op.match_conditions or ()
        found = [path for path in self.sf.items.paths() if all(_matches(each, path) for each in conditions)]
        if op.max_depth is not None:
            found = sorted({path[: op.max_depth] for path in found})
        return found[op.offset : op.offset + op.limit]


# -- small parts -------------------------------------------------------------------------------------


def _no_vectors() -> InvalidInput:
    return InvalidInput(
        "this store has no vector search: it keeps and filters, it does not embed",
        "search by namespace and filter, or give the graph a vector store beside this one",
    )


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
    """Whether a value has what a filter names: fields within fields, compared in Python, never put into SQL."""
    if not isinstance(wanted, dict):
        return bool(value == (list(wanted) if isinstance(wanted, tuple) else wanted))
    if any(name.startswith("$") for name in wanted):
        return all(_compares(value, name, other) for name, other in wanted.items())
    return isinstance(value, dict) and all(_fits(value.get(name), other) for name, other in wanted.items())


def _compares(value: Any, name: str, other: Any) -> bool:
    if name not in _COMPARED:
        raise InvalidInput(f"{name!r} is no comparison", f"one of {', '.join(_COMPARED)}")
    try:
        return bool(_COMPARED[name](value, other))
    except TypeError:  # a number and a text have no order
        return False


def strict(allow: Iterable[type | tuple[str, ...]] = ()) -> JsonPlusSerializer:
    """LangGraph's serializer without pickle, that makes again only its safe types and those in `allow`."""
    return JsonPlusSerializer(pickle_fallback=False, allowed_msgpack_modules=tuple(allow) or None)


def _coding(serde: SerializerProtocol) -> tuple[SerializerProtocol, Seal | None]:
    """What encodes, and what seals: a cipher comes after the splice, or nothing could be kept once."""
    if not isinstance(serde, EncryptedSerializer):
        return serde, None
    cipher = serde.cipher

    def encrypt(data: bytes) -> bytes:
        name, sealed = cipher.encrypt(data)
        return name.encode() + b"\0" + sealed

    def decrypt(data: bytes) -> bytes:
        name, _, sealed = data.partition(b"\0")
        return cipher.decrypt(name.decode(), sealed)

    return serde.serde, Seal("cipher", encrypt, decrypt)


def _place(config: RunnableConfig) -> tuple[str, str]:
    wanted = config["configurable"]
    return str(wanted["thread_id"]), str(wanted.get("checkpoint_ns", ""))


def _config(thread: str, namespace: str, id: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": namespace, "checkpoint_id": id}}


def _goes_on(config: RunnableConfig) -> bool:
    """Whether a run of a graph goes on from the newest checkpoint: it says which thread, and asks for no older one."""
    told = config.get("metadata") or {}
    return bool(told.get("thread_id")) and not told.get("checkpoint_id")


def _plain(value: tuple[str, Any]) -> Value:
    return value[0], bytes(value[1])


def _typed(value: tuple[str, Any]) -> bytes:
    return value[0].encode() + b"\0" + bytes(value[1])


def _header(serde: SerializerProtocol, data: bytes) -> Any:
    type, _, rest = data.partition(b"\0")
    return serde.loads_typed((type.decode(), rest))


def _pending(serde: SerializerProtocol, write: Write) -> tuple[str, str, Any]:
    return write.task_id, write.channel, serde.loads_typed(write.value)


class Opening(Generic[A]):
    """Opened by entering, closed by leaving; `with` and `async with` alike."""

    def __init__(self, make: Callable[[], A]) -> None:
        self._make = make
        self._made: A | None = None

    def __enter__(self) -> A:
        self._made = self._make()
        return self._made

    def __exit__(self, *exc: object) -> None:
        if self._made is not None:
            self._made.close()

    async def __aenter__(self) -> A:
        self._made = await asyncio.to_thread(self._make)
        return self._made

    async def __aexit__(self, *exc: object) -> None:
        if self._made is not None:
            await asyncio.to_thread(self._made.close)


class _Shared:
    """What a saver and its shallow copies have in common: the open store, its threads, and what is beginning."""

    def __init__(self, where: handle.Standfast | str | os.PathLike[str] | None) -> None:
        self._own = not isinstance(where, handle.Standfast)
        if isinstance(where, handle.Standfast):
            self.sf = where
        else:
            # A database is one world, as it is for the official savers: the directory of a process tells nothing.
            self.sf = handle.connect(config.load(where)._replace(scope=""))
        self._threads: ThreadPoolExecutor | None = None
        self._mutex = threading.Lock()
        self._beginnings: dict[str, int] = {}

    def close(self) -> None:
        with self._mutex:
            threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown(wait=True)
        if self._own:
            self.sf.close()

    async def run(self, act: Callable[[], T]) -> T:
        """On a worker thread. A cancelled caller does not stop what is under way, and nothing is left open."""
        with self._mutex:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="standfast-langgraph")
            threads = self._threads
        return await asyncio.get_running_loop().run_in_executor(threads, act)

    def beginning(self, thread: str, begins: bool) -> _Beginning:
        return _Beginning(self, thread, begins)

    def after_beginning(self, thread: str, act: Callable[[], Any], *, own: bool = False) -> None:
        """Tasks may be faster than the first checkpoint of their thread: of one that was deleted, they wait for it."""
        end = time.monotonic() + WAIT_MAX_S
        while True:
            with self._mutex:
                on_its_way = not own and bool(self._beginnings.get(thread))
            try:
                act()
                return
            except Conflict as error:
                if error.code != "thread_deleted" or not on_its_way or time.monotonic() > end:
                    raise
            time.sleep(0.002)


class _Beginning:
    """The block in which a thread's first checkpoint is on its way."""

    def __init__(self, shared: _Shared, thread: str, begins: bool) -> None:
        self._shared = shared
        self._thread = thread
        self._step = int(begins)

    def __enter__(self) -> None:
        self._count(self._step)

    def __exit__(self, *exc: object) -> None:
        self._count(-self._step)

    def _count(self, step: int) -> None:
        if step:
            counts = self._shared._beginnings
            with self._shared._mutex:
                counts[self._thread] = counts.get(self._thread, 0) + step
                if not counts[self._thread]:
                    del counts[self._thread]
