"""The index of words for `search`, in messages, decisions, tool calls, mail and tasks.

It can be deleted: each entry is made again from its row. Methods do not write to it. `catch_up` indexes new rows in
batches, and a search reads rows directly that are not indexed yet, so that it finds them right after they were written.

Each source has a mark. All rows up to the mark are indexed; a row after it is indexed if it has an entry. A mark never
passes rows that are younger than a minute, because on PostgreSQL a row with a smaller number may be committed late. No
transaction of standfast takes a minute.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

from standfast import serial
from standfast.db.contract import Row, Tx
from standfast.db.sql import Statement, load
from standfast.db.store import Resource, transactional

SQL = load(__name__)

BATCH = 100
"""Rows that one transaction indexes, so that no other writer waits for long."""
WINDOW = 5000
"""Rows of the journal in which one step looks for changed rows."""
YOUNG_US = 60_000_000
TEXT_MAX = 200_000
"""Characters of one row that are indexed. A longer text is found only by its beginning."""
WORD_MAX = 64

_CJK = "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\uac00-\ud7af"
_WORD = re.compile(rf"[{_CJK}]|[^\W_{_CJK}]+")
_MARKS = re.compile("[\u0300-\u036f]")


class Document(NamedTuple):
    """One row that a search can find, with its text."""

    kind: str
    subject: str
    scope: str
    git_dir: str | None
    origin: str | None
    session_id: str | None
    agent: str | None
    role: str | None
    tool: str | None
    occurred_us: int
    version_us: int
    place: int
    text: str


class Source(NamedTuple):
    """A kind of documents: the statements that read its rows and say how far the mark may move."""

    name: str
    next: Statement
    settled: Statement
    windowed: bool
    read: Callable[[Row], str]


class SearchIndex(Resource):
    """The index of words: update and clear it."""

    __slots__ = ()

    def catch_up(self, progress: Callable[[int], object] = lambda count: None) -> int:
        """Index all rows that are not indexed, and return their number. `progress` gets it after each batch."""
        count = 0
        for source in SOURCES:
            at: int | None = self.store.read(partial(_mark, source=source))
            while at is not None:
                step = self.store.read(partial(_step, source=source, at=at))
                for start in range(0, len(step.found), BATCH):
                    prepared = [(one, words(one.text)) for one in step.found[start : start + BATCH]]
                    self.store.write(partial(_index, prepared=prepared), durable=False)
                    count += len(prepared)
                    progress(count)
                if step.mark is not None:
                    self.store.write(partial(_move, source=source, mark=step.mark), durable=False)
                at = step.upto
        return count

    @transactional
    def clear(self, tx: Tx) -> None:
        """Delete the whole index. The next search makes it again."""
        tx.run(SQL.clear_words)
        tx.run(SQL.clear)
        tx.run(SQL.clear_marks)


def unindexed(tx: Tx, limit: int) -> Iterator[Document]:
    """About `limit` rows of each source that the index lacks or has in an older version."""
    for source in SOURCES:
        at, count = _mark(tx, source=source), 0
        while count < limit:
            found, upto = _after(tx, source=source, at=at, limit=limit)
            count += len(found)
            yield from found
            if upto is None or upto <= at:
                break
            at = upto


def document_of(tx: Tx, kind: str, subject: str) -> Document | None:
    """One row in its present state."""
    source = next(source for source in SOURCES if source.name == kind)
    row = tx.maybe(_ONE[kind], subject=subject)
    return None if row is None else _document(source, row)


def words(text: str) -> str:
    """The normalised words of a text, one space between them. A search compares these.

    Case, accents and punctuation are removed. Each Chinese, Japanese or Korean character is a word.
    """
    text = text[:TEXT_MAX]
    if text.isascii():
        text = text.lower()
    else:
        text = _MARKS.sub("", unicodedata.normalize("NFKD", text)).casefold()
        text = unicodedata.normalize("NFC", text)
    return " ".join(word[:WORD_MAX] for word in _WORD.findall(text))


# -- batches --------------------------------------------------------------------------------------------


def _mark(tx: Tx, *, source: Source) -> int:
    row = tx.maybe(SQL.mark, source=source.name)
    return 0 if row is None else int(row["mark"])


def _after(tx: Tx, *, source: Source, at: int, limit: int) -> tuple[list[Document], int | None]:
    """The rows after a cursor that are not indexed, and the next cursor; None at the end."""
    if not source.windowed:
        found = [_document(source, row) for row in tx.all(source.next, mark=at, limit=limit)]
        return found, found[-1].place if len(found) == limit else None
    last = tx.one(SQL.last_event)["seq"] or 0
    upto = at + WINDOW
    found = [_document(source, row) for row in tx.all(source.next, mark=at, upto=upto)]
    return found, upto if upto < last else None


class _Step(NamedTuple):
    """The next rows after a cursor, the next cursor, and the cursor to store after indexing."""

    found: list[Document]
    upto: int | None
    mark: int | None


def _step(tx: Tx, *, source: Source, at: int) -> _Step:
    found, upto = _after(tx, source=source, at=at, limit=BATCH)
    before = _mark(tx, source=source)
    settled = tx.one(source.settled, mark=before, before_us=tx.now_us() - YOUNG_US)["place"]
    mark = settled if settled is None or upto is None else min(settled, upto)
    return _Step(found, upto, mark if mark is not None and mark > before else None)


def _index(tx: Tx, *, prepared: list[tuple[Document, str]]) -> None:
    """Write entries. Two processes that index at the same time write the same."""
    for document, body in prepared:
        known, hash = tx.maybe(SQL.known, subject=document.subject), serial.hash_text(body)
        if known is not None and known["version_us"] >= document.version_us:
            continue
        fields = {name: getattr(document, name) for name in Document._fields[:11]}
        if known is not None and known["hash"] == hash:  # for example a task that was only seen again
            tx.run(SQL.touch, **fields)
            continue
        seq = tx.one(SQL.number, now_us=tx.now_us())["mark"]
        tx.run(SQL.entry, seq=seq, hash=hash, **fields)
        tx.run(SQL.put_words, seq=seq, body=body)


def _move(tx: Tx, *, source: Source, mark: int) -> None:
    tx.run(SQL.move_mark, source=source.name, mark=mark, now_us=tx.now_us())


def _document(source: Source, row: Row) -> Document:
    fields = {name: row[name] for name in Document._fields if name in row}
    return Document(**{"kind": source.name, "role": None, "tool": None, **fields, "text": source.read(row)})


# -- the text of each kind ---------------------------------------------------------------------------------


def _message(row: Row) -> str:
    return str(row["content"]) if row["format"] == "text" else plain(row["content"])


def _decision(row: Row) -> str:
    return _joined(row["what"], row["why"], row["plan"], row["outcome"], _listed(row["tags"]))


def _tool_call(row: Row) -> str:
    return _joined(row["tool"], plain(row["input"]), plain(row["output"]))


def _mail(row: Row) -> str:
    return _joined(row["title"], plain(row["body"]))


def _task(row: Row) -> str:
    return _joined(row["title"], row["body"], _listed(row["labels"]), row["reason"])


def _joined(*parts: object) -> str:
    return "\n".join(str(part) for part in parts if part)


def _listed(names: str) -> str:
    """Labels and tags are kept between commas."""
    return names.strip(",").replace(",", " ")


def plain(text: str | None) -> str:
    """The words in a JSON text, without its punctuation and escapes; any other text as it is."""
    if not text:
        return ""
    if text[0] not in '{["':
        return text
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return "\n".join(_leaves(value))


def _leaves(value: Any) -> Iterable[str]:
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            waiting.extend(part for pair in reversed(one.items()) for part in reversed(pair))
        elif isinstance(one, list):
            waiting.extend(reversed(one))
        elif one is not None and not isinstance(one, bool):
            yield str(one)


SOURCES = (
    Source("message", SQL.messages, SQL.settled_messages, False, _message),
    Source("mail", SQL.mails, SQL.settled_mails, False, _mail),
    Source("tool_call", SQL.tool_calls, SQL.settled_tool_calls, False, _tool_call),
    Source("decision", SQL.decisions, SQL.settled_events, True, _decision),
    Source("task", SQL.tasks, SQL.settled_events, True, _task),
)
_ONE = {
    "message": SQL.one_message,
    "mail": SQL.one_mail,
    "tool_call": SQL.one_tool_call,
    "decision": SQL.one_decision,
    "task": SQL.one_task,
}
