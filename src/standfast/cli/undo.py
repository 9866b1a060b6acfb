"""`standfast undo`: list changes that can be undone, and undo them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from standfast import hints
from standfast.cli.answers import Many, One, show
from standfast.cli.frame import argument, command, option
from standfast.cli.open_store import opened
from standfast.cli.output import Out

if TYPE_CHECKING:
    from standfast.admin.undo import Undone


@command(
    "undo",
    examples=("standfast undo 9k2m4x --commit", "standfast undo --actor claude-code --since 2h"),
)
@argument("what", required=False, metavar="[RECEIPT|ID]")
@option("--actor", metavar="ACTOR", help="Only undo changes by this actor.")
@option("--since", metavar="TIME", help='Only undo changes since this time: 2h, "tue 03:00".  [default: the last day]')
@option("--commit", is_flag=True, help="Undo the changes. Without this option they are listed.")
@option("--limit", type=click.IntRange(1, 1000), default=50, metavar="N", help="List at most N changes.  [default: 50]")
def undo(out: Out, what: str | None, actor: str | None, since: str | None, commit: bool, limit: int) -> None:
    """Restore what a change overwrote or deleted; without --commit, list the changes that can be undone.

    RECEIPT names one change, ID the newest change of a row. --actor and --since select all changes that match.
    """
    if what is not None and (actor or since):
        raise click.UsageError("give RECEIPT or ID, or --actor and --since")
    if commit and not (what or actor or since):
        raise click.UsageError("--commit needs a change: standfast undo ID --commit")
    words = [*([what] if what else []), *(["--actor", actor] if actor else []), *(["--since", since] if since else [])]
    if commit:
        with opened(create=False) as sf:
            done = sf.undo(what, agent=actor, since=since)
        show(out, One(done, _lines(done)))
        return
    with opened(create=False) as sf:
        found = [sf.removed.find(what)] if what else sf.removed.list(agent=actor, since=since, limit=limit)
    # A change by `apply` may have no rows left to restore: `rows` counts only those of the change itself.
    ready = [str(one.seq) for one in found if not one.undone and (one.rows or one.type.startswith("state."))]
    named = words or ready[:1]
    show(out, Many(found, empty="no change to undo in the last day: standfast undo --since 7d"))
    if found and named:
        out.then(hints.command("undo", *named, "--commit"))


def _lines(done: Undone) -> list[str]:
    lines = [f"undone: {one.seq} {one.type} {one.subject} by {one.agent}" for one in done.changes]
    return [*lines, *(f"kept: {subject}, which this change added" for subject in done.left)]
