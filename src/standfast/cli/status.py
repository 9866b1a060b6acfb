"""`standfast` alone: where the state is, how much there is, and what needs a person now."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from standfast.cli.frame import command, option, scope_options
from standfast.cli.output import Out
from standfast.footings import hints

if TYPE_CHECKING:
    from standfast.config import Settings
    from standfast.handle import Standfast

SHOWN_MAX = 20


@command("status", examples=("standfast", "standfast status --all --json"))
@option("--limit", type=click.IntRange(1, 10_000), help="Items to show.  [default: 20; with --json 100 of each kind]")
@scope_options
def status_command(out: Out, limit: int | None, scope_choice: str | None) -> None:
    """Show where the state is, the engine, the counts, and what needs a person now.

    Inside a repository it shows that repository's items and counts those of others; outside it shows all.
    """
    from standfast.cli.store import exists, opened, refuse_missing
    from standfast.config import load

    settings = load(outside=scope_choice == "global")
    refuse_missing(settings)
    if exists(settings):
        with opened(settings) as sf:
            data = status(sf, scope_choice=scope_choice, limit=limit)
    else:
        data = nothing_yet(settings)
    out.record(data, _lines(out, data, limit or SHOWN_MAX, [f"--{scope_choice}"] if scope_choice else []))
    out.then("standfast help" if data["exists"] else "standfast demo")


def status(sf: Standfast, *, scope_choice: str | None = None, limit: int | None = None) -> dict[str, Any]:
    """What `standfast` alone shows of an open store."""
    from standfast.upkeep.counts import COUNT_MAX, counts
    from standfast.views import coverage, recovery

    report = sf.recovery.report(everywhere=coverage.choice(scope_choice), limit=limit or recovery.EACH_MAX)
    return {
        **_place(sf.settings),
        "exists": True,
        "schema_version": sf.engine.schema_version(),
        "counts": sf.read(counts),
        "counts_max": COUNT_MAX,
        "needs": [item._asdict() for item in report.items],
        "waiting": report.counts,
        "truncated": report.truncated,
        "elsewhere": report.elsewhere,
    }


def nothing_yet(settings: Settings) -> dict[str, Any]:
    """The same before the first write: looking makes nothing."""
    empty: dict[str, Any] = {"counts": {}, "needs": [], "waiting": {}, "truncated": False, "elsewhere": {}}
    return {**_place(settings), "exists": False, "schema_version": None, **empty}


def _place(settings: Settings) -> dict[str, Any]:
    from standfast.views import coverage

    return {
        "data_dir": settings.data_dir,
        "engine": settings.target.engine,
        "store": settings.target.shown,
        "source": settings.source,
        "decided_by": settings.where,
        "scope": settings.scope,
        "repository": settings.label.name,
        "actor": settings.actor,
        "unread_stores": coverage.unread_stores(settings),
    }


def _lines(out: Out, data: dict[str, Any], limit: int, options: list[str]) -> Iterator[str]:
    about = f"{data['engine']}, schema {data['schema_version']}" if data["exists"] else data["engine"]
    yield from out.pairs(
        [
            ("store", f"{data['store']} ({about})"),
            ("repository", data["repository"] or "outside any repository"),
            *([("scope", data["scope"])] if data["scope"] else []),
            ("actor", data["actor"]),
            ("holds", _counted(data) if data["exists"] else "nothing yet: the first write makes the store"),
        ]
    )
    if data["needs"]:
        yield ""
        yield out.styled("What needs a person now", "bold")
        for need in data["needs"][:limit]:
            yield from _need(out, need)
        total = sum(data["waiting"].values())
        if total > limit:
            yield f"  and {total - limit} more: {hints.command('status', *options, '--limit', str(total))}"
    yield from verdict(data)


def _need(out: Out, need: dict[str, Any]) -> Iterator[str]:
    from standfast.views import when

    facts = [f"since {when.shown(need['since_us']).local[4:-3]}", need["who"]]
    facts += [f"in {need['scope'] or 'no repository'}"] if need["scope"] or not need["here"] else []
    yield f"  {out.styled(need['what'], 'yellow')}  ({', '.join(fact for fact in facts if fact)})"
    yield f"    {need['command']}"


def verdict(data: dict[str, Any]) -> Iterator[str]:
    """What else waits; the all-clear only where nothing does, for the stores that were read."""
    from standfast.views import coverage

    unread = data["unread_stores"]
    if data["elsewhere"]:
        nothing = "" if data["needs"] else "Nothing needs you in this repository. "
        yield f"{nothing}{coverage.waiting_elsewhere(data['elsewhere'])}: standfast status --all"
    elif not data["needs"]:
        yield "Nothing needs you now in this store." if unread else "Nothing needs you now."
    if unread:
        yield f"Not read: {', '.join(unread)} (standfast store list)"


def _counted(data: dict[str, Any]) -> str:
    most = data["counts_max"]
    shown = [f"{n}{'+' if n >= most else ''} {table}" for table, n in data["counts"].items() if n]
    return ", ".join(shown) or "nothing yet"
