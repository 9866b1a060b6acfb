"""pydantic-ai: conversations that two writers cannot overwrite, and steps whose calls are effects.

    from standfast.adapters.pydantic_ai import ConversationStore

    store = ConversationStore()                       # or a path, a URL, an open store
    conversation = await store.load("fix-42") or Conversation(conversation_id="fix-42")
    result = await agent.run("fix the parser", conversation=conversation)
    await store.save(result)

`StepStore` is a store for `StepPersistence` of pydantic-ai-harness. Its tool calls are effects: if two processes start
the same call, one is refused. If a process dies during a call, the call is in doubt until a person records its outcome.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from standfast.adapters.async_support import missing

try:
    import pydantic_ai.messages  # type: ignore[import-not-found,unused-ignore]  # noqa: F401
except ImportError as error:
    raise missing("pydantic-ai", "pydantic-ai") from error

if TYPE_CHECKING:
    from standfast.adapters.pydantic_ai.conversations import ConversationStore
    from standfast.adapters.pydantic_ai.steps import StepStore


def __getattr__(name: str) -> Any:
    """Import each class on first use: the harness is optional and may need an older pydantic-ai."""
    if name == "ConversationStore":
        from standfast.adapters.pydantic_ai.conversations import ConversationStore

        return ConversationStore
    if name == "StepStore":
        from standfast.adapters.pydantic_ai.steps import StepStore

        return StepStore
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["ConversationStore", "StepStore"]
