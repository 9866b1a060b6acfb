"""The bytes of a thread's rows: plain, or encrypted by the caller's cipher."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from standfast.errors import Corrupt, InvalidInput
from standfast.record.threads.encryption import Seal, opened, shut

PLACE = ("value", "segment", 0, "msgpack")
WORDS = b"the agent read the file, and the file was long. " * 40


@given(st.binary(max_size=300))
def test_a_row_is_read_back_as_it_was_written(data: bytes) -> None:
    """Any bytes are read back unchanged."""
    assert opened(None, PLACE, shut(None, PLACE, data)) == data


def test_a_plain_and_an_encrypted_row_are_not_mistaken_for_each_other() -> None:
    seal = Seal("turned", lambda data: data[::-1], lambda data: data[::-1])
    assert opened(seal, PLACE, shut(seal, PLACE, WORDS)) == WORDS
    with pytest.raises(Corrupt):
        opened(seal, PLACE, shut(None, PLACE, WORDS))
    with pytest.raises(InvalidInput):
        opened(None, PLACE, shut(seal, PLACE, WORDS))
