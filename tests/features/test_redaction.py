"""Redaction: secrets are removed, in time proportional to the length of the text, also of a malicious one."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from standfast.serial.redaction import SHAPES, redacted, suspicious

HEADER, BODY, SIGNATURE = (
    "eyJhbGciOiJIUzI1NiJ9",
    "eyJzdWIiOiIxMjM0NTY3ODkwIn0",
    "dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
)
JWT = f"{HEADER}.{BODY}.{SIGNATURE}"
BEGIN, END = "-----BEGIN RSA PRIVATE KEY-----", "-----END RSA PRIVATE KEY-----"
PREFIXES = sorted({prefix for shape in SHAPES for prefix in shape.prefixes})
HOSTILE = [
    *("J", "_", "-", "A", "e", ".", ":", "=", "eyJ", "eyJ.", ".eyJ", "eyJaaaaaaaaaaaa.", "Bearer ", "SG.a", "a://b:"),
    *(BEGIN, f"{BEGIN} a", "-----BEGIN ", "http://a:b", "aws_secret_access_key ", "aws_secret_access_key= ", "a+.-"),
    *PREFIXES,
    *(f"{prefix}aaaaaaaa" for prefix in PREFIXES),
]


def cost_s(function: Callable[[], object]) -> float:
    """The smallest CPU time of several runs, because other programs on the machine can only add to it."""
    spent = []
    for _ in range(3):
        start = time.process_time()
        function()
        spent.append(time.process_time() - start)
    return min(spent)


@pytest.mark.parametrize("unit", HOSTILE)
def test_four_times_the_text_costs_about_four_times_as_much(unit: str) -> None:
    """000-9: four times the text would cost a quadratic pattern sixteen times the time."""

    def work(length: int, what: str) -> Callable[[], object]:
        text = (unit * (length // len(unit) + 1))[:length] + " "
        marked = f"{what} {text}"  # so that the search reaches this pattern
        return lambda: (redacted(marked), suspicious(marked.encode()))

    every = " ".join(PREFIXES)
    ratios = []
    for _ in range(3):
        ratios.append(cost_s(work(32_000, every)) / max(cost_s(work(8_000, every)), 1e-4))
        if ratios[-1] < 8:
            return
    raise AssertionError(f"four times {unit!r} costs {ratios} times as much")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (JWT, "[redacted:jwt]"),
        (f"token={JWT};", "token=[redacted:jwt];"),
        (f'"a\\n{JWT}"', '"a\\n[redacted:jwt]"'),
        (f"abc{JWT}", "abc[redacted:jwt]"),
        (f"{JWT} and {JWT}", "[redacted:jwt] and [redacted:jwt]"),
        (f"eyJ.{JWT}", "eyJ.[redacted:jwt]"),
        (f"{HEADER}.{BODY}", f"{HEADER}.{BODY}"),
        (f"{BEGIN}\nMIIE\n{END}", "[redacted:private-key]"),
        (f"{BEGIN}\\nMII-E\\n{END}x", "[redacted:private-key]x"),
        (f"{BEGIN} cut short {BEGIN} whole {END}", "[redacted:private-key][redacted:private-key]"),
        (f'{BEGIN} open"', f'{BEGIN} open"'),
    ],
)
def test_keys_and_tokens_are_removed_anywhere_in_a_text(text: str, expected: str) -> None:
    """003-24: secrets in a pasted text are not stored."""
    assert redacted(text) == expected
    if text != expected:
        assert suspicious(text.encode())


_PIECES = st.sampled_from([HEADER, BODY, SIGNATURE, "eyJ", ".", ".eyJ", "a", "-", " ", "\n", "eyJabcdefghij", "\\n"])


@given(st.lists(_PIECES, max_size=12).map("".join))
def test_a_token_is_found_exactly_where_it_was_found_before_the_pattern_was_linear(text: str) -> None:
    """003-24: the simple pattern, which is slower, defines a token."""
    plain = re.sub(r"eyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{10,}", "[redacted:jwt]", text, flags=re.ASCII)
    assert redacted(text) == plain
    assert plain == text or suspicious(text.encode())
