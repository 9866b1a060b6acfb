"""Threads compared with a model: after any put, fork, prune, copy or delete, each checkpoint is read as it was put."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from standfast.record.threads import deltas
from standfast_prove.models.playing import play

ONE = st.binary(max_size=60) | st.builds(lambda n: b"\xdc" + n.to_bytes(2, "big") + b"ab" * n, st.integers(0, 40))


@given(st.lists(ONE, min_size=1, max_size=12), st.sampled_from(["msgpack", "text"]))
@settings(max_examples=150, deadline=None)
def test_pieces_make_again_what_they_were_made_of(values: list[bytes], kind: str) -> None:
    building = deltas.Building()
    before: bytes | None = None
    for value in values:
        piece = deltas.whole(kind, value) if before is None else deltas.between(kind, before, value)
        building.add(deltas.unpacked(piece.packed()))
        assert building.value() == value
        before = value


@given(st.binary(max_size=200), st.binary(max_size=30))
@settings(max_examples=100, deadline=None)
def test_an_append_costs_what_it_appends(old: bytes, more: bytes) -> None:
    piece = deltas.between("text", old, old + more)
    assert (piece.prefix, piece.middle) == (len(old), more)


def test_threads_do_what_a_model_of_them_does(engine_url: str, tmp_path: Path) -> None:
    play("threads", engine_url, tmp_path / "data", examples=4 if engine_url.startswith("postgres") else 15)
