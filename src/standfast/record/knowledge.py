"""`sf.knowledge`: texts that agents learned, with their sources, found by words and by vectors.

`add` records one text with its author, its time, and the message, artifact or URL that it comes from. The same text
from the same source is one row per agent, so a repeated call adds nothing. A newer text may supersede an older one. A
text past its time is stale: a search still finds it and marks it. `forget` deletes a text, and `undo` restores it.

`search` ranks by words (FTS5, or tsvector on PostgreSQL) and, with a vector, by cosine distance. It joins both rankings
by reciprocal rank. An embedder is a function of the caller and runs outside any transaction.

Each search compares all vectors (recall 1.0), unless PostgreSQL has an HNSW index on them: `index` makes one.
Without sqlite-vec (the extra `vectors`) or pgvector, Python compares them, up to VECTORS_MAX.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cache, partial
from heapq import nlargest
from typing import NamedTuple, TypeAlias

from standfast import crash, modules, serial
from standfast.checkpoint.search_index import words as plain_words
from standfast.clock import Duration, duration_us
from standfast.core import authors, journal, keys, lookup, removed, repositories, user_code
from standfast.core.checks import NAME_MAX, bounded_us, page_size, whole
from standfast.core.receipts import Receipt
from standfast.db.contract import Row, Tx
from standfast.db.sql import Statement, load
from standfast.db.store import Resource, query, transactional
from standfast.errors import InvalidInput
from standfast.ids import Id, new_id, short
from standfast.ledger.decisions.models import checked_tag, checked_text
from standfast.models import Model
from standfast.record import vectors

SQL = load(__name__)

TEXT_MAX = 20_000
SOURCE_MAX = 2_000
TAGS_MAX = 20
WORDS_MAX = 64
"""The words of a query that are used."""
K_MAX = 1_000
VECTORS_MAX = 5_000
"""Vectors that Python compares for one search: about 0.1 s with 384 dimensions."""
RANKED = 50
"""The least number of rows of each ranking that are joined."""
_RANK_OFFSET = 60
"""Reciprocal rank fusion: a row at rank r adds 1 / (60 + r)."""
_FILL = 500

Vector: TypeAlias = "Sequence[float]"
Embedder: TypeAlias = "Callable[[str], Sequence[float]]"


class Knowledge(Model):
    """One text that an agent learned."""

    id: str
    scope: str
    text: str
    agent: str
    """The agent that has this knowledge."""
    author: str
    """The actor that wrote it."""
    author_kind: str
    """`person`, `agent` or `unknown`."""
    source: str | None
    """The id of a message or an artifact, or a URL."""
    tags: tuple[str, ...]
    session_id: str | None
    embedder: str | None
    """The name of the function that made its vector."""
    dimensions: int | None
    created_us: int
    stale_us: int | None
    """The time when the text becomes stale; None if never."""
    superseded_by: str | None
    stale: bool
    """Whether `stale_us` has passed."""
    fresh: bool = False
    """True if this call added the text."""
    score: float | None = None
    """In a search: the sum of 1 / (60 + rank) over the rankings that it is in."""
    found_by: str | None = None
    """In a search: `words`, `vector` or `both`."""
    receipt: Receipt | None = None

    @staticmethod
    def columns() -> tuple[str, ...]:
        return "id", "stale", "agent", "created_us when", "tags", "source", "text"


class Forgotten(Model):
    """The text that `forget` deleted."""

    id: str
    receipt: Receipt | None = None


class Indexed(Model):
    """The index that `index` created."""

    dimensions: int
    vectors: int
    index: str


# Inside the resource class `list` is a method, so annotations there use this name instead of `list[…]`.
KnowledgeList: TypeAlias = "list[Knowledge]"


class KnowledgeStore(Resource):
    """Texts that agents learned: add, search, list, show, forget."""

    __slots__ = ()

    def add(
        self,
        text: str,
        *,
        source: str | None = None,
        agent: str | None = None,
        embedding: Vector | Embedder | None = None,
        tags: Collection[str] = (),
        supersedes: str | None = None,
        fresh_for: Duration | None = None,
    ) -> Knowledge:
        """Add a text that an agent learned, once per repository, agent and source. A repeat returns the first row.

        - `source`: where it comes from: a message, an artifact or a URL.
        - `agent`: the agent that it belongs to.  [default: the caller]
        - `embedding`: its vector, or a function that makes one of a text.
        - `tags`: add this topic; may be given several times.
        - `supersedes`: replace this older text; a search no longer finds it.
        - `fresh_for`: mark it as stale after this time.
        """
        checked_text(text, "text", TEXT_MAX)
        said: Row = {
            "text": text,
            "words": plain_words(text),
            "source": None if source is None else keys.line(source, "source", limit=SOURCE_MAX),
            "agent": self.store.caller.actor if agent is None else keys.checked(agent, "agent", limit=NAME_MAX),
            "tags": _joined(tags),
            "hash": serial.hash([text, source, self.store.caller.keyspace.repository]),
        }
        given = self._embedded(embedding, text)
        fresh_us = None if fresh_for is None else bounded_us(duration_us(fresh_for, "fresh_for"), "fresh_for")
        return self._write(lambda tx: _added(tx, said, given, fresh_us, supersedes))

    def search(
        self,
        query: str,
        *,
        k: int = 10,
        agent: str | None = None,
        tags: Collection[str] = (),
        embedding: Vector | Embedder | None = None,
        superseded: bool = False,
        everywhere: bool = False,
    ) -> KnowledgeList:
        """Find the texts that match a query best, by words and, with an embedding, by meaning.

        - `k`: find at most N texts.
        - `agent`: only list rows of this agent.
        - `tags`: only find texts with this topic.
        - `embedding`: the vector of the query, or a function that makes one of a text.
        - `superseded`: include texts that a newer one replaced.
        """
        if not isinstance(query, str):
            raise InvalidInput(f"a query is text, not {type(query).__name__}")
        whole(k, "k", least=1, most=K_MAX)
        wanted = plain_words(query).split()[:WORDS_MAX]
        given = self._embedded(embedding, query)
        if not wanted and given is None:
            raise InvalidInput("there is no word to look for", 'for example: standfast knowledge search "flaky tests"')
        asked: Row = {"agent": agent, "tags": _pattern(tags), "superseded": int(superseded)}
        if given is not None and self.tx is None:
            self._fill()

        def ask(tx: Tx) -> KnowledgeList:
            filters: Row = {**asked, "scope": tx.caller.scope, **repositories.filtered(tx, everywhere=everywhere)}
            limit = max(RANKED, 2 * k)
            by_words = _by_words(tx, wanted, limit, filters) if wanted else []
            by_vector = _by_vector(tx, given, limit, filters) if given is not None else []
            return [_hit(tx, *found) for found in _joined_ranks(by_words, by_vector)[:k]]

        return self._read(ask)

    @query
    def list(
        self,
        tx: Tx,
        *,
        agent: str | None = None,
        tags: Collection[str] = (),
        superseded: bool = False,
        everywhere: bool = False,
        limit: int = 50,
        after: Id | None = None,
    ) -> KnowledgeList:
        """List what agents learned, the newest first.

        - `agent`: only list rows of this agent.
        - `tags`: only find texts with this topic.
        - `superseded`: include texts that a newer one replaced.
        """
        filters: Row = {"agent": agent, "tags": _pattern(tags), "superseded": int(superseded), "after": after}
        here = repositories.filtered(tx, everywhere=everywhere)
        rows = tx.all(SQL.page, scope=self.scope, limit=page_size(limit), **filters, **here)
        return [_knowledge(tx, row) for row in rows]

    @query
    def show(self, tx: Tx, which: str) -> Knowledge:
        """Show one text with its source, by its id or the end of its id."""
        return _knowledge(tx, _find(tx, which))

    @transactional
    def forget(self, tx: Tx, which: str) -> Forgotten:
        """Delete a text. `standfast undo` brings it back for 30 days."""
        row = tx.one(SQL.image, id=_find(tx, which)["id"])
        crash.point("knowledge.before_forget")
        tx.one(SQL.delete, id=row["id"])
        older = tx.all(SQL.restore, by=row["id"])
        receipt = journal.append(tx, "knowledge.forgotten", row["id"])
        removed.keep(tx, "knowledge", row, None)
        for one in older:
            removed.keep(tx, "knowledge", {**one, "superseded_by": row["id"]}, {**one, "superseded_by": None})
        return Forgotten(row["id"], receipt)

    def index(self) -> Indexed:
        """Make an HNSW index of the vectors on PostgreSQL, so that a search need not compare all of them.

        It needs the extension pgvector. Without the index every search is exact.
        """
        self._fill()
        last = self._read(lambda tx: tx.maybe(SQL.embedded, scope=tx.caller.scope))
        if last is None:
            raise InvalidInput("no text has a vector yet", "add texts in Python: sf.knowledge.add(text, embedding=…)")
        name, count = self.store.engine.index_vectors("knowledge", int(last["dimensions"]))
        return Indexed(int(last["dimensions"]), count, name)

    def _embedded(self, embedding: Vector | Embedder | None, text: str) -> _Embedded | None:
        if embedding is None:
            return None
        if not callable(embedding):
            return _Embedded(None, *_packed(embedding))
        if self.tx is not None:
            raise InvalidInput("an embedder cannot run inside a transaction", "make the vector first: embedding=vector")
        made = user_code.call(embedding, text)
        return _Embedded(getattr(embedding, "__qualname__", type(embedding).__qualname__)[:NAME_MAX], *_packed(made))

    def _fill(self) -> None:
        """Fill `embedding`, which pgvector reads, for rows that came by a restore or a move."""
        while rows := self._read(lambda tx: tx.all(SQL.unfilled, limit=_FILL)):
            filled = [*map(_filled, rows)]
            self._write(partial(_fill, rows=filled))


class _Embedded(NamedTuple):
    """A vector as it is stored, and the name of the function that made it."""

    embedder: str | None
    dimensions: int
    vector: bytes


def _packed(vector: Vector) -> tuple[int, bytes]:
    data = vectors.packed(vector, "the embedding")
    if not any(data[vectors.HEADER_BYTES :]):
        raise InvalidInput("the embedding has only zeros: it has no direction to compare")
    return (len(data) - vectors.HEADER_BYTES) // vectors.FLOAT_BYTES, data


def _fill(tx: Tx, *, rows: Sequence[Row]) -> None:
    tx.many(SQL.fill, rows)


# -- writes ---------------------------------------------------------------------------------------------


def _added(tx: Tx, said: Row, given: _Embedded | None, fresh_us: int | None, supersedes: str | None) -> Knowledge:
    crash.point("knowledge.before_add")
    old = _find(tx, supersedes) if supersedes is not None else None
    vector: Row = _Embedded(None, 0, b"")._asdict() | {"dimensions": None, "vector": None}
    if given is not None:
        _refuse_other(tx, given)
        vector = given._asdict()
    caller, now_us = tx.caller, tx.now_us()
    row = tx.maybe(
        SQL.add,
        id=new_id("knw"),
        scope=caller.scope,
        actor=caller.actor,
        session_id=caller.session_id,
        stale_us=None if fresh_us is None else now_us + fresh_us,
        now_us=now_us,
        **caller.labelled(),
        **said,
        **vector,
    )
    if row is None:
        return _again(tx, said, given)
    if given is not None:
        tx.run(SQL.fill, **_filled({"seq": row["seq"], "vector": given.vector}))
    receipt = journal.append(tx, "knowledge.added", row["id"], summary=said["text"])
    if old is not None and tx.maybe(SQL.supersede, id=old["id"], by=row["id"]) is not None:
        journal.append(tx, "knowledge.superseded", old["id"], summary=f"by {short(row['id'])}")
    return _knowledge(tx, row).replace(fresh=True, receipt=receipt)


def _again(tx: Tx, said: Row, given: _Embedded | None) -> Knowledge:
    """Return the existing row, after storing the vector if the row has none."""
    row = tx.one(SQL.same, scope=tx.caller.scope, agent=said["agent"], hash=said["hash"])
    if given is None or row["dimensions"] is not None:
        return _knowledge(tx, row)
    row = tx.one(SQL.embed, seq=row["seq"], **given._asdict())
    tx.run(SQL.fill, **_filled({"seq": row["seq"], "vector": given.vector}))
    return _knowledge(tx, row).replace(receipt=journal.append(tx, "knowledge.embedded", row["id"]))


def _refuse_other(tx: Tx, given: _Embedded) -> None:
    """Raise InvalidInput for a vector of another embedder: such vectors cannot be compared."""
    last = tx.maybe(SQL.embedded, scope=tx.caller.scope)
    if last is None:
        return
    named = last["embedder"] and given.embedder and last["embedder"] != given.embedder
    if named or last["dimensions"] != given.dimensions:
        was, now = (
            f"{one['dimensions']} dimensions" + (f" by {serial.clean(one['embedder'], 80)}" if one["embedder"] else "")
            for one in (last, given._asdict())
        )
        raise InvalidInput(
            f"this embedding has {now}; the embeddings here have {was}",
            "use one embedder per store, or separate them: open(scope=…)",
        )


def _find(tx: Tx, which: str) -> Row:
    row = lookup.row_of(tx, which, "knw")
    if row is None or row["scope"] != tx.caller.scope:
        raise lookup.unknown(tx, "knowledge", which)
    return row


def _filled(row: Row) -> Row:
    return {"seq": row["seq"], "embedding": vectors.as_array(row["vector"])}


# -- search ---------------------------------------------------------------------------------------------


def _by_words(tx: Tx, wanted: Sequence[str], limit: int, filters: Row) -> list[int]:
    text = " OR ".join(f'"{word}"' for word in wanted) if tx.dialect == "sqlite" else " | ".join(wanted)
    return [row["seq"] for row in tx.all(SQL.by_words, words=text, limit=limit, **filters)]


def _by_vector(tx: Tx, given: _Embedded, limit: int, filters: Row) -> list[int]:
    _refuse_other(tx, given)
    asked: Row = {"dimensions": given.dimensions, **filters}
    if tx.compares_vectors():
        direction = given.vector[vectors.HEADER_BYTES :]
        vector = direction if tx.dialect == "sqlite" else str(list(vectors.direction(given.vector)))
        nearest = _nearest(given.dimensions, of_one=asked["agent"] is not None)
        return [row["seq"] for row in tx.all(nearest, vector=vector, limit=limit, **asked)]
    rows = tx.all(SQL.vectors, limit=VECTORS_MAX + 1, **asked)
    if len(rows) > VECTORS_MAX:
        raise InvalidInput(
            f"there are more than {VECTORS_MAX:,} vectors, and neither sqlite-vec nor pgvector is there",
            f"{modules.install('vectors')}; on PostgreSQL: CREATE EXTENSION vector",
        )
    near = vectors.nearness(vectors.direction(given.vector))
    return [row["seq"] for row in nlargest(limit, rows, key=lambda row: near(row["vector"]))]


@cache
def _nearest(dimensions: int, *, of_one: bool) -> Statement:
    """The statement for this number of dimensions. For one agent it has no OR, so that SQLite uses its index."""
    sized = SQL.by_vector.replaced("vector(16)", f"vector({dimensions})")
    return sized.replaced("(CAST(:agent AS text) IS NULL OR k.agent = :agent)", "k.agent = :agent") if of_one else sized


def _joined_ranks(by_words: Sequence[int], by_vector: Sequence[int]) -> list[tuple[int, float, str]]:
    """Row number, score and `found_by` of each row of the two rankings, the best first."""
    scores: dict[int, float] = {}
    for ranking in (by_words, by_vector):
        for rank, seq in enumerate(ranking, 1):
            scores[seq] = scores.get(seq, 0.0) + 1 / (_RANK_OFFSET + rank)
    in_words, in_vector = set(by_words), set(by_vector)

    def kind(seq: int) -> str:
        return "both" if seq in in_words and seq in in_vector else "words" if seq in in_words else "vector"

    return sorted(((seq, score, kind(seq)) for seq, score in scores.items()), key=lambda one: (-one[1], -one[0]))


def _hit(tx: Tx, seq: int, score: float, kind: str) -> Knowledge:
    return _knowledge(tx, tx.one(SQL.by_seq, seq=seq)).replace(score=score, found_by=kind)


def _knowledge(tx: Tx, row: Row) -> Knowledge:
    author = authors.of(row["actor"])
    return Knowledge.from_row(
        row,
        agent=row["agent"],
        author=author.name,
        author_kind=author.kind,
        tags=tuple(tag for tag in row["tags"].split(",") if tag),
        stale=row["stale_us"] is not None and row["stale_us"] <= tx.now_us(),
    )


# -- tags -----------------------------------------------------------------------------------------------


def _joined(tags: object) -> str:
    """The tags, sorted, each between two commas: `LIKE '%,a,%,c,%'` finds the rows with both."""
    return "".join(f",{tag}," for tag in _sorted(tags))


def _pattern(tags: object) -> str:
    escaped = (tag.replace("!", "!!").replace("%", "!%").replace("_", "!_") for tag in _sorted(tags))
    return "%" + "".join(f",{tag},%" for tag in escaped)


def _sorted(tags: object) -> Iterable[str]:
    # An iterator is refused: the transaction that reads the tags may run twice.
    if isinstance(tags, str) or not isinstance(tags, Collection):
        raise InvalidInput(f"tags are a list of texts, not {type(tags).__name__}", 'tags=["ci"]')
    unique = sorted({checked_tag(tag) for tag in tags})
    if len(unique) > TAGS_MAX:
        raise InvalidInput(f"{len(unique)} tags, and the limit is {TAGS_MAX}")
    return unique
