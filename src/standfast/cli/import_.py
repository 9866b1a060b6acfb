"""`standfast import`: what other programs wrote down, brought into the record."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from standfast.cli.frame import argument, noun, option
from standfast.cli.output import Out
from standfast.cli.render import Column
from standfast.footings import hints

if TYPE_CHECKING:
    from standfast.interchange.imports import Report

import_ = noun("import", "Bring in transcripts of coding agents, and what is kept elsewhere.", default="list")

_WHAT = {
    "claude-code": "Import Claude Code's transcripts: all of them, or those at PATH.",
    "codex": "Import Codex's rollouts: all of them, or those at PATH.",
    "gemini-cli": "Import Gemini CLI's chats: all of them, or those at PATH.",
    "opencode": "Import opencode's sessions, from its database and its older files.",
    "json": "Import a session kept in a JSON file: its messages, decisions and values.",
}
_EXAMPLES = {
    "claude-code": ("standfast import claude-code", "standfast import claude-code ~/.claude/projects --since 30d"),
    "codex": ("standfast import codex", "standfast import codex ~/.codex/sessions --dry-run"),
    "gemini-cli": ("standfast import gemini-cli", "standfast import gemini-cli ~/.gemini/tmp"),
    "opencode": ("standfast import opencode", "standfast import opencode ~/.local/share/opencode/opencode.db"),
    "json": ("standfast import json session.json", "standfast import json backups/ --dry-run"),
}


def _verb(agent: str) -> None:
    def run(out: Out, path: str | None, since: str | None, dry_run: bool) -> None:
        _import(out, agent, path, since, dry_run)

    run.__doc__ = _WHAT[agent]
    run = option("--dry-run", is_flag=True, help="Read and count; write nothing.")(run)
    run = option("--since", help='Only what was changed since then: "30d", "mon 09:00".')(run)
    run = argument("path", required=agent == "json", type=click.Path())(run)
    import_.verb(agent, examples=_EXAMPLES[agent])(run)


for _agent in _WHAT:
    _verb(_agent)


def _import(out: Out, agent: str, path: str | None, since: str | None, dry_run: bool) -> None:
    from standfast.cli.store import opened
    from standfast.config import load

    # A dry run makes not even a store.
    with opened(load(":memory:") if dry_run else None) as sf:
        shown = _Bar(out)
        report = sf.imports.run(agent, path, since_us=_since_us(since), dry_run=dry_run, progress=shown.step)
        shown.clear()
    out.record(_as_json(report), text=_summary(report))
    _next(out, report)


@import_.verb("beads", examples=("standfast import beads", "standfast import beads path/to/.beads/issues.jsonl"))
@argument("path", required=False, type=click.Path())
@option("--dry-run", is_flag=True, help="Read and count; write nothing.")
def beads(out: Out, path: str | None, dry_run: bool) -> None:
    """Import the issues of beads as tasks: one each, with what they need; closed ones are counted and left."""
    from standfast.cli.store import opened
    from standfast.interchange import beads as reader

    with opened() as sf:
        found = reader.run(sf.tasks, path, dry_run=dry_run)
    out.record(found._asdict(), text=[reader.summary(found)])
    out.then("standfast task list")


@import_.verb(
    "langgraph",
    examples=(
        "standfast import langgraph checkpoints.sqlite",
        "standfast import langgraph postgresql://host/app --dry-run",
    ),
)
@argument("source")
@option("--dry-run", is_flag=True, help="Read and count; write nothing.")
def langgraph(out: Out, source: str, dry_run: bool) -> None:
    """Import the threads that LangGraph's SqliteSaver or PostgresSaver kept; theirs is only read."""
    from standfast.cli.store import opened
    from standfast.config import MEMORY, load
    from standfast.interchange import langgraph as reader

    with opened(load(MEMORY) if dry_run else load()) as sf:
        own = sf.settings.target.location if sf.settings.target.engine == "sqlite" else None
        taken = reader.run(sf.threads, source, own=own, dry_run=dry_run)
    out.record(taken._asdict(), text=reader.summary(taken))
    out.then('standfast sql "SELECT key, updated_us FROM thread"')


