"""OpenAI Agents: a `Session` that several processes may share, and that a crash does not hurt.

    from standfast.adapters.openai_agents import Session

    result = await Runner.run(agent, "fix the parser", session=Session("fix-42"))

It follows the SDK's structural protocol. The items are the messages of the session of that key,
so that `standfast session show fix-42`, the timeline and the search see them, and `sf.session("fix-42")`
brings steps and effects to the same place. `pop_item` and `clear_session` retract: what was said stays
in the record, marked, and is not read any more.

A write that has begun is waited for, also by a task that is cancelled meanwhile.
"""

from __future__ import annotations

import asyncio
import functools
import os
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self, TypeVar

from standfast.adapters.async_support import missing, opened
from standfast.core.event_loop import submitted
from standfast.errors import InvalidInput, StandfastError
from standfast.models import Model
from standfast.record.chat import INTERRUPTED
from standfast.record.conversations import Conversations, Item, Line, line

try:
    from agents.memory.session_settings import (  # type: ignore[import-not-found,unused-ignore]
        SessionSettings,
        coerce_session_settings,
        resolve_session_limit,
    )
    from agents.tool import default_tool_error_function  # type: ignore[import-not-found,unused-ignore]
except ImportError as error:
    raise missing("openai-agents", "agents") from error

if TYPE_CHECKING:
    from standfast.aio import AsyncStandfast
    from standfast.handle import Standfast

T = TypeVar("T")

ANSWERS = {
    "function_call": "function_call_output",
    "computer_call": "computer_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "local_shell_call": "local_shell_call_output",
    "shell_call": "shell_call_output",
    "apply_patch_call": "apply_patch_call_output",
}
"""What answers each kind of call that the model waits for."""
INLINE_MAX = 50
"""More items than this at once are encoded on a worker thread, so that the loop continues."""
_TOLD = ("function_call", "custom_tool_call")
"""The calls whose answer is plain text, so that one can be made up for the model."""


class Orphan(Model):
    """A tool call without an answer: it is unknown whether it was carried out."""

    call_id: str
    type: str
    name: str | None
    arguments: Item


