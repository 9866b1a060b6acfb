"""The rule for names that callers choose: keys, locks, tools, roles, steps and nodes.

A name has no control, direction or zero-width characters: two names that look the same are the same.
"""

from __future__ import annotations

import re

from standfast.errors import InvalidInput

KEY_MAX = 500

# Compiled on first use.
_UNFIT_LINE = "[\x00-\x1f\x7f\ud800-\udfff]"
_UNFIT = (
    "[\x00-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U000e0000-\U000e0fff]"
)


def line(text: object, what: str, *, limit: int = KEY_MAX) -> str:
    """Text of one line, not a name: a title, a subject. It may hold any script and is cleaned when it is printed."""
    return checked(text, what, limit=limit, unfit=_UNFIT_LINE)


def checked(text: object, what: str, *, limit: int = KEY_MAX, unfit: str = _UNFIT) -> str:
    """One line of 1 to `limit` characters, or InvalidInput that names `what`."""
    if not isinstance(text, str):
        raise InvalidInput(f"{what} is text, not {type(text).__name__}")
    if not text.strip():
        raise InvalidInput(f"{what} is empty", f"give it 1 to {limit} characters")
    if len(text) > limit:
        raise InvalidInput(f"{what} has {len(text):,} characters, and the limit is {limit}", "shorten it, or hash it")
    if found := re.search(unfit, text):
        raise InvalidInput(f"{what} holds the character U+{ord(found[0]):04X}, which cannot be in a name")
    return text
