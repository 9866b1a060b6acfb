"""`ConversationStore`: conversations that two writers cannot overwrite."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from pydantic import TypeAdapter

from standfast.adapters.async_support import missing
from standfast.adapters.pydantic_ai.messages import Opened, plain, said
from standfast.core.event_loop import on_thread
from standfast.errors import NotFound, VersionConflict
from standfast.record.chains import Entry, Link
from standfast.record.conversations import Line

try:
    from pydantic_ai.conversation_store import (  # type: ignore[import-not-found,unused-ignore]
        ConversationConflict,
        ConversationEntry,
        ConversationRecord,
    )
    from pydantic_ai.conversation_store import (
        ConversationStore as Base,
    )
    from pydantic_ai.messages import ModelMessagesTypeAdapter  # type: ignore[import-not-found,unused-ignore]
except ImportError as error:
    raise missing("pydantic-ai", "pydantic-ai 2.66 or later") from error


class ConversationStore(Opened, Base):  # type: ignore[misc,unused-ignore]
    """Conversations in a store of standfast. A deleted one cannot be loaded or listed. Its entries stay stored."""

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        head = await on_thread(self._chains.head, conversation_id)
        return None if head is None else _records().validate_python(head)

    async def read_records(self, *, scope: str | None = None, limit: int | None = None) -> Sequence[ConversationRecord]:
        found: list[ConversationRecord] = []
        after: tuple[int, str] | None = None
        while limit is None or len(found) < limit:
            page, after = await on_thread(self._chains.heads, after)
            records = [_records().validate_python(head) for head in page]
            found += [one for one in records if scope is None or one.scope == scope]
            if after is None:
                break
        found.sort(key=lambda one: one.updated_at, reverse=True)
        return found[:limit]

    async def write_record(
        self,
        record: ConversationRecord,
        *,
        new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
    ) -> None:
        head = _records().dump_python(record, mode="json")
        redact = self._chains.store.redact
        links = [Link(entry.id, entry.parent_id, _line(entry, redact)) for entry in new_entries]
        asked = {"head_id": record.head_id, "revision": expected_revision}
        try:
            await on_thread(functools.partial(self._chains.write, record.conversation_id, head, links, **asked))
        except VersionConflict as error:
            raise ConversationConflict(record.conversation_id) from error

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        try:
            await on_thread(functools.partial(self._chains.delete, conversation_id, revision=expected_revision))
        except VersionConflict as error:
            raise ConversationConflict(conversation_id) from error

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        try:
            return _entries([await on_thread(self._chains.entry, entry_id)])[0]
        except NotFound as error:
            raise KeyError(entry_id) from error

    async def read_history(self, head_id: str | None, *, limit: int | None = None) -> list[ConversationEntry]:
        try:
            return _entries(await on_thread(functools.partial(self._chains.history, head_id, limit=limit)))
        except NotFound as error:
            raise KeyError(head_id) from error


@functools.cache
def _records() -> TypeAdapter[Any]:
    return TypeAdapter(ConversationRecord)


def _line(entry: ConversationEntry, redact: bool) -> Line:
    (message,) = plain([entry.message])
    return said(message, {"parent": entry.parent_id, "kind": entry.kind, "value": message}, redact)


def _entries(entries: Sequence[Entry]) -> list[ConversationEntry]:
    messages = ModelMessagesTypeAdapter.validate_python([entry.value for entry in entries])
    return [
        ConversationEntry(id=entry.id, parent_id=entry.parent_id, message=message)
        for entry, message in zip(entries, messages, strict=True)
    ]
