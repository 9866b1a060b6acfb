"""`standfast import`: import transcripts of coding agents, bundles, and data of other tools."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from standfast import hints
from standfast.cli import exits
from standfast.cli.answers import One, literal
from standfast.cli.frame import argument, noun, option
from standfast.cli.open_store import opened
from standfast.cli.output import Out
from standfast.cli.progress import reported
from standfast.cli.render import clean_lines
from standfast.cli.values import counted
from standfast.config import MEMORY, load

if TYPE_CHECKING:
    from standfast.handle import Standfast
    from standfast.interchange.bundle_import import BundleImport
    from standfast.interchange.imports import Report, Source
    from standfast.interchange.text_import import TextImport

import_ = noun(
    "import",
    "Import transcripts of coding agents, bundles, and data of other tools.",
    default="list",
    of="standfast.interchange.imports:Imports",
)
COLUMNS = ("agent", "state", "messages", "upto", "path", "note")

EXAMPLES = {
    "claude-code": ("standfast import claude-code", "standfast import claude-code ~/.claude/projects --since 30d"),
    "codex": ("standfast import codex", "standfast import codex ~/.codex/sessions --dry-run"),
    "gemini-cli": ("standfast import gemini-cli", "standfast import gemini-cli ~/.gemini/tmp"),
    "opencode": ("standfast import opencode", "standfast import opencode ~/.local/share/opencode/opencode.db"),
    "json": ("standfast import json session.json", "standfast import json backups/ --dry-run"),
}


def _show_bar(asked: dict[str, Any]) -> None:
    """Show the bar without a delay: most imports take long."""
    report = reported(click.get_current_context().find_root().obj, bar_after_s=0)
    asked["progress"] = lambda _, done, total: report("importing", done, total)


def _imported(_: Standfast, report: Report) -> One:
    lines = _summary(report)
    if report.dry_run:
        return One(report, lines, then=f"import {report.agent}")
    if report.sources:
        return One(report, lines, then="session list --all")
    return One(
        report, lines, say=f"no transcripts were found; name their place: {hints.command('import', report.agent)} PATH"
    )


for _agent in EXAMPLES:
    import_.generate(
        _agent,
        "run",
        creates=True,
        fixed={"agent": _agent},
        dry_run="dry_run",
        prepare=_show_bar,
        answer=_imported,
        options={"path": {"required": _agent == "json", "type": click.Path()}},
        examples=EXAMPLES[_agent],
    )


@import_.verb("beads", examples=("standfast import beads", "standfast import beads path/to/.beads/issues.jsonl"))
@argument("path", required=False, type=click.Path())
@option("--dry-run", is_flag=True, help="Read and count; write nothing.")
def beads(out: Out, path: str | None, dry_run: bool) -> None:
    """Import the open issues of beads as tasks, with their dependencies. Closed issues are only counted."""
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
    """Import the threads of LangGraph's SqliteSaver or PostgresSaver. SOURCE is only read."""
    from standfast.interchange import langgraph as reader

    with opened(load(MEMORY) if dry_run else load()) as sf:
        own = sf.settings.target.location if sf.settings.target.engine == "sqlite" else None
        taken = reader.run(sf.threads, source, own=own, dry_run=dry_run)
    out.record(taken._asdict(), text=reader.summary(taken))
    out.then('standfast sql "SELECT key, updated_us FROM thread"')


@import_.verb("files", examples=("standfast import files plan.json", "standfast import files runs.tsv --dry-run"))
@argument("path", type=click.Path())
@option("--name", help="Use this namespace or stream.  [default: the name of the file]")
@option("--dry-run", is_flag=True, help="Read and count; write nothing.")
def files(out: Out, path: str, name: str | None, dry_run: bool) -> None:
    """Import a JSON, TOML, TSV or YAML file: a mapping becomes state, a list of rows becomes events."""
    from standfast.interchange import plain_files as reader

    with opened() as sf:
        taken = reader.run(sf, path, name=name, dry_run=dry_run)
    out.record(taken._asdict(), text=reader.summary(taken))
    if taken.to == "state":
        out.then(hints.command("state", "list", "--namespace", taken.name))
    else:
        out.then(hints.command("event", "list", taken.name))


def _taken(_: Standfast, done: BundleImport) -> One:
    how = "to continue here" if done.taken else "as history"
    sessions = "1 session" if len(done.sessions) == 1 else f"{len(done.sessions):,} sessions"
    lines = [
        f"imported {sessions} {how}: {done.added:,} of {done.rows:,} rows are new",
        f"content {done.content}",
    ]
    return One(done, lines, then=literal(hints.command("session", "show", done.sessions[0])))


import_.generate(
    "bundle",
    creates=True,
    answer=_taken,
    options={"path": {"type": click.Path()}},
    examples=("standfast import bundle fix-42.zip", "standfast import bundle fix-42.zip --take"),
)


