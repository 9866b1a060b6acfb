"""`standfast brief`: print what an agent must know when it starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from standfast.cli.frame import command, option, scope_options
from standfast.cli.open_store import exists, opened, refuse_missing
from standfast.cli.output import Out
from standfast.config import load

if TYPE_CHECKING:
    from standfast.views.brief import Fact


@command("brief", examples=("standfast brief", "standfast brief --agent reviewer --max-tokens 600 --json"))
@option("--agent", help="Include the tasks and mail of this agent.  [default: the caller]")
@option(
    "--max-tokens",
    default=1500,
    show_default=True,
    type=click.IntRange(min=1),
    metavar="N",
    help="Print at most about N tokens.",
)
@scope_options
def brief(out: Out, agent: str | None, max_tokens: int, scope_choice: str | None) -> None:
    """Print what a starting agent must know, the most important facts first, each with its id and age."""
    from standfast.views import coverage

    settings = load(outside=scope_choice == "global")
    refuse_missing(settings)
    unread = coverage.unread_stores(settings)
    if unread and out.for_people:
        out.say(f"standfast: {coverage.not_read(unread)}")  # not part of the brief, whose length is limited
    if not exists(settings):
        nothing = {"agent": agent or settings.actor, "sections": [], "unread_stores": unread}
        return out.record(nothing, ["Nothing is recorded here yet."])
    with opened(settings, create=False) as sf:
        made = sf.brief(agent=agent, max_tokens=max_tokens, everywhere=coverage.choice(scope_choice))
    data = made.as_dict() | {
        "sections": [section.as_dict() | {"facts": [_fact(f) for f in section.facts]} for section in made.sections],
        "unread_stores": unread,
    }
    out.record(data, [made.markdown])
    return None


def _fact(fact: Fact) -> dict[str, Any]:
    return fact.as_dict() | {"author": None if fact.author is None else fact.author.as_dict()}
