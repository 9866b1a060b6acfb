"""OpenAI Agents: a `Session` that several processes may share and that survives a crash.

    from standfast.adapters.openai_agents import Session

    result = await Runner.run(agent, "fix the parser", session=Session("fix-42"))

It implements the SDK's session protocol. The items are the messages of the standfast session with that key, so
`standfast session show fix-42`, the timeline and the search show them. `sf.session("fix-42")` adds steps and effects to
the same session. `pop_item` and `clear_session` retract items: they stay stored and are not returned any more.

A cancelled task still waits for a write that has begun.
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
"""The type of the output item of each type of call."""
INLINE_MAX = 50
"""More items than this in one call are encoded on a worker thread, so that they do not block the event loop."""
_PLAIN_OUTPUT = ("function_call", "custom_tool_call")
"""Calls whose output is plain text, so that `repaired` can add one."""


class Orphan(Model):
    """A tool call without an output. It is unknown whether the tool ran."""

    call_id: str
    type: str
    name: str | None
    arguments: Item


class Session:
    """The conversation `session_id` in the default store, in the store at a path or URL, or in an open store.

    With `repair=True` the model accepts what `get_items` returns: a call without an output gets one that says so, and
    an output whose call is before the limit is left out. The stored items do not change.
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
        """The items in order. With a limit, or one in the settings, only the newest are read and returned."""
        last = resolve_session_limit(limit, self.session_settings)
        if last is not None and last < 0:
            last = None  # the SDK's own sessions do the same
        items = await _read(functools.partial(self._resource.items, self.session_id, last=last))
        return repaired(items) if self.repair else items

    async def add_items(self, items: list[Any]) -> None:
        """Add all items with no other item between them, or none. They are on disk when this returns."""
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
        """Retract the newest item and return it; None if there is none. It stays stored."""
        taken = await self._write(Conversations.take_back)
        return None if taken is None else taken[0]

    async def clear_session(self) -> None:
        """Retract all items. They stay stored."""
        await self._write(Conversations.clear)

    # -- methods outside the protocol ----------------------------------------------------------------------

    async def orphans(self) -> list[Orphan]:
        """Tool calls without an output, in order: they were interrupted or are still running."""
        items = await _read(functools.partial(self._resource.items, self.session_id))
        unanswered = _open(items)
        return [_orphan(item) for item in items if (call := _call(item)) and call in unanswered]

    async def fork(self, new_session_id: str) -> Session:
        """Another session that shares all items so far. Nothing is copied, and later changes are separate."""
        await _read(functools.partial(self._handle.sessions.fork, self.session_id, new_session_id))
        return type(self)(
            new_session_id,
            self._handle,
            session_settings=self.session_settings,
            agent=self._agent,
            repair=self.repair,
        )

    def close(self) -> None:
        """Close the store if this session opened it."""
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
    """For `function_tool(tool, failure_error_function=error_text)`: shows the LLM why standfast refused a call.

    For other errors it returns the SDK's own text: "An error occurred while running the tool. Please try again."
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
    """The text of an item, or its call, for people."""
    content = item.get("content") or item.get("output")
    if isinstance(content, list):
        content = " ".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    if isinstance(content, str):
        return content
    return f"{item.get('name', '')} {item.get('arguments', '')}".strip()


def _call(item: Any) -> tuple[str, str] | None:
    """The type and the id of a call; None if the item is no call."""
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
    """The conversation in a form that a model accepts: every call has an output, and every output has a call."""
    unanswered = _open(items)
    calls = {(ANSWERS[call[0]], call[1]) for item in items if (call := _call(item))}
    answers = set(ANSWERS.values())
    made: list[Any] = []
    for item in items:
        kind = item.get("type") if isinstance(item, dict) else None
        if kind in answers and (kind, item.get("call_id")) not in calls:
            continue  # the call of this output is before the limit
        call = _call(item)
        if call is not None and call in unanswered:
            if call[0] not in _PLAIN_OUTPUT:
                continue  # no output can be added, so leave out the call
            made += [item, {"type": ANSWERS[call[0]], "call_id": call[1], "output": INTERRUPTED}]
        else:
            made.append(item)
    return made


__all__ = ["INTERRUPTED", "Orphan", "Session", "error_text", "repaired"]
