"""The text of an approval question, on the terminal and in `approval show`.

It shows the exact bytes of the action under fixed labels. A margin keeps text of the requester from looking like a line
of standfast.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from standfast.cli import render
from standfast.cli.values import home_short

if TYPE_CHECKING:
    from standfast.ledger.approvals import Question

MARGIN = 12
WHO_MAX = 60
SAID_MAX = 500
"""How many characters of a text of the requester are shown. The action itself is never cut."""


def moment(us: int) -> str:
    """A time in local time, with its distance from now."""
    import time

    from standfast.clock import SECOND_US, format_duration

    away_us = us - time.time_ns() // 1000
    far = format_duration(abs(away_us) // SECOND_US * SECOND_US, parts=2)
    there = time.strftime("%Y-%m-%d %H:%M", time.localtime(us / SECOND_US))
    return f"{there} ({'in ' + far if away_us > 0 else far + ' ago'})"


def asked(question: Question, *, width: int | None) -> Iterator[str]:
    """The question in one sentence, behind the margin."""
    from standfast import serial
    from standfast.core import authors
    from standfast.ledger.subjects import action

    did = action(question.tool, serial.read(question.intent) if question.intent else None)
    there = f" in {home_short(question.directory)}" if question.directory else ""
    who = authors.name((question.agent or question.requester)[:WHO_MAX])
    yield from (f"  {piece}" for piece in broken(visible(f"{who} wants to {did.wanted}{there}."), width))


def lines(question: Question, *, width: int | None) -> Iterator[str]:
    """The lines for the approver: the parts of the hashed question under fixed labels."""
    facts: list[tuple[str, str]] = [
        ("tool", question.tool),
        ("scope", question.scope or "none"),
        ("key", question.effect_key),
    ]
    if question.directory is not None:
        facts.append(("runs in", question.directory))
    facts.append(("attempts", str(question.attempts)))
    yield from _pairs(facts, width)
    yield ""
    yield from _action(question, width)
    yield ""
    yield "The request, in the requester's words:"
    said = [
        ("asked by", question.requester),
        ("session", question.session_key or ""),
        ("agent", question.agent or ""),
        ("why", question.why or "no reason given"),
        ("decided", question.decision or ""),
        ("describes", question.description or ""),
        ("gate", question.gate or ""),
        ("asked", moment(question.requested_us)),
        ("expires", moment(question.expires_us)),
    ]
    yield from _pairs([(label, _cut(text)) for label, text in said if text], width)


def record(question: Question, *, width: int | None) -> Iterator[str]:
    """The question, with the current state of the approval before it and the answer after it."""
    found = question.approval
    yield from _pairs([("approval", f"{found.id} ({found.state})")], width)
    yield from lines(question, width=width)
    if found.approver:
        yield ""
        how = f" ({found.method})" if found.method else ""
        answer = [(found.state, f"by {found.approver}{how}, {moment(found.answered_us or 0)}")]
        yield from _pairs([*answer, ("because", found.rationale or "no reason given")], width)


def _pairs(facts: list[tuple[str, str]], width: int | None) -> Iterator[str]:
    for label, text in facts:
        first, *more = broken(visible(text), width)
        yield f"{label:<{MARGIN - 2}}  {first}".rstrip()
        yield from (f"{'':{MARGIN}}{piece}" for piece in more)


def _cut(text: str) -> str:
    return text if len(text) <= SAID_MAX else f"{text[:SAID_MAX]}… ({len(text):,} characters)"


def _action(question: Question, width: int | None) -> Iterator[str]:
    if question.intent is None or question.text is None:
        yield "The question is not stored."
        return
    size = len(question.intent.encode())
    unusual = sum(not c.isascii() for c in question.intent)
    beyond = f", {unusual} characters outside ASCII" if unusual else ""
    yield f"The exact action: {size:,} bytes{beyond}; question {question.approval.question_hash}"
    yield from (f"│ {piece}" for piece in broken(visible(question.intent), width))
    if not question.exact:
        yield "This is not the question that was asked: its hash differs."
    elif question.current_hash != question.approval.intent_hash:
        yield "The effect changed after the question was asked: its next call asks again."


def visible(text: str) -> str:
    """The text with JSON escapes for characters that a terminal would hide or obey."""
    return render.clean(text, exact=True)


def broken(text: str, width: int | None) -> Iterator[str]:
    """The text in pieces that fit behind the margin, so that no piece looks like a line of standfast.

    A character outside ASCII counts as two columns, because some terminals draw any of them that wide.
    """
    if width is None:
        yield text
        return
    piece, used = "", 0
    for c in text:
        columns = 1 if c.isascii() else 2
        if used + columns > max(width - MARGIN, 10):
            yield piece
            piece, used = "", 0
        piece, used = piece + c, used + columns
    yield piece
