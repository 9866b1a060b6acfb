"""`standfast decision`: list, close and withdraw decisions. `standfast decide` records one."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from standfast.cli.answers import One
from standfast.cli.frame import SESSION_VARIABLE, made, noun
from standfast.cli.generate import Generated

if TYPE_CHECKING:
    from standfast.handle import Standfast
    from standfast.ledger.decisions import Decision

STATES = ("open", "done", "failed", "standing", "withdrawn")
DECISIONS = "standfast.ledger.decisions:Decisions"

decision = noun(
    "decision", "List, close and withdraw decisions. `standfast decide` records one.", default="list", of=DECISIONS
)


def _close_the_first(found: list[Decision]) -> str:
    open_ = next((one for one in found if one.state == "open"), None)
    if open_ is not None:
        return f"decision done {open_.id[-6:]} --outcome TEXT"
    return f"decision show {found[0].id[-6:]}" if found else ""


decision.generate(
    "list",
    examples=("standfast decision list --open", "standfast decision list --agent coder --since 7d"),
    options={"state": {"type": click.Choice(STATES)}},
    also=[
        partial(made, click.Option, ("--open", "state"), "Only list decisions that are not closed.", flag_value="open")
    ],
    then=_close_the_first,
    empty="no decision matches",
)
decision.generate("show")
decision.generate(
    "done",
    examples=("standfast decision done 9k2m4x", "standfast decision done 9k2m4x --outcome 'merged as a1b2c3'"),
)
decision.generate(
    "fail", examples=("standfast decision fail 9k2m4x --why 'the tests stay red'", "standfast decision fail 9k2m4x")
)
decision.generate(
    "withdraw",
    examples=(
        "standfast decision withdraw 9k2m4x --why 'we use squash merges now'",
        "standfast decision withdraw 9k2m4x",
    ),
)
decision.generate("reopen", examples=("standfast decision reopen 9k2m4x", "standfast decision reopen 9k2m4x --json"))
decision.generate(
    "catch",
    creates=True,
    examples=(
        "standfast decision catch 'switched to pnpm' --control code-review",
        "standfast decision catch 'dropped the cache' --control audit --notes 'seen in a1b2c3' --session fix-42",
    ),
    text="caught by {control}: {what}",
    then="decision caught",
)
decision.generate(
    "caught",
    examples=("standfast decision caught", "standfast decision caught --all --json"),
    then="decision list",
    empty="no control found an unrecorded decision",
)
decision.generate(
    "unwritten",
    options={"session": {"envvar": SESSION_VARIABLE}},
    then="decision catch TEXT --control NAME --session {session_id}",
    empty="every effect of this session has a decision",
)


def _decided(_: Standfast, made: Any) -> One:
    follow = "withdraw {id}" if made.state == "standing" else "done {id} --outcome TEXT"
    return One(made, [made.id], then=f"decision {follow}")


decide = Generated(
    "decide",
    "decide",
    DECISIONS,
    "record",
    creates=True,
    in_session=True,
    answer=_decided,
    examples=(
        "standfast decide 'edit parser.py' --why 'the test names it' --then 'patch, test, open a PR'",
        "standfast decide 'never force-push' --why 'it lost work once' --standing",
    ),
)
