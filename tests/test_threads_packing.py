"""How the bytes of a thread are laid down: smaller where that pays, whole again when read."""

from __future__ import annotations

import os
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from standfast.errors import Corrupt, InvalidInput
from standfast.record.threads.sealing import Seal, opened, shut

PLACE = ("value", "segment", 0, "msgpack")
WORDS = b"the agent read the file, and the file was long. " * 40


@given(st.binary(max_size=300), st.integers(1, 200))
def test_what_is_laid_down_is_read_back_and_never_longer_than_a_mark(data: bytes, times: int) -> None:
    """Any bytes are read back unchanged."""
    value = data * times
    stored = shut(None, PLACE, value)
    assert opened(None, PLACE, stored) == value
    assert len(stored) <= len(value) + 1


def test_words_are_made_smaller_and_noise_is_left_as_it_is() -> None:
    assert len(shut(None, PLACE, WORDS)) < len(WORDS) // 4
    noise = os.urandom(2000)
    assert shut(None, PLACE, noise) == b"p" + noise


def test_rows_of_before_are_read() -> None:
    """What was laid down plain, before anything was made smaller, reads as ever."""
    assert opened(None, PLACE, b"p" + WORDS) == WORDS


def test_what_is_sealed_keeps_its_length() -> None:
    """A shorter row would tell of what is in it."""
    seal = Seal("turned", lambda data: data[::-1], lambda data: data[::-1])
    assert len(shut(seal, PLACE, WORDS)) > len(WORDS)
    with pytest.raises(Corrupt):
        opened(seal, PLACE, shut(None, PLACE, WORDS))
    with pytest.raises(InvalidInput):
        opened(None, PLACE, shut(seal, PLACE, WORDS))


def test_a_damaged_row_is_told_and_not_guessed() -> None:
    """A cut row, a row with extra bytes and a row of other bytes each raise Corrupt."""
    stored = shut(None, PLACE, WORDS)
    other = zlib.compress(WORDS)
    for broken in (stored[:-3], stored + b"more", b"z" + other, b"z", b"znonsense"):
        with pytest.raises(Corrupt):
            opened(None, PLACE, broken)
