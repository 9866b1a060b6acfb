"""The journal is changed directly in the file, and `verify` must notice it.

Each round appends rows, takes a witness (a digest that is kept outside the store), changes the journal in one way and
verifies it. `verify` names the row, or the witness shows that something changed. The control has no witness: then a
journal that was rewritten as a whole passes.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import standfast
from standfast import Standfast
from standfast.core import digests
from standfast_prove.outcome import Outcome

COLUMNS = ("actor", "data", "time_us", "subject", "type", "summary", "scope", "session_id", "salt", "origin", "db_user")
ACTS = ("edit", "remove", "exchange", "replace", "cut", "rewrite", "digest", "nothing")
STRETCH = 10
ROWS = 25


class Vandal:
    """Another program that changes the journal: as the owner of the file, or of the server's tables."""

    def __init__(self, url: str) -> None:
        self._url = url

    def run(self, *texts: str) -> None:
        if "://" in self._url:
            import psycopg

            with psycopg.connect(self._url) as connection:
                connection.execute("SET search_path = standfast")
                connection.execute("ALTER TABLE event DISABLE TRIGGER USER")
                for text in texts:
                    connection.execute(text.encode())
                connection.execute("ALTER TABLE event ENABLE TRIGGER USER")
            return
        import apsw

        from standfast.db.sqlite.migrate import define_guard

        with closing(apsw.Connection(self._url)) as connection:
            connection.set_busy_timeout(10_000)
            define_guard(connection)
            connection.execute("BEGIN IMMEDIATE")
            for text in texts:
                connection.execute(text).fetchall()
            connection.execute("COMMIT")

    def edit(self, seq: int, column: str) -> None:
        value = {"time_us": "time_us + 1", "salt": _bytes(self._url)}.get(column, f"'edited {column}'")
        self.run(f"UPDATE event SET {column} = {value} WHERE seq = {seq}")

    def remove(self, *seqs: int) -> None:
        self.run(f"DELETE FROM event WHERE seq IN ({', '.join(map(str, seqs))})")

    def exchange(self, one: int, other: int) -> None:
        moves = ((one, -1), (other, one), (-1, other))
        self.run(*(f"UPDATE event SET seq = {new} WHERE seq = {old}" for old, new in moves))

    def rewrite_digests(self, sf: Standfast) -> None:
        """Recompute all digests from the current rows."""
        self.run("DELETE FROM digest")
        digests.extend(sf._store)


def _bytes(url: str) -> str:
    return "decode('00', 'hex')" if "://" in url else "x'00'"


def run(place: Path, *, rounds: int = 40, url: str | None = None, seed: int = 0, witness: bool = True) -> Outcome:
    outcome, chance = Outcome("digests"), random.Random(seed)
    where = url or str(place / "standfast.db")
    with short_stretches(STRETCH):
        for round in range(rounds):
            if url is None:
                where = str(place / f"{round}" / "standfast.db")
            with standfast.open(where, data_dir=place / "data") as sf:
                act = chance.choice(ACTS)
                _round(outcome, sf, Vandal(where), act, chance, witness=witness)
                if url is not None:
                    Vandal(where).run("DELETE FROM digest", "DELETE FROM event")
            if outcome.bad:
                break
    return outcome


@contextmanager
def short_stretches(rows: int) -> Iterator[None]:
    """Add a digest for every few rows. A later digest of this process must not have this length."""
    before = digests.STRETCH, digests.SETTLED_US
    digests.STRETCH, digests.SETTLED_US = rows, -1_000_000_000
    try:
        yield
    finally:
        digests.STRETCH, digests.SETTLED_US = before


def _round(outcome: Outcome, sf: Standfast, vandal: Vandal, act: str, chance: random.Random, *, witness: bool) -> None:
    for n in range(ROWS + chance.randrange(STRETCH)):
        sf.state.set(f"k{n % 3}", n)
    kept = sf.journal.check().witness
    seqs = [row["seq"] for row in sf.rows("SELECT seq FROM event ORDER BY seq")]
    sealed = [seq for seq in seqs if seq <= sf.journal.check().upto_seq]
    named = _done(vandal, sf, act, chance, seqs, sealed)
    found = sf.journal.check(against=kept if witness else None).findings
    outcome.count("rounds")
    outcome.count(act)
    if act == "nothing":
        outcome.refuse([one.text for one in found], "an untouched journal is accused")
        return
    if not found:
        outcome.refuse([act], "was not found")
    missing = [seq for seq in named if seq not in {one.seq for one in found}]
    outcome.refuse(missing, f"{act}: rows that were not named")


def _done(
    vandal: Vandal, sf: Standfast, act: str, chance: random.Random, seqs: list[int], sealed: list[int]
) -> list[int]:
    """Change the journal, and return the rows that `verify` must name."""
    one, other = chance.sample(sealed, 2)
    match act:
        case "edit":
            vandal.edit(one, chance.choice(COLUMNS))
            return [one]
        case "remove":
            vandal.remove(one)
            return [one]
        case "exchange":
            vandal.exchange(one, other)
            return [one, other]
        case "replace":
            vandal.remove(one)
            vandal.run(f"UPDATE event SET seq = {one} WHERE seq = {other}")
            return [one, other]
        case "cut":
            vandal.remove(*seqs[-chance.randint(1, 3) :])
        case "rewrite":
            vandal.edit(one, "actor")
            vandal.rewrite_digests(sf)
        case "digest":
            vandal.run(f"UPDATE digest SET hash = '{'0' * 64}' WHERE n = 1")
    return []
