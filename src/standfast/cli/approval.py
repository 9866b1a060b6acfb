"""`standfast approval`: what waits for a person's yes. The answer is `standfast approve`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from standfast.cli import exits, render
from standfast.cli.frame import argument, noun, option, place, scope_options
from standfast.cli.output import Out
from standfast.cli.render import Column

if TYPE_CHECKING:
    from standfast.ledger.approvals import Approval, Question

approval = noun("approval", "What waits for a person's yes, and what became of it.", default="list")


def moment(us: int) -> str:
    """A time as people compare it: on their own clock, and how far away it is."""
    import time

    from standfast.clock import SECOND_US, format_duration

    away_us = us - time.time_ns() // 1000
    far = format_duration(abs(away_us) // SECOND_US * SECOND_US, parts=2)
    there = time.strftime("%Y-%m-%d %H:%M", time.localtime(us / SECOND_US))
    return f"{there} ({'in ' + far if away_us > 0 else far + ' ago'})"


STATES = ("requested", "granted", "denied", "expired", "consumed", "any")
COLUMNS = [
    Column("id", show=lambda id: id[-6:]),
    Column("state"),
    Column("tool"),
    Column("requester", "asked by"),
    Column("requested_us", "asked", moment),
    Column("expires_us", "expires", moment),
    Column("why"),
]
MARGIN = 12
SAID_MAX = 500
"""Characters of a requester's own words on the screen; the question itself is never cut."""


@approval.verb(
    "request",
    examples=("standfast approval request 9k2m4x --why 'release day'", "standfast approval request KEY --for 2h"),
)
@argument("effect")
@option("--why", help="What the person should know.")
@option("--for", "lifetime", default="24h", show_default=True, help="How long the request and its answer count.")
@option("--again", is_flag=True, help="Ask once more after a no.")
def request(out: Out, effect: str, why: str | None, lifetime: str, again: bool) -> None:
    """Ask for a planned EFFECT (id, its end, or key). Asked before, that request stands."""
    from standfast.cli.store import opened
    from standfast.clock import parse_duration

    with opened() as sf:
        made = sf.approvals.request(effect, why=why, for_us=parse_duration(lifetime), again=again)
    out.record(plain(made), out.pairs([("approval", made.id), ("state", made.state), ("tool", made.tool)]))
    out.then(f"a person runs: standfast approve {made.id[-6:]}")


@approval.verb("list", examples=("standfast approval list", "standfast approval list --state any --session fix-42"))
@option("--state", type=click.Choice(STATES), default="requested", show_default=True)
@option("--session", help="Only of this session: its key or id.")
@option("--after", callback=place, help="Where the page before ended.")
@option("--limit", default=50, show_default=True, type=click.IntRange(1, 1000))
@scope_options
def list_(out: Out, state: str, session: str | None, after: str | None, limit: int, scope_choice: str | None) -> None:
    """List approvals, the newest first; those that wait, unless --state says otherwise."""
    from standfast.cli.store import opened
    from standfast.config import load
    from standfast.views import coverage

    with opened(load(outside=scope_choice == "global"), create=False) as sf:
        everywhere = coverage.choice(scope_choice)
        whole = coverage.covers_all(sf._store.caller, everywhere)
        found = sf.approvals.list(
            state=None if state == "any" else state,
            session=session,
            everywhere=whole,
            after=after,
            limit=limit,
        )
        elsewhere = 0 if whole or session else sf.recovery.waiting_elsewhere("approval_waiting")
    out.rows(
        [plain(one) for one in found],
        COLUMNS,
        next=found[-1].id if len(found) == limit else None,
        then=f"standfast approve {found[0].id[-6:]}" if found and state == "requested" else "",
        empty=f"nothing waits for a yes{' here' if elsewhere else ''}" if state == "requested" else "none",
    )
    if elsewhere and out.for_people:
        waits = "1 more waits" if elsewhere == 1 else f"{elsewhere:,} more wait"
        out.say(f"{waits} in other repositories or scopes: standfast approval list --all")


