"""Search: words in messages, decisions, tool calls, mail and tasks.

    flaky parser            both words, in any order
    "connection refused"    this phrase
    deploy -staging         one word and not the other
    migrat*                 words that begin so

Case, accents and punctuation do not count. The newest hit comes first; with `by_rank`, the best one. Rows that the
index does not have yet are read directly, so that a search finds them right after they were written.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from standfast import serial
from standfast.checkpoint import search_index
from standfast.checkpoint.search_index import Document, words
from standfast.clock import Time
from standfast.config.scope import Label
from standfast.core import authors, lookup, repositories
from standfast.core.authors import Author
from standfast.core.checks import FAR_FUTURE_US, like, one_of, page_size, past_us
from standfast.db.contract import Tx
from standfast.db.sql import load
from standfast.db.store import Resource
from standfast.errors import InvalidInput, StorageError
from standfast.models import Model

SQL = load(__name__)

KINDS = ("message", "decision", "tool_call", "mail", "task")
TERMS_MAX = 32
TAIL_MAX = 20_000
"""Rows of each kind that are read directly if the index cannot be updated."""
SNIPPET_CHARS = 160


class Term(NamedTuple):
    """A word, or words in a row; `begins` if the last one may continue."""

    phrase: str
    begins: bool = False
    excluded: bool = False


class Hit(Model):
    """One row that was found. `snippet` is the text around the words."""

    kind: str
    id: str
    scope: str
    session_id: str | None
    session_key: str | None
    agent: str | None
    role: str | None
    tool: str | None
    occurred_us: int
    snippet: str
    author: str
    """The author; of a tool call, the agent that called. Empty if the store does not say."""
    author_kind: str
    """`person`, `agent` or `unknown`."""


class Hits(Model):
    """The rows that were found, and the cursor to continue from."""

    hits: list[Hit]
    next: str | None


class Asked(NamedTuple):
    """The conditions of a hit beside its words."""

    everywhere: bool
    scope: str
    repo: str | None
    agent: str | None
    since_us: int | None
    tool: str | None
    role: str | None
    kind: str | None
    session_id: str | None


class Search(Resource):
    """Search for words."""

    __slots__ = ()

    def find(
        self,
        text: str,
        *,
        agent: str | None = None,
        repo: str | None = None,
        since: Time | None = None,
        tool: str | None = None,
        role: str | None = None,
        kind: str | None = None,
        session: str | None = None,
        everywhere: bool = False,
        by_rank: bool = False,
        after: str | None = None,
        limit: int = 50,
        progress: Callable[[int], object] = lambda count: None,
    ) -> Hits:
        """Find rows with these words, the newest first. `after` is the `next` of the last page. `by_rank` has one page.

        The index is updated first, if the store can be written; `progress` gets the number of indexed rows. Raises
        InvalidInput for a text without words, NotFound for an unknown session.
        """
        parse(text)  # refuse a bad text before the index is updated
        if kind is not None:
            one_of(kind, KINDS, "kind")
        if self.tx is None:
            with suppress(StorageError):  # the store is busy or read only: read the rows directly
                search_index.SearchIndex(self.store).catch_up(progress)
        narrowed = {"agent": agent, "repo": repo, "tool": tool, "role": role, "kind": kind}

        def ask(tx: Tx) -> Hits:
            asked = Asked(
                everywhere=everywhere or repo is not None,
                scope=self.scope,
                since_us=past_us(since, tx.now_us(), "since"),
                session_id=lookup.session_id(tx, self.scope, session),
                **narrowed,
            )
            return _found(tx, parse(text), asked, by_rank=by_rank, after=after, limit=page_size(limit))

        return self._read(ask)


def _found(tx: Tx, terms: list[Term], asked: Asked, *, by_rank: bool, after: str | None, limit: int) -> Hits:
    before_us, before_id = _place(after)
    fresh = {document.subject: document for document in search_index.unindexed(tx, TAIL_MAX)}
    rows = tx.all(
        SQL.by_rank if by_rank else SQL.newest,
        fts=_fts(terms),
        ts=_ts(terms),
        before_us=before_us,
        before_id=before_id,
        limit=limit + 1 + len(fresh),
        **asked._replace(repo=None if asked.repo is None else f"%{like(asked.repo)}%")._asdict(),
        **repositories.filtered(tx),
    )
    indexed = [(row["occurred_us"], row["subject"], row["kind"]) for row in rows if row["subject"] not in fresh]
    direct = [
        (one.occurred_us, one.subject, one.kind)
        for one in fresh.values()
        if _fits(tx, one, asked) and _matches(words(one.text), terms) and _earlier(one, before_us, before_id)
    ]
    found = direct + indexed if by_rank else sorted(direct + indexed, reverse=True)
    hits = [_hit(tx, kind, subject, terms, fresh.get(subject)) for _, subject, kind in found[:limit]]
    last = found[limit - 1] if len(found) > limit and not by_rank else None
    return Hits([hit for hit in hits if hit is not None], None if last is None else f"{last[0]}:{last[1]}")


# -- queries --------------------------------------------------------------------------------------------

_PART = re.compile(r'(-?)(?:"([^"]*)"?|(\S+))')


def parse(text: str) -> list[Term]:
    """The terms of a typed text. Raises InvalidInput if it has no word to search for."""
    terms = []
    for minus, phrase, word in _PART.findall(text):
        plain = words(phrase or word)
        if plain:
            terms.append(Term(plain, begins=word.endswith("*"), excluded=bool(minus)))
    if not any(not term.excluded for term in terms):
        raise InvalidInput("there is no word to look for", 'for example: standfast search "connection refused"')
    if len(terms) > TERMS_MAX:
        raise InvalidInput(f"more than {TERMS_MAX} words", "quote a phrase, or leave some out")
    return terms


def _fts(terms: list[Term]) -> str:
    """The query for FTS5. Quoted words contain no operators."""
    wanted = " AND ".join(f'"{term.phrase}"{"*" if term.begins else ""}' for term in terms if not term.excluded)
    unwanted = "".join(f' NOT "{term.phrase}"{"*" if term.begins else ""}' for term in terms if term.excluded)
    return f"({wanted}){unwanted}"


def _ts(terms: list[Term]) -> str:
    """The query for PostgreSQL's tsquery, which takes words as they are."""

    def spelled(term: Term) -> str:
        followed = " <-> ".join(term.phrase.split())
        return f"{'!' if term.excluded else ''}({followed}{':*' if term.begins else ''})"

    return " & ".join(spelled(term) for term in terms)


