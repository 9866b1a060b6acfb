"""Ids: made in Python, sortable by time, with a prefix that names their type.

An id is a three-letter prefix, `_`, and the 128 bits of a UUIDv7 as 26 lower-case Crockford base-32 characters:
`eff_06f8w1x2…`. Each new id of a process is greater than all its earlier ids, on all threads and also if the clock
is set back. A forked child never repeats an id of its parent or a sibling. The last six characters are 30 random
bits: enough for a person to name a row.

Prefixes are listed here and nowhere else: a new noun adds its line to PREFIXES.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from threading import Lock
from typing import Final, TypeAlias

from standfast.errors import InvalidInput

PREFIXES: Final[dict[str, str]] = {
    "agt": "agent",
    "apr": "approval",
    "art": "artifact",
    "bud": "budget",
    "chk": "checkpoint",
    "cpy": "copy",
    "crd": "credit_entry",
    "ddl": "dead_letter",
    "dec": "decision",
    "eff": "effect",
    "evt": "event",
    "gat": "gate",
    "hld": "hold",
    "imp": "import_source",
    "knw": "knowledge",
    "lea": "lease",
    "lop": "loop",
    "mal": "mail",
    "mat": "mail_attempt",
    "msg": "message",
    "nod": "node",
    "rem": "removed",
    "run": "run",
    "ses": "session",
    "sta": "state",
    "sto": "store",
    "stp": "step",
    "tcl": "tool_call",
    "thr": "thread",
    "tno": "task_note",
    "tsk": "task",
    "usg": "usage",
    "whk": "webhook_event",
}

ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford: no i, l, o, u
SHORT_CHARS: Final = 6
Id: TypeAlias = str
"""The type of a parameter that takes a complete id. The command line refuses any other value."""

_BODY_CHARS = 26
_PREFIX_CHARS = 4  # with the underscore
_COUNT_BITS = 42
_MS_MAX = (1 << 48) - 1
_SHIFTS = range(120, -1, -10)
_PAIRS = [high + low for high in ALPHABET for low in ALPHABET]
_LETTERS = frozenset(ALPHABET)
_TO_PYTHON_BASE32 = str.maketrans(ALPHABET, "0123456789abcdefghijklmnopqrstuv")


class IdMaker:
    """Makes ids. Each id is greater than all earlier ones. One per process is enough: `new_id` is the shared one.

    An id is the millisecond (48 bits), a count that starts at a random value (42 bits) and 32 random bits. Version and
    variant of a UUIDv7 take the other 6. `entropy(n)` returns n random bytes; a simulation passes a seeded source.
    """

    __slots__ = ("_count", "_entropy", "_lock", "_ms")

    def __init__(self, entropy: Callable[[int], bytes] = os.urandom) -> None:
        self._entropy = entropy
        self._ms = 0
        self._start()

    def _start(self) -> None:
        self._lock = Lock()
        self._count = int.from_bytes(self._entropy(8)) >> 64 - _COUNT_BITS + 1

    def new_id(self, prefix: str, *, now_us: int | None = None) -> str:
        """A new id, greater than every id this maker has made.

        Raises InvalidInput for a prefix that is not in PREFIXES.
        """
        if prefix not in PREFIXES:
            raise InvalidInput(f"id prefix {prefix!r} is unknown", f"one of: {', '.join(PREFIXES)}")
        ms = time.time_ns() // 1_000_000 if now_us is None else now_us // 1000
        if ms > _MS_MAX:
            raise InvalidInput(f"now_us {ms * 1000} is past the year 10889, the last an id can hold")
        chance = int.from_bytes(self._entropy(4))
        with self._lock:
            self._ms = ms = max(self._ms, ms)
            self._count = count = self._count + 1
            if count >> _COUNT_BITS:  # the count is used up: continue in the next millisecond
                self._ms = ms = ms + 1
                self._count = count = 0
        number = ms << 80 | 0x7 << 76 | count >> 30 << 64 | 0b10 << 62 | (count & 0x3FFFFFFF) << 32 | chance
        return f"{prefix}_{''.join([_PAIRS[number >> shift & 1023] for shift in _SHIFTS])}"

    def forked(self) -> None:
        """Start new ids in a child process, greater than all that the parent made before the fork.

        The lock is replaced: another thread of the parent may have held it at the fork.
        """
        self._ms += 1
        self._start()


_MAKER = IdMaker()
os.register_at_fork(after_in_child=_MAKER.forked)

new_id = _MAKER.new_id


def is_id(text: object) -> bool:
    """Whether `text` is a whole id with a known prefix."""
    return (
        isinstance(text, str)
        and len(text) == _PREFIX_CHARS + _BODY_CHARS
        and text[3] == "_"
        and text[:3] in PREFIXES
        and text[4] <= "7"  # 26 characters hold 130 bits, an id 128
        and _LETTERS.issuperset(text[4:])
    )


def prefix_of(id: str) -> str:
    """The three letters for the type of `id`. Raises InvalidInput if it is not an id."""
    return _checked(id)[:3]


def short(id: str) -> str:
    """The last six characters, as tables print it."""
    return id[-SHORT_CHARS:]


def time_us(id: str) -> int:
    """When the id was made, to the millisecond; later than that if the clock went back."""
    return int(_checked(id)[4:14].translate(_TO_PYTHON_BASE32), 32) * 1000


def like_suffix(text: str, *, prefix: str | None = None) -> str | None:
    """The end of an id that a person typed, in lower case. None if it has fewer than six characters.

    `EFF_9K2M4X` and `9k2m4x` both give `9k2m4x`. With `prefix`, a text that names another
    noun gives None.
    """
    suffix = text.strip().lower()
    if suffix[3:4] == "_":
        if suffix[:3] not in PREFIXES or (prefix is not None and suffix[:3] != prefix):
            return None
        suffix = suffix[4:]
    if SHORT_CHARS <= len(suffix) <= _BODY_CHARS and _LETTERS.issuperset(suffix):
        return suffix
    return None


def _checked(id: str) -> str:
    if not is_id(id):
        raise InvalidInput(f"{str(id)[:40]!r} is not an id", "an id looks like eff_ and 26 letters and digits")
    return id
