"""`standfast approval`, `approve` and `deny`: request, list and answer approvals. A person answers on a terminal."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from standfast.cli import approval_question as question_text
from standfast.cli import exits, render
from standfast.cli.answers import Many, One, show
from standfast.cli.frame import argument, command, noun, option, place, scope_options
from standfast.cli.output import Out
from standfast.cli.render import Column
from standfast.cli.values import ago, home_short, moment, plain, short

if TYPE_CHECKING:
    from standfast.cli.terminal import Terminal
    from standfast.handle import Standfast
    from standfast.ledger.approvals import Approval, Question

approval = noun(
    "approval",
    "Request, list and show approvals, or wait for an answer.",
    default="list",
    of="standfast.ledger.approvals:Approvals",
)

STATES = ("requested", "granted", "denied", "expired", "consumed", "any")
COLUMNS = [
    Column("id", show=short),
    Column("about", "command"),
    Column("requester", "asked by"),
    Column("requested_us", "asked", ago),
    Column("repository", show=home_short),
    Column("session_key", "session"),
    Column("why"),
]
ANSWERED = [
    Column("id", show=short),
    Column("state"),
    Column("about", "command"),
    Column("approver"),
    Column("rationale", "reason"),
    Column("answered_us", "answered", moment),
    Column("requester", "asked by"),
    Column("repository", show=home_short),
    Column("why"),
]

approval.generate(
    "request",
    creates=True,
    without=("gate",),
    answer=lambda _, asked: _requested(asked),
    examples=("standfast approval request 9k2m4x --why 'release day'", "standfast approval request KEY --for 2h"),
)


@approval.verb("list", examples=("standfast approval list", "standfast approval list --state any --session fix-42"))
@option(
    "--state",
    type=click.Choice(STATES),
    default="requested",
    show_default=True,
    help="Only list approvals in this state.",
)
@option("--session", metavar="KEY|ID", help="Only list approvals of this session.")
@option("--after", callback=place, help="Start after this cursor: the `next` of the page before.")
@option("--limit", default=50, show_default=True, type=click.IntRange(1, 1000), help="Print at most N rows.")
@scope_options
def list_(out: Out, state: str, scope_choice: str | None, **asked: Any) -> None:
    """List approvals, by default those that wait for an answer, the newest first."""
    listed(out, state, scope_choice, **asked)


def _requested(asked: Approval) -> One:
    say = f"{asked.state}; it expires at {moment(asked.expires_us)}"
    return One(asked, [asked.id], then="approve {id}\napproval wait {id}", say=say)


def listed(
    out: Out, state: str = "requested", scope_choice: str | None = None, answer: str = "approve", **asked: Any
) -> None:
    """Print approvals with what each is about. `answer` is the command that those that wait are answered with."""
    from standfast.cli.open_store import opened
    from standfast.config import load
    from standfast.views import coverage
    from standfast.views.subjects import Subjects

    waits = state == "requested"
    settings = load(outside=scope_choice == "global")
    with opened(settings, create=False) as sf:
        whole = coverage.covers_all(sf._store.caller, coverage.choice(scope_choice))
        found = sf.approvals.list(state=None if state == "any" else state, everywhere=whole, **asked)
        elsewhere = 0 if whole or asked.get("session") else sf.recovery.waiting_elsewhere("approval_waiting")
        about = Subjects(sf._store).of([one.id for one in found])
    empty = f"nothing waits for approval{' here' if elsewhere else ''}" if waits else "none"
    many = Many(
        found,
        [c for c in (COLUMNS if waits else ANSWERED) if whole or c.field != "repository"],
        asked.get("limit", 50),
        then=f"{answer} {{id}}" if waits else "approval show {id}",
        empty=empty,
        plain=lambda one: {**plain(one), **about[one.id].names()},
        row=lambda one: {**one.as_dict(), **about[one.id].names()},
    )
    said = [_more(elsewhere), coverage.not_read(coverage.unread_stores(settings)) if waits else ""]
    show(out, many._replace(say="\n".join(filter(None, said))))


def _more(elsewhere: int) -> str:
    if not elsewhere:
        return ""
    more = "1 more waits" if elsewhere == 1 else f"{elsewhere:,} more wait"
    return f"{more} in other repositories or scopes: standfast approval list --all"


def _shown(_: Standfast, question: Question) -> One:
    then = f"approve {short(question.approval.id)}" if question.approval.state == "requested" else ""
    return One(question, lambda _: question_text.record(question, width=render.terminal_width(_stdout())), then)


def _answered(_: Standfast, found: Approval) -> One:
    said = f"{found.state} by {found.approver}" if found.approver else found.state
    text = f"{found.id} {said}" + (f": {found.rationale}" if found.rationale else "")
    yes = found.state in ("granted", "consumed")
    return One(found, [text], exit_code=exits.OK if yes else exits.NEEDS_A_PERSON)


approval.generate(
    "show",
    "question",
    answer=_shown,
    examples=("standfast approval show 9k2m4x", "standfast approval show 9k2m4x --json"),
)
approval.generate(
    "wait",
    answer=_answered,
    by_name=("timeout_s",),
    examples=("standfast approval wait 9k2m4x", "standfast approval wait 9k2m4x --timeout 10m"),
)


@command("approve", examples=("standfast approve", 'standfast approve 9k2m4x --why "release day"'))
@argument("approval", required=False)
@option("--why", help="Store this reason with the answer.")
@option("--yes", is_flag=True, hidden=True, help="Has no effect: a person types yes.")
def approve(out: Out, approval: str | None, why: str | None, yes: bool) -> None:
    """Show what an agent wants to do, and approve it if you type yes on the terminal.

    Without APPROVAL it lists the requests that wait.
    """
    if approval is None:
        listed(out)
    else:
        _answer(out, approval, why, "approve")


@command("deny", examples=("standfast deny", 'standfast deny 9k2m4x --why "not on a Friday"'))
@argument("approval", required=False)
@option("--why", help="Give this reason to the requester.")
@option("--yes", is_flag=True, hidden=True, help="Has no effect: a person types yes.")
def deny(out: Out, approval: str | None, why: str | None, yes: bool) -> None:
    """Show what an agent wants to do, and refuse it if you type yes on the terminal.

    Without APPROVAL it lists the requests that wait.
    """
    if approval is None:
        listed(out, answer="deny")
    else:
        _answer(out, approval, why, "deny")


def _answer(out: Out, approval: str, why: str | None, what: str) -> None:
    from standfast.cli.open_store import opened
    from standfast.cli.terminal import terminal_of_a_person
    from standfast.config import people
    from standfast.config.actor import person

    people.refuse("answers an approval")
    with terminal_of_a_person(f"standfast {what}") as terminal, opened(create=False) as sf:
        question = sf.approvals.pose(approval)
        if not _agreed(terminal, question, what):
            out.say(f"nothing was recorded: {question.approval.id} still waits")
            raise click.exceptions.Exit(exits.NEEDS_A_PERSON)
        verb = sf.approvals.grant if what == "approve" else sf.approvals.deny
        made = verb(question.approval.id, approver=person(os.environ), rationale=why, method="terminal")
    out.record(plain(made), [f"{made.id} {made.state}"])


def _agreed(terminal: Terminal, question: Question, what: str) -> bool:
    for line in question_text.lines(question, width=terminal.width):
        terminal.write(line + "\n")
    terminal.write("\n")
    for line in question_text.asked(question, width=terminal.width):
        terminal.write(line + "\n")
    return terminal.ask(f"{what.capitalize()}? Type yes: ").lower() == "yes"


def _stdout() -> Any:
    import sys

    return sys.stdout