@import_.verb("text", examples=("standfast import text record", "standfast import text record --commit"))
@argument("directory", required=False, type=click.Path(), metavar="[DIR]")
@option("--commit", is_flag=True, help="Import the differences. Without this option they are listed.")
@option("--theirs", is_flag=True, help="Import the version of the file even if the store changed since the export.")
@option("--log", metavar="STREAM", help="Append the git history of DIR to this stream, one event for each change.")
@option("--events", metavar="STREAM", help="Read the records from the events of this stream instead of DIR.")
def text(out: Out, directory: str | None, commit: bool, theirs: bool, log: str | None, events: str | None) -> None:
    """Import tasks, decisions, values and gates from a text export. A missing line deletes nothing.

    Exit 4 if a difference was not imported, because both sides changed or a method refused it.
    """
    from standfast.interchange import text_history, text_import

    if (directory is None) == (events is None) or (log and events):
        raise click.UsageError("give DIR, or --events STREAM")
    with opened() as sf:
        if log is not None:
            added, known = text_history.append(sf.events, str(directory), log, dry_run=not commit)
            done = {"stream": log, "added": added, "known": known, "committed": commit}
            words = "added" if commit else "would add"
            out.record(done, text=[f"{words} {added:,} events to the stream {log!r}, which had {known:,}"])
            return
        if events is not None:
            found = text_history.records(sf.events, events)
            taken = text_import.taken(sf._store, "", found, {}, commit=commit, theirs=theirs, progress=reported(out))
        else:
            taken = sf.imports.text(str(directory), commit=commit, theirs=theirs, progress=reported(out))
    _text_answer(out, taken, ["--events", events] if events else [str(directory)])


def _text_answer(out: Out, taken: TextImport, named: list[str]) -> None:
    differing = [one.as_dict() for one in taken.differences]
    counts = f"{taken.records:,} records, {taken.same:,} as in the store, {len(differing):,} differ"
    marks = {"add": "+", "change": "~", "keep": "=", "conflict": "!", "refused": "!"}
    lines = [counts]
    for one in taken.differences:
        fields = f" ({', '.join(one.fields)})" if one.fields else ""
        note = f": {one.note}" if one.note else _NOTES.get(one.action, "")
        lines.append(clean_lines(f"{marks[one.action]} {one.kind} {one.name}{fields}{note}"))
    out.record({**taken.as_dict(), "differences": differing}, text=lines)
    waiting = [one for one in taken.differences if one.action in ("add", "change")]
    if not taken.committed and waiting:
        out.then(hints.command("import", "text", *named, "--commit"))
    if any(one.action == "conflict" for one in taken.differences):
        out.say(f"to import the version of the file: {hints.command('import', 'text', *named, '--theirs', '--commit')}")
    if taken.left:
        raise click.exceptions.Exit(exits.CONFLICT)


_NOTES = {"keep": ": the store changed since the export, and its version stays", "conflict": ": both changed"}


import_.generate(
    "list",
    answer=lambda _, found: found._replace(columns=COLUMNS, plain=_row, row=_row),
    then="import claude-code",
    empty="nothing was imported yet",
    examples=("standfast import list", "standfast import list --agent codex --json"),
)


def _row(source: Source) -> dict[str, Any]:
    counts = source.counts if isinstance(source.counts, dict) else {}
    return source.as_dict() | {"messages": counts.get("messages", 0)}


def _summary(report: Report) -> list[str]:
    totals = report.totals
    read = totals.get("new", 0) + totals.get("more", 0)
    done = "would import" if report.dry_run else "imported"
    lines = [
        f"{done} {counted(report.messages, 'message')} and {counted(report.tool_calls, 'tool call')} in"
        f" {counted(report.sessions, 'new session')} from {read:,} of {counted(len(report.sources), 'source')}"
        f" ({report.bytes / 1e6:,.1f} MB)"
        if not report.dry_run
        else f"{done} {counted(report.messages, 'message')} from {read:,} of {counted(len(report.sources), 'source')}"
        f" ({report.bytes / 1e6:,.1f} MB); nothing was written"
    ]
    if totals.get("same"):
        lines.append(f"{totals['same']:,} had nothing new")
    if totals.get("bad") or totals.get("oversized"):
        bad, large = totals.get("bad", 0), totals.get("oversized", 0)
        lines.append(f"{bad:,} lines could not be read and were stored unparsed, {large:,} were too long to store")
    if report.unknown:
        kinds = ", ".join(f"{name} ×{count}" for name, count in sorted(report.unknown.items())[:12])
        lines.append(f"stored unparsed, because their kind is unknown: {kinds}")
    lines += [f"{source.path}: {source.note}" for source in report.sources if source.note][:20]
    return lines
