"""Whatever a live agent does to its file between imports, what it finished writing is there once, in order."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

import standfast
from standfast.interchange.transcripts import reading
from tests.transcripts import user

ACTS = st.one_of(
    st.tuples(st.just("write"), st.integers(1, 4)),
    st.tuples(st.just("half"), st.integers(1, 60)),  # a line begun, of so many characters
    st.tuples(st.just("rest"), st.just(0)),  # and finished
    st.tuples(st.just("garbage"), st.just(0)),
    st.tuples(st.just("copy"), st.integers(0, 30)),  # records of before, as a resume copies them
    st.tuples(st.just("import"), st.just(0)),
    st.tuples(st.just("move"), st.just(0)),  # the same bytes, another inode
    st.tuples(st.just("forget"), st.integers(0, 30)),  # rewritten without its first lines
)


class File:
    """The transcript, and the ten lines that say what must come of it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.data = b""
        self.begun = b""
        self.rest = b""
        self.seen: list[str] = []
        """Every uuid that was finished when an import looked, once, in the order of the first look."""
        self.count = 0

    def act(self, act: str, number: int) -> None:
        if act not in ("rest", "import", "move", "forget"):
            self.act("rest", 0)
        if act == "write":
            self.data += b"".join(self.line() for _ in range(number))
        elif act == "half":
            line = self.line()
            self.data, self.rest = self.data + line[:number], line[number:]
        elif act == "rest":
            self.data, self.rest = self.data + self.rest, b""
        elif act == "garbage":
            self.data += b'{"type": "user", "uu\n'
        elif act == "copy":
            self.data += b"".join(self.data.splitlines(keepends=True)[:number])
        elif act == "forget":
            self.data = b"".join(self.data.splitlines(keepends=True)[number:])
        if act == "move":
            self.path.unlink(missing_ok=True)
        self.path.write_bytes(self.data)

    def line(self) -> bytes:
        self.count += 1
        return json.dumps(user(f"u{self.count}", f"word {self.count}")).encode() + b"\n"

    def look(self) -> None:
        for line in self.data.splitlines():
            try:
                uuid = json.loads(line)["uuid"]
            except ValueError:
                continue
            if uuid not in self.seen:
                self.seen.append(uuid)


@settings(max_examples=25, deadline=None)
@given(acts=st.lists(ACTS, max_size=14), size=st.integers(1, 4))
def test_what_was_finished_is_there_once_in_order(acts: list[tuple[str, int]], size: int) -> None:
    """000-9, 002-3: appended, interrupted, copied, moved or rewritten: imported exactly once."""
    before, reading.PIECE_LINES = reading.PIECE_LINES, size
    try:
        with tempfile.TemporaryDirectory() as place:
            _play(Path(place), [*acts, ("rest", 0), ("import", 0), ("import", 0)])
    finally:
        reading.PIECE_LINES = before


def _play(place: Path, acts: list[tuple[str, int]]) -> None:
    file = File(place / "s.jsonl")
    with standfast.open(place / "standfast.db", data_dir=place) as sf:
        for act, number in acts:
            file.act(act, number)
            if act == "import":
                file.look()
                sf.imports.run("claude-code", file.path)
                rows = sf.rows("SELECT native, position FROM message ORDER BY position")
                found = [(row["native"].removeprefix("claude-code:"), row["position"]) for row in rows]
                assert found == [(uuid, n) for n, uuid in enumerate(file.seen, 1)]
