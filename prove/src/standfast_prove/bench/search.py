"""Search over many messages: the time of a query, and the cost of the index."""

from __future__ import annotations

import os
import random
import time
from contextlib import closing

from standfast_prove.bench.measure import Plan, Table

WORDS = [
    f"{a}{b}"
    for a in ("par", "tok", "mer", "bran", "dep", "log", "fla", "que")
    for b in ("ser", "en", "ge", "ch", "loy", "in", "ky", "ue")
]
MESSAGES = 100_000
QUESTIONS = 200


def search(plan: Plan) -> list[Table]:
    """A store of many messages; questions of one to three words, the newest first and by rank."""
    import standfast

    messages = min(MESSAGES, plan.rows)
    place = plan.fresh("search")
    chance = random.Random(7)
    table = Table(
        f"SQLite, search in {messages:,} messages",
        "Messages of 10 to 80 words out of 64 common ones, one rare word in each thousandth. No reference: the "
        "bound is what a person waits for.",
    )
    with closing(standfast.open(os.path.join(place, "standfast.db"), data_dir=place)) as sf:
        _fill(sf, messages, chance)
        before = sum(os.stat(entry).st_size for entry in os.scandir(place) if entry.is_file())
        started = time.perf_counter()
        sf.search_index.catch_up()
        took = time.perf_counter() - started
        after = sum(os.stat(entry).st_size for entry in os.scandir(place) if entry.is_file())
        table.add("indexed", [messages / took], "/s")
        table.add("bytes a message, stored", [before / messages], "")
        table.add("bytes a message, index", [(after - before) / messages], "")
        for label, terms, by_rank in (
            ("common words", 2, False),
            ("common words, by rank", 2, True),
            ("a rare word", 0, False),
        ):
            waits = sorted(
                _wait(sf, chance, terms, by_rank=by_rank) for _ in range(QUESTIONS if plan.rounds > 5 else 40)
            )
            table.add(f"{label}: p50", [waits[len(waits) // 2]], "s")
            table.add(f"{label}: p99", [waits[int(len(waits) * 0.99)]], "s")
    return [table]


def _fill(sf: object, messages: int, chance: random.Random) -> None:
    for start in range(0, messages, 1000):
        with sf.transaction() as tx:  # type: ignore[attr-defined]
            if start == 0:
                tx.sessions.open("k")
            for n in range(start, min(start + 1000, messages)):
                said = chance.choices(WORDS, k=chance.randint(10, 80))
                tx.sessions.say("k", "user", " ".join([f"rare{n}" if n % 1000 == 0 else "usual", *said]))


def _wait(sf: object, chance: random.Random, terms: int, *, by_rank: bool) -> float:
    text = " ".join(chance.sample(WORDS, terms)) if terms else f"rare{chance.randrange(10) * 1000}"
    started = time.perf_counter()
    sf.search(text, by_rank=by_rank, limit=20)  # type: ignore[attr-defined]
    return time.perf_counter() - started
