"""Imports: the import of a transcript into the store, against only decoding each of its lines.

The transcript is generated in the proportions of real ones. A response has several records. The output of each tool is
there twice and makes half of all bytes. There are progress records, and a record has 2 to 3 KB. The import searches for
secrets, decodes the records, writes messages, calls and usage with their indexes, compresses and stores the raw
records, and syncs each batch.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from standfast_prove.bench.measure import Plan, Table, at_most, interleaved, ratios

MESSAGES_MAX = 100_000
PER_TURN = 5
"""Messages in one turn: a prompt, an answer, a thought, a call, its result."""
TURNS_PER_FILE = 400
TEXT = (
    "the parser fails on an empty line because the loop never checks for it so we should return early and add a test "
    'for this case in tests/test_parser.py\n def parse(self, text: str): """Lines.""" \n return '
    '[line.strip("\\t ") for line in text.splitlines()] \n assert parse("a\\n\\nb") == ["a", "", "b"] # → 2\n FAILED\n'
)


def imports(plan: Plan) -> list[Table]:
    """The same files are decoded and imported into a new store, in turns. Then 100,000 messages are imported once."""
    turns = max(80, min(plan.rows // 25, 20_000)) // PER_TURN
    files = list(_transcripts(plan.fresh("transcripts"), turns))
    contestants: dict[str, Callable[[], Spent]] = {
        "decode": lambda: _decode(files),
        "import": lambda: _import(plan.fresh("store"), files),
    }
    interleaved(1, contestants)
    spent = interleaved(plan.rounds, contestants, patience_s=plan.patience_s)
    decoded, imported = spent["decode"], spent["import"]
    size = sum(file.stat().st_size for file in files)
    table = Table(
        "SQLite, a transcript imported",
        f"{turns * PER_TURN:,} messages in {len(files)} files, {size / 1e6:,.1f} MB; a fresh store each round.",
    )
    table.add("json.loads of each line", [one.wall_s for one in decoded], "s")
    table.add("import", [one.wall_s for one in imported], "s")
    walls = ratios([one.wall_s for one in imported], [one.wall_s for one in decoded])
    table.add("import / json.loads", walls, "x", at_most(6))
    work = ratios([one.cpu_s for one in imported], [one.cpu_s for one in decoded])
    table.add("the same in CPU time, of all threads", work, "x")
    return [table, _many(plan)]


def _many(plan: Plan) -> Table:
    """Time and size with as many messages as one user writes in two years."""
    count = max(100, min(plan.rows // 50, MESSAGES_MAX))
    files = list(_transcripts(plan.fresh("many"), count // PER_TURN))
    place = plan.fresh("many-store")
    spent_s = _import(place, files).wall_s
    again_s = _import(place, files).wall_s
    table = Table(
        f"SQLite, {count:,} messages imported", "Once: the rate is for the whole, the sizes are of the files."
    )
    table.add("messages in a second", [count / spent_s], "/s")
    table.add("transcripts", [sum(file.stat().st_size for file in files) / 1e6], "MB")
    table.add("store", [(place / "standfast.db").stat().st_size / 1e6], "MB")
    table.add("the same import again", [again_s], "s")
    return table


class Spent(NamedTuple):
    """The time and size of one measurement."""

    wall_s: float
    cpu_s: float


def _since(wall_s: float, cpu_s: float) -> Spent:
    return Spent(time.monotonic() - wall_s, time.process_time() - cpu_s)


def _decode(files: list[Path]) -> Spent:
    start = time.monotonic(), time.process_time()
    for file in files:
        with file.open("rb") as lines:
            for line in lines:
                json.loads(line)
    return _since(*start)


def _import(place: Path, files: list[Path]) -> Spent:
    import standfast

    with standfast.open(place / "standfast.db", data_dir=place) as store:
        start = time.monotonic(), time.process_time()
        store.imports.run("claude-code", files[0].parent)
        return _since(*start)


def _transcripts(place: Path, turns: int) -> Iterator[Path]:
    chance = random.Random(turns)
    made = 0
    while made < turns:
        path = place / f"{made:08d}-0000-4000-8000-000000000000.jsonl"
        with path.open("w") as file:
            for _ in range(min(TURNS_PER_FILE, turns - made)):
                for record in _turn(path.stem, made, chance):
                    file.write(json.dumps(record, separators=(",", ":")) + os.linesep)
                made += 1
        yield path


def _turn(session: str, n: int, chance: random.Random) -> Iterator[dict[str, Any]]:
    def words(count: int) -> str:
        return " ".join(chance.choices(TEXT.split(" "), k=count))

    def record(kind: str, part: str, **more: Any) -> dict[str, Any]:
        moment = f"2026-{1 + n // 40_000 % 12:02d}-{1 + n // 1440 % 28:02d}T{n // 60 % 24:02d}:{n % 60:02d}:00.000Z"
        common = {"parentUuid": f"{n:08d}-aaaa", "isSidechain": False, "userType": "external", "cwd": "/nowhere/at/all"}
        common |= {"sessionId": session, "version": "2.1.38", "gitBranch": "main", "type": kind, "timestamp": moment}
        return common | {"uuid": f"{n:08d}-{part}-4000-8000-000000000000"} | more

    usage = {"input_tokens": 4, "cache_read_input_tokens": 31_337, "cache_creation_input_tokens": 512}
    usage["output_tokens"] = chance.randrange(1, 500)

    def answer(part: str, *blocks: dict[str, Any]) -> dict[str, Any]:
        message = {"id": f"msg_{n}", "model": "opus", "role": "assistant", "content": [*blocks], "usage": usage}
        return record("assistant", part, message=message, requestId=f"req_{n}")

    signature = "".join(chance.choices("ABCDEFGHabcdefgh0123456789+/", k=600))
    output = words(800)
    yield record("user", "aaaa", message={"role": "user", "content": words(40)})
    yield answer("bbbb", {"type": "thinking", "thinking": words(60), "signature": signature})
    yield answer("cccc", {"type": "text", "text": words(90)})
    yield answer("dddd", {"type": "tool_use", "id": f"toolu_{n}", "name": "Bash", "input": {"command": words(12)}})
    yield record("progress", "eeee", data={"type": "bash_progress", "output": words(60)}, toolUseID=f"toolu_{n}")
    result = {"type": "tool_result", "tool_use_id": f"toolu_{n}", "content": output, "is_error": False}
    acked = {"stdout": output, "stderr": "", "interrupted": False}
    yield record("user", "ffff", message={"role": "user", "content": [result]}, toolUseResult=acked)
