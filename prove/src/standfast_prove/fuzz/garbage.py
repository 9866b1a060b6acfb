"""Makes the hostile inputs from one seed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random
from typing import Any

WORDS = (
    "", " ", "a", "key", "x" * 300, "../../etc/passwd", "/", "~", "-", "--", "--json", "0", "-1", "1e999", "NaN",
    "null", "true", "[]", "{}", "'; DROP TABLE event; --", "%s%n", "${HOME}", "$(reboot)", "`id`", "a\nb", "a\x00b",
    "\x1b[2J", "\u202egnp.exe", "\ud800", "ﬀ", "İ", "e\u0301", "日本語", "\U0001f4a5" * 40, "tue 03:00", "yesterday",
    "1d2h", "30m", "* * * * *", "@daily", "61 * * * *", "Europe/Berlin", "Nowhere/Land", "2026-02-30",
    "9999-12-31T23:59:59Z", "postgresql://u:p@h:5432/d", "postgresql://[::1", "sqlite:///x", ":memory:",
    "file:x?mode=ro", "tsk_0", "eff_zzzzzz", "4711:h1:9f2c", "h1:", "done", "failed", "open", "any", "main", "credits",
    "*", "?", "[", "git push*", "\\", '"',
)  # fmt: skip

NUMBERS = (0, 1, -1, 2, 7, 255, 2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63) - 1, 10**30)


class Garbage:
    """An endless series of hostile values."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    def text(self) -> str:
        chosen = self.random.random()
        if chosen < 0.6:
            return self.random.choice(WORDS)
        if chosen < 0.8:
            return self.random.choice(WORDS) + self.random.choice(WORDS)
        return "".join(chr(self._point()) for _ in range(self.random.randrange(1, 40)))

    def _point(self) -> int:
        return self.random.choice(
            (self.random.randrange(128), self.random.randrange(0x3000), self.random.randrange(0x110000))
        )

    def number(self) -> int | float:
        floats = (0.5, -0.0, 1e308, float("inf"), float("nan"))
        return self.random.choice(NUMBERS if self.random.random() < 0.8 else floats)

    def value(self, depth: int = 3) -> Any:
        """A value for an argument: mostly plain, sometimes deeply nested, sometimes no JSON at all."""
        chosen = self.random.random()
        if chosen < 0.45:
            return self.text()
        if chosen < 0.65:
            return self.number()
        if chosen < 0.75:
            return self.random.choice((None, True, False))
        if depth and chosen < 0.95:
            count = self.random.randrange(4)
            if chosen < 0.85:
                return [self.value(depth - 1) for _ in range(count)]
            return {self.text(): self.value(depth - 1) for _ in range(count)}
        return self.random.choice((object(), b"\xff\x00", {1: 2}, (1, 2), {"a", "b"}, 1j, Garbage, len, deep(200)))

    def json(self, depth: int = 4) -> Any:
        """A value that JSON can encode, although some readers refuse it."""
        found = self.value(depth)
        try:
            return json.loads(json.dumps(found))
        except (TypeError, ValueError, RecursionError):
            return self.text()

    def mutated(self, data: bytes) -> bytes:
        """Valid bytes that are then flipped, cut, doubled, moved or mixed with random bytes."""
        made = bytearray(data)
        for _ in range(self.random.choice((1, 1, 2, 5))):
            at = self.random.randrange(len(made) + 1)
            to = min(len(made), at + self.random.randrange(1, 60))
            match self.random.randrange(7):
                case 0:
                    made[at : at + 1] = bytes([self.random.randrange(256)])
                case 1:
                    del made[at:to]
                case 2:
                    made[at:at] = made[at:to] * self.random.choice((1, 3, 50))
                case 3:
                    made[at:at] = self.text().encode("utf-8", "surrogatepass")
                case 4:
                    made[at:at] = self.random.choice(
                        (b"[", b"{", b'"', b"\\u", b"null", b"1e999", b"\xff", b"\x00", b"}")
                    )
                case 5:
                    del made[at:]
                case _:
                    made[at:to] = self.random.randbytes(to - at)
        return bytes(made)

    def replaced(self, value: Any) -> Any:
        """A valid document with one invalid value."""
        if isinstance(value, dict) and value and self.random.random() < 0.8:
            name = self.random.choice(list(value))
            match self.random.randrange(4):
                case 0:
                    return {**value, self.text(): self.json()}
                case 1:
                    return {key: one for key, one in value.items() if key != name}
                case _:
                    return {**value, name: self.replaced(value[name])}
        if isinstance(value, list) and value and self.random.random() < 0.8:
            at = self.random.randrange(len(value))
            return [*value[:at], self.replaced(value[at]), *value[at + 1 :]]
        return self.json()

    def words(self, good: Sequence[str]) -> list[str]:
        """A valid command line with random changes."""
        made = list(good)
        for _ in range(self.random.choice((1, 1, 2, 3))):
            at = self.random.randrange(len(made) + 1)
            match self.random.randrange(4):
                case 0:
                    made.insert(at, self.text())
                case 1 if made:
                    made[min(at, len(made) - 1)] = self.text()
                case 2 if len(made) > 1:
                    del made[min(at, len(made) - 1)]
                case _:
                    made.insert(
                        at, self.random.choice(("--json", "--limit", "-1", "--for", "--since", "--no-such-flag"))
                    )
        return [word.replace("\x00", "").encode("utf-8", "replace").decode() for word in made]


def deep(levels: int) -> Any:
    made: Any = []
    for _ in range(levels):
        made = [made]
    return made
