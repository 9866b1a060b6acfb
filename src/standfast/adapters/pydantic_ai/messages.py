"""Messages of pydantic-ai as lines of a conversation, and the store that both classes use."""

from __future__ import annotations

import os
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pydantic_ai.messages import (  # type: ignore[import-not-found,unused-ignore]
    ModelMessage,
    ModelMessagesTypeAdapter,
)

from standfast.adapters.async_support import opened
from standfast.record.chains import Chains
from standfast.record.conversations import Line, line

if TYPE_CHECKING:
    from standfast.aio import AsyncStandfast
    from standfast.handle import Standfast


class Opened:
    """A store of standfast: one that the caller opened, or one that this object opens."""

    def __init__(self, store: Standfast | AsyncStandfast | str | os.PathLike[str] | None = None) -> None:
        self._handle, mine = opened(store)
        self._chains = Chains(self._handle._store)
        self._close = weakref.finalize(self, self._handle.close) if mine else None

    def close(self) -> None:
        """Close the store if this object opened it."""
        if self._close is not None:
            self._close()


def plain(messages: Sequence[ModelMessage]) -> list[Any]:
    plain: list[Any] = ModelMessagesTypeAdapter.dump_python(list(messages), mode="json")
    return plain


def said(message: dict[str, Any], value: Any, redact: bool) -> Line:
    parts = message.get("parts") or []
    kinds = {part.get("part_kind") for part in parts}
    role = "user" if "user-prompt" in kinds else "assistant" if message.get("kind") == "response" else "tool"
    words = [part.get("content") or f"{part.get('tool_name', '')} {part.get('args', '')}" for part in parts]
    return line(value, role=role, summary=" ".join(str(word) for word in words if word), redact=redact)
