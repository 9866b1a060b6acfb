"""`standfast decision`: what was decided, what is still open, what always holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from standfast.cli.frame import argument, noun, option, place, scope_options
from standfast.cli.output import Out
from standfast.cli.render import Column
from standfast.footings import hints

if TYPE_CHECKING:
    from standfast.ledger.decisions import Decision

decision = noun("decision", "What was decided, and why. It is made with `standfast decide`.", default="list")

STATES = ("open", "done", "failed", "standing", "withdrawn")


def _moment(us: int) -> str:
    from time import localtime, strftime

    return strftime("%Y-%m-%d %H:%M", localtime(us // 1_000_000))


COLUMNS = [
    Column("id", show=lambda id: str(id)[-6:]),
    Column("state"),
    Column("created_us", "when", _moment),
    Column("by"),
    Column("session_key", "session"),
    Column("what"),
    Column("outcome"),
]


@decision.verb("list", examples=("standfast decision list --open", "standfast decision list --agent coder --since 7d"))
@option("--agent", help="Only by this agent or actor.")
@option("--tag", help="Only about this topic.")
@option("--since", help='Not before: "7d", "tue 03:00", "2026-11-10".')
@option("--until", help="Before: the same words.")
@option("--text", help="Words in what, why, then or the outcome.")
@option("--state", type=click.Choice(STATES))
@option("--open", "state", flag_value="open", help="Only those that are not closed.")
@option("--session", help="Only of this session: its key or id.")
@option("--after", callback=place, help="Where the page before ended.")
@option("--limit", default=50, show_default=True, type=click.IntRange(1, 1000))
@scope_options
def list_(
    out: Out,
    since: str | None,
    until: str | None,
    limit: int,
    scope_choice: str | None,
    **asked: Any,
) -> None:
    """List decisions: standing orders first, then the newest."""
    from standfast.cli.store import opened
    from standfast.config import load

    with opened(load(outside=scope_choice == "global"), create=False) as sf:
        found = sf.decisions.list(
            since=_understood(since), until=_understood(until), everywhere=scope_choice == "all", limit=limit, **asked
        )
    open_ = next((one for one in found if one.state == "open"), None)
    out.rows(
        [{**plain(one), "by": one.agent or one.actor} if out.for_people else plain(one) for one in found],
        COLUMNS,
        next=found[-1].id if len(found) == limit else None,
        then=f"standfast decision done {open_.id[-6:]} --outcome '…'" if open_ else "",
        empty="nothing was decided here" if not any(asked.values()) else "none",
    )


@decision.verb("show", examples=("standfast decision show 9k2m4x", "standfast decision show 9k2m4x --json"))
@argument("decision")
def show(out: Out, decision: str) -> None:
    """Show one DECISION: its id or the end of it."""
    from standfast.cli.store import opened

    with opened(create=False) as sf:
        _print(out, sf.decisions.show(decision))


@decision.verb(
    "done",
    examples=("standfast decision done 9k2m4x", "standfast decision done 9k2m4x --outcome 'merged as a1b2c3'"),
)
@argument("decision")
@argument("words", required=False)
@option("--outcome", help="What came of it.")
def done(out: Out, decision: str, words: str | None, outcome: str | None) -> None:
    """Close an open DECISION with what came of it."""
    from standfast.cli.store import opened

    with opened(create=False) as sf:
        _print(out, sf.decisions.done(decision, outcome or words))


@decision.verb(
    "fail",
    examples=("standfast decision fail 9k2m4x --why 'the tests stay red'", "standfast decision fail 9k2m4x"),
)
@argument("decision")
@argument("words", required=False)
@option("--why", help="What went wrong.")
def fail(out: Out, decision: str, words: str | None, why: str | None) -> None:
    """Close an open DECISION: what was planned was not done, or did not work."""
    from standfast.cli.store import opened

    with opened(create=False) as sf:
        _print(out, sf.decisions.fail(decision, why or words))


@decision.verb(
    "withdraw",
    examples=(
        "standfast decision withdraw 9k2m4x --why 'we use squash merges now'",
        "standfast decision withdraw 9k2m4x",
    ),
)
@argument("decision")
@option("--why", help="Why it holds no longer.")
def withdraw(out: Out, decision: str, why: str | None) -> None:
    """Take back a standing order, or a DECISION that nobody acts on any more."""
    from standfast.cli.store import opened

    with opened(create=False) as sf:
        _print(out, sf.decisions.withdraw(decision, why))


@decision.verb(
    "catch",
    examples=(
        "standfast decision catch 'switched to pnpm' --control code-review",
        "standfast decision catch 'dropped the cache' --control audit --notes 'seen in a1b2c3' --session fix-42",
    ),
)
@argument("what")
@option("--control", required=True, help="What noticed it: a review, a check, a person.")
@option("--notes", help="How it was noticed.")
@option("--session", envvar="STANDFAST_SESSION", help="The session it was made in: its key or id.")
def catch(out: Out, what: str, control: str, notes: str | None, session: str | None) -> None:
    """Write down that WHAT was decided and not written, and which control noticed."""
    from standfast.cli.store import opened

    with opened() as sf:
        caught = sf.decisions.catch(what, control=control, notes=notes, session=session)
    receipt = caught.receipt.as_json() if caught.receipt else None
    out.record({**caught._asdict(), "receipt": receipt}, [f"caught by {caught.control}: {caught.what}"])
    out.then("standfast decision caught")


@decision.verb("caught", examples=("standfast decision caught", "standfast decision caught --all --json"))
@option("--after", type=int, help="Where the page before ended.")
@option("--limit", default=50, show_default=True, type=click.IntRange(1, 1000))
@scope_options
def caught(out: Out, after: int | None, limit: int, scope_choice: str | None) -> None:
    """List decisions that were made and not written, as controls have caught them."""
    from standfast.cli.store import opened
    from standfast.config import load

    with opened(load(outside=scope_choice == "global"), create=False) as sf:
        found = sf.decisions.caught(everywhere=scope_choice == "all", limit=limit, after=after)
    out.rows(
        [one._asdict() for one in found],
        ["seq", Column("time_us", "when", _moment), "control", "what", "notes"],
        next=str(found[-1].seq) if len(found) == limit else None,
        empty="nothing was caught",
    )


@decision.verb(
    "unwritten", examples=("standfast decision unwritten fix-42", "standfast decision unwritten fix-42 --json")
)
@argument("session", envvar="STANDFAST_SESSION")
@option("--after", callback=place, help="Where the page before ended.")
@option("--limit", default=50, show_default=True, type=click.IntRange(1, 1000))
def unwritten(out: Out, session: str, after: str | None, limit: int) -> None:
    """List effects of a SESSION that went out while no decision was open in it."""
    from standfast.cli.store import opened

    with opened(create=False) as sf:
        found = sf.decisions.unwritten(session, limit=limit, after=after)
    out.rows(
        [one._asdict() for one in found],
        [
            Column("effect_id", "effect", lambda id: str(id)[-6:]),
            Column("dispatched_us", "when", _moment),
            "tool",
            "state",
        ],
        next=found[-1].effect_id if len(found) == limit else None,
        then=f"standfast decision catch '…' --control … --session {hints.word(session)}" if found else "",
        empty="every effect of this session was decided first",
    )


def plain(found: Decision) -> dict[str, Any]:
    """The noun's own fields, and its receipt as commands print it."""
    return {**found._asdict(), "receipt": found.receipt.as_json() if found.receipt else None}


def _print(out: Out, found: Decision) -> None:
    shown = [
        ("decision", found.id),
        ("state", found.state),
        ("what", found.what),
        ("why", found.why),
        ("then", found.then),
        ("outcome", found.outcome),
        ("by", found.agent or found.actor),
        ("session", f"{found.session_key} ({found.session_state})" if found.session_key else found.session_id),
        ("tags", ", ".join(found.tags)),
        ("when", _moment(found.created_us)),
        ("closed", _moment(found.closed_us) if found.closed_us is not None else None),
    ]
    out.record(plain(found), out.pairs([(label, value) for label, value in shown if value]))


def _understood(text: str | None) -> int | str | None:
    """How long ago, or a moment as people type it."""
    if text is None:
        return None
    from standfast.clock import SYSTEM
    from standfast.views import when

    return when.since_us(text, SYSTEM.now_us())