class Session:
    """The conversation `session_id`, in the default store, in the one at a path or URL, or in an open one.

    With `repair=True` the items that you read can always be sent: a call without an answer is followed by one
    that says so, and an answer whose call lies before the limit is left out. Nothing is rewritten.
    """

    session_settings: SessionSettings | None

    def __init__(
        self,
        session_id: str,
        store: Standfast | AsyncStandfast | str | os.PathLike[str] | None = None,
        *,
        session_settings: SessionSettings | dict[str, Any] | None = None,
        agent: str | None = None,
        repair: bool = False,
    ) -> None:
        given = session_settings if session_settings is not None else SessionSettings()
        self.session_id = session_id
        self.session_settings = coerce_session_settings(given)
        self.repair = repair
        self._agent = agent
        self._handle, mine = opened(store)
        self._resource = Conversations(self._handle._store)
        self._close = weakref.finalize(self, self._handle.close) if mine else None

    # -- the protocol --------------------------------------------------------------------------------------

    async def get_items(self, limit: int | None = None) -> list[Any]:
        """The items in order; with a limit, or one in the settings, the newest so many, without reading the rest."""
        last = resolve_session_limit(limit, self.session_settings)
        if last is not None and last < 0:
            last = None  # as the SDK's own sessions have it
        items = await _read(functools.partial(self._resource.items, self.session_id, last=last))
        return repaired(items) if self.repair else items

    async def add_items(self, items: list[Any]) -> None:
        """All of them, one after another with nothing between, durably; or none."""
        if not items:
            return self._usable()
        redact = self._resource.store.redact
        if len(items) > INLINE_MAX:
            lines = await _read(lambda: [_line(item, redact) for item in list(items)])
        else:
            lines = [_line(item, redact) for item in items]
        await self._write(Conversations.add, lines, agent=self._agent)
        return None

    async def pop_item(self) -> Any | None:
        """Take back the newest item and return it; None if there is none. It stays in the record, marked."""
        taken = await self._write(Conversations.take_back)
        return None if taken is None else taken[0]

    async def clear_session(self) -> None:
        """Take back everything."""
        await self._write(Conversations.clear)

    # -- beyond it -----------------------------------------------------------------------------------------

    async def orphans(self) -> list[Orphan]:
        """Calls of tools without an answer, in order: what was interrupted, or is still under way."""
        items = await _read(functools.partial(self._resource.items, self.session_id))
        unanswered = _open(items)
        return [_orphan(item) for item in items if (call := _call(item)) and call in unanswered]

    async def fork(self, new_session_id: str) -> Session:
        """Another session that shares everything up to here. Nothing is copied, and neither changes the other."""
        await _read(functools.partial(self._handle.sessions.fork, self.session_id, new_session_id))
        return type(self)(
            new_session_id,
            self._handle,
            session_settings=self.session_settings,
            agent=self._agent,
            repair=self.repair,
        )

    def close(self) -> None:
        """Give back the store, if it was opened here."""
        if self._close is not None:
            self._close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Session {self.session_id}>"

    async def _write(self, change: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        body: Callable[..., T] = change.body  # type: ignore[attr-defined]  # the function that `transactional` wrapped
        work = functools.partial(body, self._resource)
        return await submitted(self._resource.store, lambda tx: work(tx, self.session_id, *args, **kwargs))

    def _usable(self) -> None:
        if self._resource.store.closed:
            raise InvalidInput("this store is closed", "open it again with standfast.open()")


def error_text(context: Any, error: Exception) -> str:
    """For `function_tool(tool, failure_error_function=error_text)`: the LLM reads why standfast refused a call.

    The SDK's own text is "An error occurred while running the tool. Please try again." Other errors keep it.
    """
    return str(error) if isinstance(error, StandfastError) else str(default_tool_error_function(context, error))


async def _read(query: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(None, query)


# -- items ------------------------------------------------------------------------------------------------


def _line(item: Any, redact: bool) -> Line:
    if not isinstance(item, dict):
        item = item.model_dump(exclude_unset=True) if hasattr(item, "model_dump") else item
    said = item if isinstance(item, dict) else {}
    role = said.get("role") or said.get("type") or "item"
    return line(item, role=str(role), summary=_summary(said), redact=redact)


def _summary(item: dict[str, Any]) -> str:
    """What a person reads of an item: its text, or its call."""
    content = item.get("content") or item.get("output")
    if isinstance(content, list):
        content = " ".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    if isinstance(content, str):
        return content
    return f"{item.get('name', '')} {item.get('arguments', '')}".strip()


def _call(item: Any) -> tuple[str, str] | None:
    """The kind and the id of the call an item is; None for anything else."""
    if not isinstance(item, dict) or item.get("type") not in ANSWERS:
        return None
    call_id = item.get("call_id")
    return (item["type"], call_id) if isinstance(call_id, str) else None


def _answered(items: list[Any]) -> set[tuple[Any, Any]]:
    return {(item.get("type"), item.get("call_id")) for item in items if isinstance(item, dict)}


def _open(items: list[Any]) -> set[tuple[str, str]]:
    answers = _answered(items)
    return {call for item in items if (call := _call(item)) and (ANSWERS[call[0]], call[1]) not in answers}


def _orphan(item: dict[str, Any]) -> Orphan:
    given = item.get("arguments", item.get("input", item.get("action")))
    return Orphan(item["call_id"], item["type"], item.get("name"), given)


def repaired(items: list[Any]) -> list[Any]:
    """The same conversation as a model accepts it: every call answered, every answer with its call."""
    unanswered = _open(items)
    calls = {(ANSWERS[call[0]], call[1]) for item in items if (call := _call(item))}
    answers = set(ANSWERS.values())
    made: list[Any] = []
    for item in items:
        kind = item.get("type") if isinstance(item, dict) else None
        if kind in answers and (kind, item.get("call_id")) not in calls:
            continue  # its call lies before the limit
        call = _call(item)
        if call is not None and call in unanswered:
            if call[0] not in _TOLD:
                continue  # there is no plain answer to make up: without the call nothing is missing
            made += [item, {"type": ANSWERS[call[0]], "call_id": call[1], "output": INTERRUPTED}]
        else:
            made.append(item)
    return made


__all__ = ["INTERRUPTED", "Orphan", "Session", "error_text", "repaired"]
