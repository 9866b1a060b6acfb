"""Ids: made in Python, sortable by time, and each says what it names.

An id is a three-letter prefix, `_`, and the 128 bits of a UUIDv7 as 26 lower-case Crockford
base-32 characters: `eff_06f8w1x2…`. Ids of one process only grow, whatever the clock
does, from any number of threads; a forked child never repeats what its parent or a sibling
makes. The last six characters are 30 random bits: enough for a person to name a row.

Prefixes are listed here and nowhere else: a new noun adds its line to PREFIXES.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from itertools import count, islice
from threading import Lock
from typing import Final, TypeAlias

from standfast.errors import InvalidInput

PREFIXES: Final[dict[str, str]] = {
    "agt": "agent",
    "apr": "approval",
    "art": "artifact",
    "chk": "checkpoint",
    "crd": "credit_entry",
    "ddl": "dead_letter",
    "dec": "decision",
    "eff": "effect",
    "evt": "event",
    "gat": "gate",
    "imp": "import_source",
    "lea": "lease",
    "lop": "loop",
    "mal": "mail",
    "mat": "mail_attempt",
    "msg": "message",
    "nod": "node",
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
"""A parameter that takes an id in full. The command line refuses anything else."""

_BODY_CHARS = 26
_PREFIX_CHARS = 4  # with the underscore
_COUNT_BITS = 42  # with 32 of chance behind them, what UUIDv7 leaves beside time, version and variant
_MS_MAX = (1 << 48) - 1
_LOW_CHARS = 12
_LOW = (1 << 5 * _LOW_CHARS) - 1  # what they hold
_SAVED_BYTES = 1024
_PAIRS = [high + low for high in ALPHABET for low in ALPHABET]
_LETTERS = frozenset(ALPHABET)
_TO_PYTHON_BASE32 = str.maketrans(ALPHABET, "0123456789abcdefghijklmnopqrstuv")


class IdMaker:
    """Makes ids that only grow. One per process is enough: `new_id` is the shared one.

    An id is the millisecond, a count that began somewhere at random, and 32 random bits. Threads share the
    millisecond, which never goes back, and the count; only a new millisecond takes a lock. A thread that loses the
    processor while it holds a lock makes all others queue for it, and such a queue does not dissolve by itself.

    `entropy(n)` gives n random bytes; a simulation passes a seeded source and gets the same
    ids every time.
    """

    __slots__ = ("_count", "_entropy", "_heads", "_lock", "_ms", "_saved")

    def __init__(self, entropy: Callable[[int], bytes] = os.urandom) -> None:
        self._entropy = entropy
        self._ms = 0
        self._start()

    def _start(self) -> None:
        self._lock = Lock()
        self._saved: list[int] = []
        self._heads = (-1, -1), "", ""
        self._count = count((self._random() << 32 | self._random()) >> 64 - _COUNT_BITS + 1)

    def new_id(self, prefix: str, *, now_us: int | None = None) -> str:
        """A new id, greater than every id this maker has made.

        Raises InvalidInput for a prefix that is not in PREFIXES.
        """
        if prefix not in PREFIXES:
            raise InvalidInput(f"id prefix {prefix!r} is unknown", f"one of: {', '.join(PREFIXES)}")
        ms = time.time_ns() // 1_000_000 if now_us is None else now_us // 1000
        if ms != self._ms:
            ms = self._at_least(ms)
        place = next(self._count)
        try:
            chance = self._saved.pop()
        except IndexError:
            chance = self._random()
        span = ms >> 10, place >> 8
        known, time_head, place_head = self._heads
        if span != known:
            whole = _body(ms, place << 32)
            time_head, place_head = whole[:8], whole[10:18]
            self._heads = span, time_head, place_head
        low = (place & 0xFF) << 32 | chance
        return (
            f"{prefix}_{time_head}{_PAIRS[ms & 1023]}{place_head}"
            f"{_PAIRS[low >> 30]}{_PAIRS[low >> 20 & 1023]}{_PAIRS[low >> 10 & 1023]}{_PAIRS[low & 1023]}"
        )

    def several(self, prefix: str, number: int) -> list[str]:
        """As many new ids, each greater than the one before: for what comes in bulk, at a quarter of the cost."""
        ms = self._at_least(time.time_ns() // 1_000_000)
        places = list(islice(self._count, number))
        tails = [n << 32 | low for n, low in zip(places, memoryview(self._entropy(4 * number)).cast("I"), strict=True)]
        if not tails or tails[0] >> 5 * _LOW_CHARS != tails[-1] >> 5 * _LOW_CHARS:
            return [f"{prefix}_{_body(ms, tail)}" for tail in tails]
        head = f"{prefix}_{_body(ms, tails[0])[:-_LOW_CHARS]}"  # the same for all of them
        return [head + _low(tail & _LOW) for tail in tails]

    def forked(self) -> None:
        """Start a new line of ids in a child process, above all that the parent made before.

        The lock is replaced: another thread of the parent may have held it at the fork.
        """
        self._ms += 1
        self._start()

    def _at_least(self, ms: int) -> int:
        """The millisecond of the next id: this one, or that of the last if the clock went back."""
        if ms > _MS_MAX:
            raise InvalidInput(f"now_us {ms * 1000} is past the year 10889, the last an id can hold")
        with self._lock:
            self._ms = max(self._ms, ms)
            return self._ms

    def _random(self) -> int:
        """32 random bits, of some that were asked for at once: who asks the system lets another thread run first."""
        while True:
            try:
                return self._saved.pop()
            except IndexError:
                self._saved = list(memoryview(self._entropy(_SAVED_BYTES)).cast("I"))


def _body(ms: int, tail: int) -> str:
    # Unrolled, and in numbers of two digits of Python's own: every record makes one.
    pairs = _PAIRS
    middle = (0x7 << 36 | 0b10 << 22 | tail >> 40 & 0x3FFFFF) + (tail >> 62 << 24)  # a full count carries, and grows on
    low = tail & 0xFFFFFFFFFF
    return (
        f"{pairs[ms >> 40]}{pairs[ms >> 30 & 1023]}{pairs[ms >> 20 & 1023]}{pairs[ms >> 10 & 1023]}{pairs[ms & 1023]}"
        f"{pairs[middle >> 30]}{pairs[middle >> 20 & 1023]}{pairs[middle >> 10 & 1023]}{pairs[middle & 1023]}"
        f"{pairs[low >> 30]}{pairs[low >> 20 & 1023]}{pairs[low >> 10 & 1023]}{pairs[low & 1023]}"
    )


def _low(number: int) -> str:
    pairs = _PAIRS
    return (
        f"{pairs[number >> 50]}{pairs[number >> 40 & 1023]}{pairs[number >> 30 & 1023]}{pairs[number >> 20 & 1023]}"
        f"{pairs[number >> 10 & 1023]}{pairs[number & 1023]}"
    )


_MAKER = IdMaker()
os.register_at_fork(after_in_child=_MAKER.forked)

new_id = _MAKER.new_id
several = _MAKER.several


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
    """The three letters that say what `id` names. Raises InvalidInput if it is not an id."""
    return _checked(id)[:3]


def short(id: str) -> str:
    """The last six characters, as tables print it."""
    return id[-SHORT_CHARS:]


def time_us(id: str) -> int:
    """When the id was made, to the millisecond; later than that if the clock went back."""
    return int(_checked(id)[4:14].translate(_TO_PYTHON_BASE32), 32) * 1000


def like_suffix(text: str, *, prefix: str | None = None) -> str | None:
    """What a person typed, as the end of an id: six or more characters, lower case; else None.

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
