"""The answers of tools, and calls with a key.

A write may have a key. The first call with a key runs, and its transaction stores the answer for a day. The same call
with the same key returns the stored answer and does nothing. Another call with that key is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from standfast import serial
from standfast.core.authors import Author
from standfast.errors import KeyConflict, NotFound
from standfast.handle import Resources, Standfast

NAMESPACE = "mcp.answers"
TEXT_MAX = 10_000

Answer = dict[str, Any]


def once(sf: Standfast, key: str | None, tool: str, asked: Answer, do: Callable[[Resources], Answer]) -> Answer:
    """Run `do` once per key. Later calls with the same arguments return the stored answer."""
    if key is None:
        return do(sf)
    hash = serial.hash([tool, asked], what="arguments")
    with sf.transaction() as tx:
        try:
            kept: Any = tx.state.get(key, namespace=NAMESPACE).value
        except NotFound:
            answer = do(tx)
            tx.state.set(key, {"hash": hash, "answer": answer}, namespace=NAMESPACE, for_="1d")
            return answer
    if kept["hash"] != hash:
        raise KeyConflict(f"the key {key!r} was used for another call", "use another key for this call")
    replayed: Answer = {**kept["answer"], "replayed": True}
    return replayed


def plain(noun: Any, *names: str) -> Answer:
    """The named fields of a noun that are set, each text as one clean line."""
    return {name: _value(getattr(noun, name)) for name in names if getattr(noun, name) not in (None, "", ())}


def written_by(author: Author) -> Answer:
    """The author of a text, and whether a person wrote it."""
    return {"author": author.name or None, "author_kind": author.kind}


def _value(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_value(part) for part in value]
    return serial.clean(value, TEXT_MAX) if isinstance(value, str) else value
