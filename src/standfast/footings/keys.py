"""Names that callers choose: keys, roles, names of steps and nodes. One rule for all of them."""

from __future__ import annotations

import re

from standfast.errors import InvalidInput

KEY_MAX = 500

_UNFIT = "[\x00-\x1f\x7f\ud800-\udfff]"  # compiled on first use


def checked(text: object, what: str, *, limit: int = KEY_MAX) -> str:
    """One line of 1 to `limit` characters, or InvalidInput that names `what`."""
    if not isinstance(text, str):
        raise InvalidInput(f"{what} is text, not {type(text).__name__}")
    if not text.strip():
        raise InvalidInput(f"{what} is empty", f"give it 1 to {limit} characters")
    if len(text) > limit:
        raise InvalidInput(f"{what} has {len(text):,} characters, and the limit is {limit}", "shorten it, or hash it")
    if found := re.search(_UNFIT, text):
        raise InvalidInput(f"{what} holds the character U+{ord(found[0]):04X}, which cannot be in a name")
    return text