@import_.verb("list", examples=("standfast import list", "standfast import list --agent codex --json"))
@option("--agent", default="", help="Only the sources of this agent.")
@option("--after", default=0, help="Where the page before ended.")
@option("--limit", default=50, show_default=True, type=click.IntRange(1, 1000))
def list_(out: Out, agent: str, after: int, limit: int) -> None:
    """List the files that were read, how far, and what became of them."""
    from standfast.cli.store import opened

    with opened(create=False) as sf:
        found = sf.imports.list(agent=agent, after=after, limit=limit + 1)
    rows = [_row(source._asdict()) for source in found[:limit]]
    out.rows(
        rows,
        [Column("agent"), Column("state"), Column("messages"), Column("upto"), Column("path"), Column("note")],
        next=str(found[limit - 1].seq) if len(found) > limit else None,
        empty="nothing was imported yet",
        then="standfast import claude-code",
    )


def _row(source: dict[str, Any]) -> dict[str, Any]:
    counts = source["counts"] if isinstance(source["counts"], dict) else {}
    return source | {"messages": counts.get("messages", 0)}


def _since_us(text: str | None) -> int | None:
    if text is None:
        return None
    from standfast.clock import SYSTEM
    from standfast.views import when

    return when.since_us(text, SYSTEM.now_us())


def _as_json(report: Report) -> dict[str, Any]:
    return report._asdict() | {"sources": [source._asdict() for source in report.sources]}


def _summary(report: Report) -> list[str]:
    totals = report.totals
    read = totals.get("new", 0) + totals.get("more", 0)
    done = "would import" if report.dry_run else "imported"
    lines = [
        f"{done} {report.messages:,} messages and {report.tool_calls:,} tool calls in {report.sessions:,} new sessions"
        f" from {read:,} of {len(report.sources):,} sources ({report.bytes / 1e6:,.1f} MB)"
        if not report.dry_run
        else f"{done} {report.messages:,} messages from {read:,} of {len(report.sources):,} sources"
        f" ({report.bytes / 1e6:,.1f} MB); nothing was written"
    ]
    if totals.get("same"):
        lines.append(f"{totals['same']:,} had nothing new")
    if totals.get("bad") or totals.get("oversized"):
        bad, large = totals.get("bad", 0), totals.get("oversized", 0)
        lines.append(f"{bad:,} lines could not be read and are kept as they are, {large:,} were too long to keep")
    if report.unknown:
        kinds = ", ".join(f"{name} ×{count}" for name, count in sorted(report.unknown.items())[:12])
        lines.append(f"kept without being understood: {kinds}")
    lines += [f"{source.path}: {source.note}" for source in report.sources if source.note][:20]
    return lines


def _next(out: Out, report: Report) -> None:
    if report.dry_run:
        out.then(hints.command("import", report.agent))
    elif report.sources:
        out.then('standfast timeline --all --at "tue 03:00"')
    else:
        out.say("no transcripts were found", f"  where they are: {hints.command('import', report.agent)} PATH")


class _Bar:
    """How far it is, on a terminal only; at most ten times a second."""

    WIDTH = 30

    def __init__(self, out: Out, clock: Callable[[], float] = time.monotonic) -> None:
        self.wanted = out.for_people and sys.stderr.isatty()
        self.clock = clock
        self.drawn = 0.0

    def step(self, path: str, done: int, total: int) -> None:
        if not self.wanted or self.clock() - self.drawn < 0.1:
            return
        self.drawn = self.clock()
        share = done / total if total else 1.0
        filled = round(self.WIDTH * share)
        bar = "█" * filled + "░" * (self.WIDTH - filled)
        sys.stderr.write(f"\r\x1b[K{bar} {share:4.0%}  {done / 1e6:,.0f} of {total / 1e6:,.0f} MB")
        sys.stderr.flush()

    def clear(self) -> None:
        if self.wanted and self.drawn:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
