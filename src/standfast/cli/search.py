"""`standfast search`: find words in messages, decisions, tool calls, mail and tasks."""

from __future__ import annotations

from typing import Any

import click

from standfast import hints, when
from standfast.cli.frame import Command, argument, command, option, scope_options
from standfast.cli.open_store import opened
from standfast.cli.output import Out
from standfast.cli.progress import reported
from standfast.cli.render import Column

KINDS = ("message", "decision", "tool_call", "mail", "task")
_HELP = ("-h", "-v")


class Search(Command):
    """`-staging` excludes a word; it is not an option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ours = args[: args.index("--")] if "--" in args else args
        without = [word for word in ours if word[:1] == "-" and word[1:2] not in ("-", "") and word not in _HELP]
        if without:
            kept = [word for word in ours if word not in without]
            args = [*kept, "--", *without, *args[len(ours) + 1 :]]
        return super().parse_args(ctx, args)


@command(
    "search",
    cls=Search,
    examples=('standfast search "connection refused" --since 7d', "standfast search flaky parser --kind task --json"),
)
@argument("words", nargs=-1)
@option("--agent", help="Only search text by this agent.")
@option("--repo", help="Only search repositories whose name contains this text.")
@option("--since", help='Only search since this time: 7d, "tue 03:00", 2026-11-10.')
@option("--tool", help="Only search calls of this tool.")
@option("--role", help="Only search messages of this role: user, assistant.")
@option("--kind", type=click.Choice(KINDS), help="Only search rows of this kind.")
@option("--session", help="Only search this session.")
@option("--rank", "by_rank", is_flag=True, help="Print the best match first instead of the newest.")
@option("--rebuild", is_flag=True, help="Rebuild the search index first.")
@option("--after", help="Start after this cursor: the `next` of the page before.")
@option("--limit", default=20, show_default=True, type=click.IntRange(1, 1000), help="Print at most N rows.")
@scope_options
def search(out: Out, words: tuple[str, ...], rebuild: bool, scope_choice: str | None, **asked: Any) -> None:
    """Find WORDS in messages, decisions, tool calls, mail and tasks; "a phrase", -without, begin*."""
    report = reported(out)

    def told(count: int) -> None:
        report("indexing for the search", count, 0)

    text = " ".join(map(_quoted, words))
    with opened(scope_choice=scope_choice, create=False) as sf:
        if rebuild:
            sf.search_index.clear()
        if rebuild and not words:
            return out.record({"indexed": sf.search_index.catch_up(told)})
        whole = scope_choice == "all" or (scope_choice is None and sf.settings.label.outside)
        found = sf.search(text, everywhere=scope_choice == "all", progress=told, **asked)
    out.rows(
        [_shown(hit.as_dict()) if out.for_people else hit.as_dict() for hit in found.hits],
        [Column("when"), Column("kind"), Column("who"), Column("where"), Column("snippet", "found")],
        next=found.next,
        then=_then(found.hits),
        empty="nothing was found" + ("" if whole else f" here; everywhere: {hints.command('search', text, '--all')}"),
    )
    return None


def _quoted(word: str) -> str:
    """A word that contains spaces is a phrase, also after a minus."""
    if " " not in word or '"' in word:
        return word
    return f'-"{word[1:]}"' if word.startswith("-") else f'"{word}"'


def _shown(hit: dict[str, Any]) -> dict[str, Any]:
    who = ":".join(part for part in (hit["author"] or hit["agent"], hit["role"] or hit["tool"]) if part)
    where = hit["session_key"] or hit["id"][-6:]
    return {**hit, "when": when.shown(hit["occurred_us"]).local[4:-3], "who": who, "where": where}


def _then(hits: list[Any]) -> str:
    if not hits:
        return ""
    first = hits[0]
    if first.kind in ("decision", "mail", "task"):
        return hints.command(first.kind, "show", first.id[-6:])
    return hints.command("session", "show", first.session_key or first.session_id)
