"""LangGraph's checkpointer over `sf.threads`. It encodes and decodes values with LangGraph's serializer."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

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

from standfast import handle
from standfast.adapters.langgraph.connect import Opened, Shared
from standfast.errors import InvalidInput
from standfast.record.threads.encryption import Seal
from standfast.record.threads.models import Checkpoint as Kept
from standfast.record.threads.models import Value, Write
from standfast.record.threads.rows import fields_match

P = ParamSpec("P")
T = TypeVar("T")


def _awaited(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """The awaited form of a method, which runs on a worker thread of the saver."""

    @functools.wraps(method)
    async def call(saver: Saver, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await saver._shared.run(functools.partial(getattr(saver, method.__name__), *args, **kwargs))

    return call


class Saver(Opened, BaseCheckpointSaver[Any]):
    """LangGraph's checkpointer over a store of standfast.

    `where` is an open handle, a path, or a postgresql:// address. Without it, the default store is opened. `allow`
    names further types, as classes or (module, name), that stored values may be decoded to.
    With `writers="any"` two runs of one thread may overwrite each other, as in the official savers.
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
        self._shared = Shared(where)

    # -- reads ---------------------------------------------------------------------------------------

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        thread, namespace = _place(config)
        id, (_, seal) = get_checkpoint_id(config), _coding(self.serde)
        kept = self.sf.threads.get(thread, id, namespace=namespace, seal=seal)
        return None if kept is None else self._tuple(kept, config if id else None)

    aget_tuple = _awaited(get_tuple)

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

    aget_delta_channel_history = _awaited(get_delta_channel_history)

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

    # -- writes --------------------------------------------------------------------------------------

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
        """A function that stores the checkpoint. The values are encoded here, so later changes by the graph do not
        count."""
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

    # -- deletion ------------------------------------------------------------------------------------

    def delete_thread(self, thread_id: str) -> None:
        self.sf.threads.delete(str(thread_id))

    adelete_thread = _awaited(delete_thread)

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        self.sf.threads.delete_runs([str(run_id) for run_id in run_ids])

    adelete_for_runs = _awaited(delete_for_runs)

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        self.sf.threads.copy(str(source_thread_id), str(target_thread_id))

    acopy_thread = _awaited(copy_thread)

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        if strategy not in ("keep_latest", "delete"):
            raise InvalidInput(f'a strategy is "keep_latest" or "delete", not {strategy!r}')
        for thread in map(str, thread_ids):
            if strategy == "delete":
                self.sf.threads.delete(thread)
            else:
                self.sf.threads.prune(thread, keep=self._needed(thread))

    aprune = _awaited(prune)

    def _needed(self, thread: str) -> dict[str, Sequence[str]]:
        """The ancestors that the newest checkpoint of each namespace needs. They hold parts of a DeltaChannel's
        value."""
        seal = _coding(self.serde)[1]
        needed: dict[str, Sequence[str]] = {}
        for kept in self.sf.threads.newest(thread, seal=seal):
            deltas = json.loads(kept.metadata).get("counters_since_delta_snapshot") or {}
            missing = [name for name in deltas if name not in kept.values]
            needed[kept.namespace] = self.sf.threads.path(thread, kept.id, missing, namespace=kept.namespace)
        return needed

    # -- versions ------------------------------------------------------------------------------------

    def get_next_version(self, current: Any, channel: None) -> Any:
        """The next whole number. A thread that another saver began has versions as text, and keeps that form."""
        if isinstance(current, str):
            return f"{int(current.split('.')[0]) + 1:032}.{0:016}"
        return 1 if current is None else int(current) + 1


# -- private functions -------------------------------------------------------------------------------


def strict(allow: Iterable[type | tuple[str, ...]] = ()) -> JsonPlusSerializer:
    """LangGraph's serializer without pickle. It decodes only to LangGraph's safe types and those in `allow`."""
    return JsonPlusSerializer(pickle_fallback=False, allowed_msgpack_modules=tuple(allow) or None)


def _coding(serde: SerializerProtocol) -> tuple[SerializerProtocol, Seal | None]:
    """The serializer and the cipher. Threads compute the difference first and then encrypt it, because encrypted
    values cannot be compared."""
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
    """Whether a run of a graph continues from the newest checkpoint: its config names a thread and no checkpoint."""
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
