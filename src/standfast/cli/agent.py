"""`standfast agent`: who takes part, and what they are at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from standfast.cli.frame import argument, noun, option, scope_options
from standfast.cli.output import Out
from standfast.cli.render import Column, clean_lines
from standfast.footings import hints

if TYPE_CHECKING:
    from standfast.record.agents import Agent

STATUSES = ("idle", "active", "blocked", "error")

agent = noun("agent", "Who takes part: known from first use, nobody registers.", default="list")


def _moment(us: int) -> str:
    from time import localtime, strftime

    return strftime("%Y-%m-%d %H:%M", localtime(us // 1_000_000))


COLUMNS = [
    Column("name"),
    Column("kind"),
    Column("shown", "status"),
    Column("task_id", "task", lambda id: str(id)[-6:] if id else ""),
    Column("last_seen_us", "last seen", _moment),
    Column("status_why", "why"),
]


@agent.verb(
    "list", examples=("standfast agent list", "standfast agent list --status active --config 'model=claude-*' --json")
)
@option("--status", type=click.Choice(STATUSES))
@option("--kind", help="Only of this kind: claude-code, codex …")
@option("--config", "configs", multiple=True, help="Only those whose configuration says NAME=VALUE, or NAME=TEXT*.")
@option("--crashed", is_flag=True, default=None, help="Only those whose process is gone and left something.")
@option("--stale", is_flag=True, default=None, help="Only those not heard of for an hour while at work.")
@option("--after", help="Where the page before ended.")
@option("--limit", default=50, show_default=True, type=click.IntRange(1, 1000))
@scope_options
def list_(
    out: Out, configs: tuple[str, ...], after: str | None, limit: int, scope_choice: str | None, **asked: Any
) -> None:
    """List agents by name."""
    from standfast.cli.store import opened
    from standfast.config import load

    everywhere = scope_choice == "all"
    with opened(load(outside=scope_choice == "global"), create=False) as sf:
        found = sf.agents.list(
            config=_pairs(configs), everywhere=everywhere, after=_place(after, sf.scope), limit=limit, **asked
        )
    out.rows(
        [{**plain(one), "shown": _status(one)} if out.for_people else plain(one) for one in found],
        [*COLUMNS, Column("scope")] if everywhere else COLUMNS,
        next=_next(found[-1], everywhere) if len(found) == limit else None,
        then="standfast agent show NAME" if found else "",
        empty="nobody is known here" if not (configs or any(asked.values())) else "none",
    )


@agent.verb("show", examples=("standfast agent show reviewer", "standfast agent show reviewer --json"))
@argument("name", required=False)
def show(out: Out, name: str | None) -> None:
    """Show NAME, or this very actor: its status, what it holds, its configuration."""
    from standfast.cli.state import shown
    from standfast.cli.store import opened

    with opened(create=False) as sf:
        found = sf.agents.get(name or sf.actor)
    values = {
        "agent": found.name,
        "kind": found.kind,
        "status": _status(found) + (f": {found.status_why}" if found.status_why else ""),
        "task": found.task_id,
        "session": found.session_id,
        "config": shown(found.config) if found.config else None,
        "metadata": shown(found.metadata) if found.metadata else None,
        "first seen": _moment(found.first_seen_us),
        "last seen": _moment(found.last_seen_us),
        "scope": found.scope,
    }
    out.record(plain(found), out.pairs([(label, value) for label, value in values.items() if value]))


@agent.verb(
    "set",
    examples=(
        "standfast agent set --status blocked --why 'waiting for credentials'",
        "standfast agent set reviewer --kind codex --config model=gpt-5 --config temperature=0.2",
    ),
)
@argument("name", required=False)
@option("--status", type=click.Choice(STATUSES))
@option("--why", help="Why it is blocked, or what went wrong.")
@option("--kind", help="What it is: claude-code, codex, reviewer …")
@option("--task", help="What it works on; empty for nothing.")
@option("--config", "configs", multiple=True, help="NAME=VALUE, may be given several times; replaces all of it.")
@option("--metadata", "metadatas", multiple=True, help="NAME=VALUE, likewise.")
def set_(out: Out, name: str | None, configs: tuple[str, ...], metadatas: tuple[str, ...], **given: Any) -> None:
    """Say what NAME, or this very actor, is or does. What is not given stays."""
    from standfast.cli.store import opened

    columns: dict[str, Any] = {
        column: None if value == "" else value for column, value in given.items() if value is not None
    }
    for column, words in (("config", configs), ("metadata", metadatas)):
        if words:
            columns[column] = _pairs(words)
    if not columns:
        raise click.UsageError("what is to be said? --status, --kind, --task, --config, --metadata")
    with opened() as sf:
        made = sf.agents.set(name, **columns)
    out.record(plain(made), [f"{made.name} is {_status(made)}"])
    out.then(hints.command("agent", "show", made.name))


# -- small parts -------------------------------------------------------------------------------------


def plain(found: Agent) -> dict[str, Any]:
    """The noun's own fields, and its receipt as commands print it."""
    return {**found._asdict(), "receipt": found.receipt.as_json() if found.receipt else None}


def _status(found: Agent) -> str:
    doubt = " (crashed)" if found.crashed else " (stale)" if found.stale else ""
    return clean_lines(found.status) + doubt


def _pairs(words: tuple[str, ...]) -> dict[str, Any]:
    """NAME=VALUE, where what is JSON is JSON and the rest is text."""
    from standfast.cli.state import parsed

    pairs = {}
    for word in words:
        name, sign, value = word.partition("=")
        if not name or not sign:
            raise click.UsageError(f"{word!r} is not NAME=VALUE")
        pairs[name] = parsed(value, "auto")
    return pairs


def _next(last: Agent, everywhere: bool) -> str:
    return f"{last.scope}\t{last.name}" if everywhere else last.name


def _place(after: str | None, scope: str) -> tuple[str, str] | None:
    if after is None:
        return None
    first, tab, name = after.partition("\t")
    return (first, name) if tab else (scope, after)