def _matches(body: str, terms: list[Term]) -> bool:
    padded = f" {body} "
    return all((f" {term.phrase}{'' if term.begins else ' '}" in padded) is not term.excluded for term in terms)


def _fits(tx: Tx, one: Document, asked: Asked) -> bool:
    label = Label(one.git_dir, one.origin)
    return (
        (asked.everywhere or (one.scope == asked.scope and repositories.listed(tx, label)))
        and (asked.repo is None or asked.repo.casefold() in label.name.casefold())
        and (asked.since_us is None or one.occurred_us >= asked.since_us)
        and all(
            wanted is None or wanted == having
            for wanted, having in (
                (asked.agent, one.agent),
                (asked.tool, one.tool),
                (asked.role, one.role),
                (asked.kind, one.kind),
                (asked.session_id, one.session_id),
            )
        )
    )


def _place(after: str | None) -> tuple[int, str]:
    if after is None:
        return FAR_FUTURE_US, ""
    us, _, subject = after.partition(":")
    if not us.lstrip("-").isdigit() or not subject:
        raise InvalidInput(f"{after[:60]!r} is no cursor of a search", "use the `next` of the page before")
    return int(us), subject


def _earlier(one: Document, before_us: int, before_id: str) -> bool:
    return (one.occurred_us, one.subject) < (before_us, before_id)


# -- results ---------------------------------------------------------------------------------------------


def _hit(tx: Tx, kind: str, subject: str, terms: list[Term], known: Document | None) -> Hit | None:
    """None if it was removed since it was indexed."""
    one = known or search_index.document_of(tx, kind, subject)
    if one is None:
        return None
    session = tx.maybe(SQL.session_key, id=one.session_id) if one.session_id is not None else None
    author = _author(tx, one)
    return Hit(
        kind=one.kind,
        id=one.subject,
        scope=one.scope,
        session_id=one.session_id,
        session_key=session["key"] if session is not None else None,
        agent=one.agent,
        role=one.role,
        tool=one.tool,
        occurred_us=one.occurred_us,
        snippet=snippet(one.text, terms),
        author=author.name,
        author_kind=author.kind,
    )


def _author(tx: Tx, one: Document) -> Author:
    if one.kind == "task":
        return authors.of_events(tx, one.subject, *authors.TASK_TEXT)
    if one.kind == "mail":
        row = tx.maybe(SQL.mail_from, id=one.subject)
        return authors.of(serial.read(row["provenance"]).get("actor") if row is not None else None)
    statement = {"message": SQL.message_by, "decision": SQL.decision_by}.get(one.kind)
    row = tx.maybe(statement, id=one.subject) if statement is not None else {"actor": one.agent}
    return authors.of(row["actor"] if row is not None else None)


def snippet(text: str, terms: list[Term]) -> str:
    """The text around the first term that it contains, on one line."""
    place = _first(text, terms)
    start = max(0, place - SNIPPET_CHARS // 4)
    if start > 0:
        start = text.rfind(" ", 0, start + 1) + 1 or start
        start = start if place - start < SNIPPET_CHARS // 2 else max(0, place - SNIPPET_CHARS // 4)
    cut = " ".join(text[start : start + SNIPPET_CHARS].split())
    return f"{'…' if start else ''}{cut}{'…' if len(text) > start + SNIPPET_CHARS else ''}"


def _first(text: str, terms: list[Term]) -> int:
    for term in terms:
        if not term.excluded:
            found = re.search(r"[\W_]*".join(map(re.escape, term.phrase.split())), text, re.IGNORECASE)
            if found is not None:
                return found.start()
    return 0  # the text has another spelling, for example accents