@approval.verb("show", examples=("standfast approval show 9k2m4x", "standfast approval show 9k2m4x --json"))
@argument("approval")
def show(out: Out, approval: str) -> None:
    """Show the question of one APPROVAL, as `standfast approve` does."""
    from standfast.cli.store import opened

    with opened(create=False) as sf:
        question = sf.approvals.question(approval)
    out.record(_question(question), lines(question, width=render.terminal_width(_stdout())))
    if question.approval.state == "requested":
        out.then(f"standfast approve {question.approval.id[-6:]}")


@approval.verb("wait", examples=("standfast approval wait 9k2m4x", "standfast approval wait 9k2m4x --timeout 10m"))
@argument("approval")
@option("--timeout", help="Give up after this long; the request stands.")
def wait(out: Out, approval: str, timeout: str | None) -> None:
    """Return once a person has answered: exit 0 after a yes, 5 after a no, an expiry or the timeout."""
    from standfast.cli.store import opened
    from standfast.clock import SECOND_US, parse_duration

    with opened(create=False) as sf:
        found = sf.approvals.wait(approval, parse_duration(timeout) / SECOND_US if timeout else None)
    said = f"{found.state} by {found.approver}" if found.approver else found.state
    out.record(plain(found), [f"{found.id} {said}" + (f": {found.rationale}" if found.rationale else "")])
    if found.state not in ("granted", "consumed"):
        raise click.exceptions.Exit(exits.NEEDS_A_PERSON)


# What others here use, too.


def plain(found: Approval) -> dict[str, Any]:
    """The noun's own fields, and its receipt as commands print it."""
    return {**found._asdict(), "receipt": found.receipt.as_json() if found.receipt else None}


def lines(question: Question, *, width: int | None) -> Iterator[str]:
    """What an approver reads: the hashed question under fixed labels, then what the requester says about it."""
    found = question.approval
    facts: list[tuple[str, str]] = [
        ("approval", f"{found.id} ({found.state})"),
        ("tool", question.tool),
        ("scope", question.scope or "none: outside any repository"),
        ("key", question.effect_key),
    ]
    if question.directory is not None:
        facts.append(("runs in", question.directory))
    facts.append(("attempts", str(question.attempts)))
    yield from _pairs(facts, width)
    yield ""
    yield from _action(question, width)
    yield ""
    yield "Not part of the question, in the requester's words:"
    said = [
        ("asked by", found.requester),
        ("session", _session(question)),
        ("why", found.why or "not said"),
        ("describes", question.description or ""),
        ("gate", found.gate or ""),
        ("asked", moment(found.requested_us)),
        ("expires", moment(found.expires_us)),
    ]
    if found.approver:
        how = f" ({found.method})" if found.method else ""
        said.append((found.state, f"by {found.approver}{how}, {moment(found.answered_us or 0)}"))
        said.append(("because", found.rationale or ""))
    yield from _pairs([(label, _cut(text)) for label, text in said if text], width)


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
    yield f"To be done, all of it: {size:,} bytes{beyond}; question {question.approval.question_hash}"
    yield from (f"│ {piece}" for piece in broken(visible(question.intent), width))
    if not question.exact:
        yield "This is not the question that was asked: its hash is another."
    elif question.current_hash != question.approval.intent_hash:
        yield "The effect was changed after this was asked: its next call asks again."


def visible(text: str) -> str:
    """The text with everything a terminal would hide or obey written as a JSON escape: the same value."""
    return render.clean(text, exact=True)


def broken(text: str, width: int | None) -> Iterator[str]:
    """The text in pieces that fit behind a margin: no piece of it can pass for a line of ours."""
    if width is None:
        yield text
        return
    piece, used = "", 0
    for c in text:
        columns = render.width_of(c)
        if used + columns > max(width - MARGIN, 10):
            yield piece
            piece, used = "", 0
        piece, used = piece + c, used + columns
    yield piece


def _session(question: Question) -> str:
    if question.approval.session_id is None:
        return ""
    agent = f", agent {question.agent}" if question.agent else ""
    return f"{question.session_key or '?'} ({question.approval.session_id}{agent})"


def _question(question: Question) -> dict[str, Any]:
    more = {name: value for name, value in question._asdict().items() if name != "approval"}
    return {**plain(question.approval), **more, "exact": question.exact}


def _stdout() -> Any:
    import sys

    return sys.stdout
