"""`standfast` alone: where the state is, how much there is, and what needs a person now."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from standfast.cli.frame import command
from standfast.cli.output import Out

if TYPE_CHECKING:
    from standfast.config import Settings
    from standfast.handle import Standfast

SHOWN_MAX = 20


@command("status", examples=("standfast", "standfast status --json"))
def status_command(out: Out) -> None:
    """Show where the state is, the engine, the counts, and what needs a person now."""
    from standfast.cli.store import exists, opened
    from standfast.config import load

    settings = load()
    if exists(settings):
        with opened(settings) as sf:
            data = status(sf)
    else:
        data = nothing_yet(settings)
    out.record(data, _lines(out, data))
    out.then("standfast help" if data["exists"] else "standfast demo")


def status(sf: Standfast) -> dict[str, Any]:
    """What `standfast` alone shows of an open store."""
    from standfast.upkeep.counts import COUNT_MAX, counts

    return {
        **_place(sf.settings),
        "exists": True,
        "schema_version": sf.engine.schema_version(),
        "counts": sf.read(counts),
        "counts_max": COUNT_MAX,
        "needs": [item._asdict() for item in sf.recovery.report().items],
    }


def nothing_yet(settings: Settings) -> dict[str, Any]:
    """The same before the first write: looking makes nothing."""
    return {**_place(settings), "exists": False, "schema_version": None, "counts": {}, "needs": []}


def _place(settings: Settings) -> dict[str, Any]:
    return {
        "data_dir": settings.data_dir,
        "engine": settings.target.engine,
        "store": settings.target.shown,
        "source": settings.source,
        "decided_by": settings.where,
        "scope": settings.scope,
        "actor": settings.actor,
    }


def _lines(out: Out, data: dict[str, Any]) -> Iterator[str]:
    from standfast.views import when

    about = f"{data['engine']}, schema {data['schema_version']}" if data["exists"] else data["engine"]
    yield from out.pairs(
        [
            ("store", f"{data['store']} ({about})"),
            ("scope", data["scope"] or "none: outside any repository"),
            ("actor", data["actor"]),
            ("holds", _counted(data) if data["exists"] else "nothing yet: the first write makes the store"),
        ]
    )
    if not data["needs"]:
        yield "Nothing needs you now."
        return
    yield ""
    yield out.styled("What needs a person now", "bold")
    for need in data["needs"][:SHOWN_MAX]:
        since = when.shown(need["since_us"]).local[4:-3]
        who = f", {need['who']}" if need["who"] else ""
        yield f"  {out.styled(need['what'], 'yellow')}  (since {since}{who})"
        yield f"    {need['command']}"
    if len(data["needs"]) > SHOWN_MAX:
        yield f"  and {len(data['needs']) - SHOWN_MAX} more: standfast status --json"


def _counted(data: dict[str, Any]) -> str:
    most = data["counts_max"]
    shown = [f"{n}{'+' if n >= most else ''} {table}" for table, n in data["counts"].items() if n]
    return ", ".join(shown) or "nothing yet"
