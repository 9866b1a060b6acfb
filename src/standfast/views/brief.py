"""The brief: what an agent must know when it starts, and no more than it can read.

Most important first: what always holds, what is in doubt, what waits for a person, what it has
begun, what it was sent, what it has to do, where it stopped, what is known, what was decided. Every line
names the id it comes from and its age. It reads and changes nothing, and runs nothing: whether a
fact still holds is what its last check said, and how long ago.

The same store at the same moment gives the same brief. It stays within its tokens, counted as four
characters each; where something is left out, the line says how much and the command that shows it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from standfast import serial
from standfast.clock import format_duration
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.db.store import Room, query
from standfast.errors import InvalidInput, StandfastError
from standfast.ids import is_id, short
from standfast.record.state import Entry, State
from standfast.views.recovery import Item, Recovery

SQL = load(__name__)

TOKENS_DEFAULT = 1500
TOKENS_MIN = 100
CHARS_PER_TOKEN = 4
LINE_MAX = 240
EACH_MAX = 50
FIRST = 3
"""Facts of every section that come before the rest of any."""
UNCHECKED_US = 24 * 3600 * 1_000_000
"""A fact whose check is older than this is marked."""


class Fact(NamedTuple):
    """One line of a brief."""

    id: str
    text: str
    at_us: int
    stale: bool = False
    command: str | None = None


class Section(NamedTuple):
    """Facts of one kind. `more` is how many were left out, `command` shows them."""

    name: str
    title: str
    facts: list[Fact]
    more: int
    command: str


class Brief(NamedTuple):
    """What an agent is told when it starts."""

    agent: str
    scope: str
    now_us: int
    sections: list[Section]
    tokens: int

    def __bool__(self) -> bool:
        return bool(self.sections)

    @property
    def markdown(self) -> str:
        return "\n".join(_lines(self.agent, self.scope, self.sections, self.now_us))


class Briefs(Room):
    """Asking for a brief."""

    __slots__ = ()

    @query
    def make(self, tx: Tx, *, agent: str | None = None, max_tokens: int = TOKENS_DEFAULT) -> Brief | StandfastError:
        """The working set of `agent`, or of whoever asks, in this scope.

        Raises InvalidInput for fewer tokens than any brief needs.
        """
        if max_tokens < TOKENS_MIN:
            return InvalidInput(
                f"a brief needs at least {TOKENS_MIN} tokens", f"standfast brief --max-tokens {TOKENS_MIN}"
            )
        name = agent or tx.caller.actor
        whole = [section for section in self._sections(tx, name) if section.facts]
        kept = _within(whole, name, tx.caller.scope, tx.now_us(), max_tokens * CHARS_PER_TOKEN)
        text = "\n".join(_lines(name, tx.caller.scope, kept, tx.now_us()))
        return Brief(name, tx.caller.scope, tx.now_us(), kept, -(-len(text) // CHARS_PER_TOKEN))

    def _sections(self, tx: Tx, agent: str) -> Iterator[Section]:
        at: Row = {"scope": tx.caller.scope, "limit": EACH_MAX}
        report = Recovery(self.store, tx).report()

        def unsettled(*kinds: str) -> list[Fact]:
            return [_of_item(item) for item in report.items if item.kind in kinds]

        def section(name: str, title: str, facts: Iterable[Fact], command: str) -> Section:
            return Section(name, title, list(facts), 0, command)

        standing = tx.all(SQL.standing, **at)
        yield section("orders", "Standing orders", map(_order, standing), "standfast decision list --state standing")
        yield section("in_doubt", "In doubt: do not repeat these", unsettled("effect_in_doubt"), "standfast status")
        yield section(
            "approvals", "Waiting for a person's yes", unsettled("approval_waiting"), "standfast approval list"
        )
        yield section(
            "decisions", "Decided and not finished", unsettled("decision_open"), "standfast decision list --open"
        )
        yield section(
            "sessions",
            "Sessions to go on with",
            unsettled("session_crashed", "session_waiting"),
            "standfast session list",
        )
        mail = tx.all(SQL.mail, box=agent, now_us=tx.now_us(), **at)
        yield section("mail", "Mail for you", map(_mail, mail), f"standfast mail list {agent}")
        tasks = tx.all(SQL.tasks, agent=agent, now_us=tx.now_us(), **at)
        yield section("tasks", "Tasks", (_task(row, agent) for row in tasks), "standfast task list")
        checkpoint = tx.maybe(SQL.checkpoint, scope=tx.caller.scope)
        yield section("checkpoint", "Where the last work stopped", _checkpoint(checkpoint), "standfast session list")
        facts = State(self.store, tx).list(limit=EACH_MAX)
        known = [_known(entry, tx.now_us()) for entry in facts]
        yield section("facts", "What is known", known, "standfast state list")
        recent = tx.all(SQL.recent, **at)
        yield section("recent", "Decided lately", map(_decided, recent), "standfast decision list")
        rest = unsettled("dead_letter", "mail_waiting", "lock_expired")
        yield section("rest", "Also", [fact for fact in rest if fact.id != f"box:{agent}"], "standfast status")


# -- facts -----------------------------------------------------------------------------------------------


def _of_item(item: Item) -> Fact:
    what = item.what.removeprefix("decided and not finished: ")  # the title says so
    return Fact(item.id, what, item.since_us, command=item.command)


def _order(row: Row) -> Fact:
    why = f" (because {row['why']})" if row["why"] else ""
    return Fact(row["id"], f"{row['what']}{why}", row["created_us"])


def _mail(row: Row) -> Fact:
    said = row["subject"] or _one_line(serial.read(row["body"]))
    return Fact(
        row["id"], f"from {row['sender']}: {said}", row["sent_us"], command=f"standfast mail read {short(row['id'])}"
    )


def _task(row: Row, agent: str) -> Fact:
    mine = row["actor"] == agent and row["holder"] is not None
    whose = "yours: " if mine or row["assignee"] == agent else ""
    seen = f", seen {row['occurrences']} times" if row["occurrences"] > 1 else ""
    labels = f" [{row['labels'].strip(',').replace(',', ', ')}]" if row["labels"].strip(",") else ""
    text = f"{whose}{row['title']}{labels} (p{row['priority']}{seen})"
    then = "done" if mine else "claim"
    return Fact(row["id"], text, row["last_seen_us"], command=f"standfast task {then} {short(row['id'])}")


def _checkpoint(row: Row | None) -> list[Fact]:
    if row is None:
        return []
    said = row["summary"] or f"messages up to {row['to_position']} are folded"
    return [Fact(row["id"], f"{row['key']}: {said}", row["created_us"], command=f"standfast session show {row['key']}")]


def _known(entry: Entry, now_us: int) -> Fact:
    text = f"{entry.key} = {_one_line(entry.value)}"
    if entry.verify is None:
        return Fact(f"state:{entry.key}", text, entry.updated_us)
    if entry.verified_us is None:
        stale, words = True, "never checked"
    else:
        age_us = now_us - entry.verified_us
        stale = entry.verdict != "fresh" or age_us > UNCHECKED_US
        words = f"{entry.verdict} {format_duration(age_us, parts=1)} ago"
    command = f"standfast state verify {entry.key}" if stale else None
    return Fact(f"state:{entry.key}", f"{text} ({words})", entry.updated_us, stale, command)


def _decided(row: Row) -> Fact:
    came = f" → {row['outcome']}" if row["outcome"] else ""
    return Fact(row["id"], f"{row['what']}{came} ({row['state']}, {row['who']})", row["created_us"])


def _one_line(value: serial.Json) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)


# -- within its tokens -------------------------------------------------------------------------------------


def _within(whole: list[Section], agent: str, scope: str, now_us: int, chars: int) -> list[Section]:
    """As many facts as fit: the first few of every section in their order, then the rest in theirs."""
    order = [(n, fact) for n, section in enumerate(whole) for fact in section.facts[:FIRST]]
    order += [(n, fact) for n, section in enumerate(whole) for fact in section.facts[FIRST:]]
    kept: list[list[Fact]] = [[] for _ in whole]
    for n, fact in order:
        kept[n].append(fact)
        if len("\n".join(_lines(agent, scope, _cut(whole, kept), now_us))) > chars:
            kept[n].pop()
            break
    return _cut(whole, kept)


def _cut(whole: list[Section], kept: list[list[Fact]]) -> list[Section]:
    cut = (
        section._replace(facts=facts, more=len(section.facts) - len(facts))
        for section, facts in zip(whole, kept, strict=True)
    )
    return [section for section in cut if section.facts or section.more]


def _lines(agent: str, scope: str, sections: list[Section], now_us: int) -> Iterator[str]:
    yield f"# Brief for {serial.clean(agent, 1000)}{f' in {scope}' if scope else ''}"
    if not sections:
        yield "Nothing is recorded here yet."
    left_out = [section for section in sections if not section.facts]
    for section in sections:
        if not section.facts:
            continue
        yield f"\n## {section.title}"
        for fact in section.facts:
            yield _line(fact, now_us)
        if section.more:
            yield f"- {section.more} more: `{section.command}`"
    if left_out:
        yield (
            "\n"
            + "; ".join(f"{section.title.lower()}: {section.more}" for section in left_out)
            + ": `standfast status`"
        )


def _line(fact: Fact, now_us: int) -> str:
    name = short(fact.id) if is_id(fact.id) else fact.id
    age = format_duration(max(now_us - fact.at_us, 0), parts=1)
    text = serial.clean(fact.text, 100_000)
    if len(text) > LINE_MAX:
        text = f"{text[: LINE_MAX - 1]}…"
    stale = "STALE " if fact.stale else ""
    then = f" `{fact.command}`" if fact.command else ""
    return f"- {stale}{text} ({name}, {age}){then}"
