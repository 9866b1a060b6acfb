"""`StepStore`: runs, steps and snapshots of pydantic-ai-harness, and its calls as effects."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from pydantic import TypeAdapter
from pydantic_ai.messages import (  # type: ignore[import-not-found,unused-ignore]
    ModelMessage,
    ModelMessagesTypeAdapter,
)

from standfast import hints
from standfast.adapters.pydantic_ai.messages import Opened, plain, said
from standfast.core.event_loop import on_thread
from standfast.errors import Conflict, KeyConflict, NotFound
from standfast.ledger.effects.models import Effect
from standfast.record.conversations import Line

try:
    import pydantic_ai_harness.step_persistence as harness  # type: ignore[import-not-found,unused-ignore]
except ImportError as error:
    raise ImportError("StepStore needs pydantic-ai-harness\npip install pydantic-ai-harness") from error

RUNS = "pydantic-ai.runs"
PAGE = 1000


class StepStore(Opened):
    """Runs, steps, snapshots and calls of pydantic-ai-harness, in a store of standfast.

    A tool call is an effect. A second `started` raises InProgress while the first call runs, EffectInDoubt if its
    process has exited, and Conflict if the call has ended. A failed call has ended too.
    """

    async def register_run(self, record: Any) -> None:
        value = _dumped(record)
        await on_thread(functools.partial(self._handle.state.set, record.run_id, value, namespace=RUNS))

    async def get_run(self, *, run_id: str) -> Any | None:
        try:
            found = await on_thread(functools.partial(self._handle.state.get, run_id, namespace=RUNS))
        except NotFound:
            return None
        return _loaded("RunRecord", found.value)

    async def list_runs(self, *, parent_run_id: str | None = None, conversation_id: str | None = None) -> list[Any]:
        wanted = {"parent_run_id": parent_run_id, "conversation_id": conversation_id}
        asked = {name: value for name, value in wanted.items() if value is not None}
        runs = await on_thread(self._runs)
        found = [_loaded("RunRecord", run) for run in runs if asked.items() <= run.items()]
        return sorted(found, key=lambda run: run.started_at)

    def _runs(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        after = ""
        while page := self._handle.state.list(namespace=RUNS, after=after, limit=PAGE):
            found += [entry.value for entry in page]
            after = page[-1].key
        return found

    async def append_event(self, event: Any) -> None:
        await on_thread(self._append, f"pydantic-ai:{event.run_id}", f"pydantic_ai.{event.kind}", event, _dumped(event))

    async def list_events(self, *, run_id: str) -> list[Any]:
        events = await on_thread(self._events, f"pydantic-ai:{run_id}")
        return [_loaded("StepEvent", event.data) for event in events]

    async def save_snapshot(self, snapshot: Any) -> None:
        await on_thread(self._save, snapshot)

    async def latest_snapshot(self, *, run_id: str, include_interrupted: bool = False) -> Any | None:
        return await on_thread(self._latest, run_id, include_interrupted)

    async def list_snapshots(self, *, run_id: str, include_interrupted: bool = False) -> list[Any]:
        """Every snapshot of a run, the oldest first. pydantic-ai-harness calls it to search conversations."""
        return await on_thread(self._snapshots, run_id, include_interrupted)

    async def record_tool_effect(self, record: Any) -> None:
        await on_thread(self._record, record)

    async def get_tool_effect(self, *, run_id: str, tool_call_id: str) -> Any | None:
        found = await on_thread(self._effect, run_id, tool_call_id)
        return None if found is None else _tool_effect(found)

    async def list_unresolved_tool_effects(self, *, run_id: str) -> list[Any]:
        return [_tool_effect(effect) for effect in await on_thread(self._unresolved, run_id)]

    # -- events and snapshots ----------------------------------------------------------------------------------

    def _append(self, stream: str, type: str, noted: Any, data: dict[str, Any]) -> None:
        """Append one event per key. A retry may have another timestamp in its data; it is not appended again."""
        key = None if noted.idempotency_key is None else f"{stream}:{noted.idempotency_key}"
        try:
            self._handle.events.append(stream, type, data, key=key)
        except KeyConflict:
            return

    def _events(self, stream: str) -> list[Any]:
        found: list[Any] = []
        while page := self._handle.events.read(stream, after=len(found), limit=PAGE):
            found += page
        return found

    def _save(self, snapshot: Any) -> None:
        stream = f"pydantic-ai:{snapshot.run_id}:snapshots"
        last = self._handle.events.list(stream, newest=True, limit=1).events
        before = _sequence(last[-1].data["idempotency_key"]) if last else None
        now = _sequence(snapshot.idempotency_key)
        if now is not None and before is not None and now < before:
            return  # a retry, and a later snapshot was stored meanwhile
        redact = self._chains.store.redact
        ranges = self._chains.keep(_home(snapshot.run_id), _lines(snapshot.messages, redact))
        data = {**_dumped(snapshot, without=("messages",)), "messages": ranges}
        self._append(stream, "pydantic_ai.snapshot", snapshot, data)

    def _latest(self, run_id: str, include_interrupted: bool) -> Any | None:
        found = self._kept(run_id, include_interrupted)
        return self._restored(found[-1]) if found else None

    def _snapshots(self, run_id: str, include_interrupted: bool) -> list[Any]:
        return [self._restored(data) for data in self._kept(run_id, include_interrupted)]

    def _kept(self, run_id: str, include_interrupted: bool) -> list[dict[str, Any]]:
        events = self._events(f"pydantic-ai:{run_id}:snapshots")
        return [event.data for event in events if include_interrupted or event.data["state"] == "complete"]

    def _restored(self, data: dict[str, Any]) -> Any:
        messages = self._chains.kept(_home(data["run_id"]), data["messages"])
        made = _loaded("ContinuableSnapshot", {**data, "messages": []})
        made.messages = ModelMessagesTypeAdapter.validate_python(messages)
        return made

    # -- calls -------------------------------------------------------------------------------------------------

    def _record(self, record: Any) -> None:
        if record.status == "started":
            self._started(record)
            return
        effect = self._effect(record.run_id, record.tool_call_id) or self._started(record)
        self._handle.effects.done(effect.id, _dumped(record), attempt=effect.attempt)

    def _started(self, record: Any) -> Effect:
        home = _home(record.run_id)
        self._chains.keep(home, ())  # creates the session that the effect belongs to
        known = ("run_id", "tool_call_id", "idempotency_key", "effect_summary")
        intent = {name: getattr(record, name) for name in known}
        effect = self._handle.effects.begin(record.tool_name, intent, key=_key(record), session=home)
        if effect.state != "dispatched":
            raise Conflict(
                f"the call {record.tool_call_id!r} of {record.tool_name} has ended already",
                hints.command("effect", "show", effect.id),
            )
        return effect

    def _effect(self, run_id: str, tool_call_id: str) -> Effect | None:
        try:
            return self._handle.effects.get(f"pydantic-ai:{run_id}:{tool_call_id}")
        except NotFound:
            return None

    def _unresolved(self, run_id: str) -> list[Effect]:
        found: list[Effect] = []
        after = None
        while page := self._handle.effects.list(state="dispatched", session=_home(run_id), limit=PAGE, after=after):
            found += page
            after = page[-1].id
        return found[::-1]


# -- plain forms --------------------------------------------------------------------------------


@functools.cache
def _type(name: str) -> TypeAdapter[Any]:
    return TypeAdapter(getattr(harness, name))


def _loaded(name: str, value: Any) -> Any:
    return _type(name).validate_python(value)


def _dumped(noted: Any, *, without: tuple[str, ...] = ()) -> dict[str, Any]:
    dumped: dict[str, Any] = _type(type(noted).__name__).dump_python(noted, mode="json", exclude=set(without))
    return dumped


def _lines(messages: Sequence[ModelMessage], redact: bool) -> list[Line]:
    return [said(message, message, redact) for message in plain(messages)]


def _tool_effect(effect: Effect) -> Any:
    if effect.state == "acknowledged" and isinstance(effect.result, dict):
        return _loaded("ToolEffectRecord", effect.result)
    started = datetime.fromtimestamp((effect.first_dispatched_us or effect.planned_us) / 1_000_000, UTC)
    value = {**effect.intent, "tool_name": effect.tool, "status": "started", "started_at": started}
    return _loaded("ToolEffectRecord", value)


def _key(record: Any) -> str:
    return f"pydantic-ai:{record.run_id}:{record.tool_call_id}"


def _home(run_id: str) -> str:
    return f"pydantic-ai:{run_id}"


def _sequence(key: str | None) -> int | None:
    """The number at the beginning of a key of `StepPersistence`. It grows with each snapshot."""
    number = (key or "").partition(":")[0]
    return int(number) if number.isascii() and number.isdigit() and ":" in (key or "") else None
