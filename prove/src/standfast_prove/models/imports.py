"""A live agent writes its file between imports. Every finished record is in the store once, in order."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import count
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

import standfast
from standfast.interchange.transcripts import files
from standfast_prove.models.opening import opened

STEPS = 14

ACTS = st.one_of(
    st.tuples(st.just("write"), st.integers(1, 4)),
    st.tuples(st.just("half"), st.integers(1, 60)),  # an unfinished line of this many characters
    st.tuples(st.just("rest"), st.just(0)),  # and finished
    st.tuples(st.just("garbage"), st.just(0)),
    st.tuples(st.just("copy"), st.integers(0, 30)),  # older records, as a resume copies them
    st.tuples(st.just("import"), st.just(0)),
    st.tuples(st.just("move"), st.just(0)),  # the same bytes, another inode
    st.tuples(st.just("forget"), st.integers(0, 30)),  # the file is rewritten without its first lines
)


class File:
    """The transcript, and a model of ten lines that predicts the import."""

    def __init__(self, path: Path, name: str) -> None:
        self.path = path
        self.name = name
        self.data = b""
        self.begun = b""
        self.rest = b""
        self.seen: list[str] = []
        """The uuid of each line that was complete at an import, once, in the order of the imports."""
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
        record = {
            "type": "user",
            "uuid": f"{self.name}u{self.count}",
            "timestamp": "2026-11-10T03:00:00.000Z",
            "sessionId": self.name,
            "version": "2.1.38",
            "message": {"role": "user", "content": f"word {self.count}"},
        }
        return json.dumps(record).encode() + b"\n"

    def look(self) -> None:
        for line in self.data.splitlines():
            try:
                uuid = json.loads(line)["uuid"]
            except ValueError:
                continue
            if uuid not in self.seen:
                self.seen.append(uuid)


def program_on(url: str, data: Path) -> Callable[..., None]:
    numbers = count(1)

    @given(acts=st.lists(ACTS, max_size=14), size=st.integers(1, 4))
    def imported(acts: list[tuple[str, int]], size: int) -> None:
        number = next(numbers)
        file = File(data / f"transcript-{number}.jsonl", f"p{number}")
        before, files.PIECE_LINES = files.PIECE_LINES, size
        try:
            with opened(url, data, f"imports {number}") as sf:
                _play(sf, file, [*acts, ("rest", 0), ("import", 0), ("import", 0)])
        finally:
            files.PIECE_LINES = before
            file.path.unlink(missing_ok=True)

    return imported


def _play(sf: standfast.Standfast, file: File, acts: list[tuple[str, int]]) -> None:
    for act, number in acts:
        file.act(act, number)
        if act == "import":
            file.look()
            sf.imports.run("claude-code", file.path)
            mine: dict[str, object] = {"mine": f"claude-code:{file.name}u%"}
            rows = sf.rows("SELECT native, position FROM message WHERE native LIKE :mine ORDER BY position", mine)
            found = [(row["native"].removeprefix("claude-code:"), row["position"]) for row in rows]
            assert found == [(uuid, n) for n, uuid in enumerate(file.seen, 1)]
