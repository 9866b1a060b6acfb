"""`standfast timeline`: what really happened around a moment."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from standfast.cli.frame import command, option, scope_options
from standfast.cli.output import Out
from standfast.cli.render import Column, markdown
from standfast.footings import hints

if TYPE_CHECKING:
    from standfast.handle import Standfast
    from standfast.views.timeline import Gap, Timeline

NOW = {
    "effect_in_doubt": "in doubt to this day",
    "approval_waiting": "waits to this day",
    "dead_letter": "not settled to this day",
    "session_crashed": "crashed: its process is gone",
}
"""What is said beside the last entry about a thing that nobody has settled since."""


DEFAULTS = {"at": "now", "window": "1h"}


@command(
    "timeline",
    examples=('standfast timeline --at "tue 03:00"', "standfast timeline --window 6h --session fix-42 --md"),
)
@option("--at", default="now", show_default=True, help='A moment as you would say it: "tue 03:00", "3h ago".')
@option("--window", default="1h", show_default=True, help="How much time around it, half before and half after.")
@option("--session", help="Only this session: its key or id.")
@option("--agent", help="Only what this agent or actor did.")
@option("--subject", help="Only what happened to this thing: its id, or the end of it as the table prints it.")
@option("--type", "kind", help='Only this kind: "effect", or "effect.dispatched".')
@option("--limit", default=500, show_default=True, type=click.IntRange(1, 2000))
@option("--md", is_flag=True, help="As Markdown, to paste into a report.")
@scope_options
def timeline(
    out: Out,
    at: str,
    window: str,
    session: str | None,
    agent: str | None,
    subject: str | None,
    kind: str | None,
    limit: int,
    md: bool,
    scope_choice: str | None,
) -> None:
    """Show what was recorded around a moment, in order, with what standfast saw and what agents said told apart."""
    from standfast.cli.store import opened
    from standfast.config import load
    from standfast.views import coverage

    everywhere = coverage.choice(scope_choice)
    with opened(load(outside=scope_choice == "global"), create=False) as sf:
        found = sf.timeline(
            at,
            window=window,
            session=session,
            agent=agent,
            subject=subject,
            type=kind,
            everywhere=everywhere,
            limit=limit,
        )
        now = _unsettled(sf, found) if out.for_people and found.entries else {}
        elsewhere = sf.recovery.report(everywhere=everywhere, limit=1).elsewhere
    asked = {"at": at, "window": window, "session": session, "agent": agent, "subject": subject, "type": kind}
    options = _options(asked) + ([f"--{scope_choice}"] if scope_choice else [])
    if out.for_people:
        for line in _markdown(found, now) if md else _text(out, found, now):
            out.text(line)
        if found.truncated:
            out.say(f"more was recorded than these {limit}: {_rest(found, limit, options)}")
        if elsewhere:
            out.say(f"{coverage.waiting_elsewhere(elsewhere)}: standfast status --all")
        about = hints.command("timeline", *options, "--subject", "ID")
        out.then(about if found.entries else 'standfast timeline --at "3h ago" --window 6h')
    else:
        out.record(_as_json(found) | {"elsewhere": elsewhere})


def _options(asked: dict[str, str | None]) -> list[str]:
    """What was asked for, as options of the next command."""
    given = {name: value for name, value in asked.items() if value is not None and DEFAULTS.get(name) != value}
    return [word for name, value in given.items() for word in (f"--{name}", value)]


def _rest(found: Timeline, limit: int, options: list[str]) -> str:
    """The command that shows what was left out: more rows, or the same window from the last row on."""
    from standfast.clock import format_duration, iso
    from standfast.views.timeline import ROWS_MAX

    if limit < ROWS_MAX:
        return hints.command("timeline", *options, "--limit", str(ROWS_MAX))
    last_us = found.entries[-1].occurred_us
    window_us = max(found.until_us - last_us, 2)
    window = format_duration(window_us)
    span = ("--at", iso(last_us + window_us // 2), "--window", window, "--limit", str(limit))
    return hints.command("timeline", *options, *span)


def _as_json(found: Timeline) -> dict[str, Any]:
    return {
        "at": found.at._asdict(),
        "from_us": found.from_us,
        "until_us": found.until_us,
        "entries": [entry._asdict() | {"who": entry.who} for entry in found.entries],
        "gaps": [gap._asdict() for gap in found.gaps],
        "truncated": found.truncated,
    }


def _head(found: Timeline) -> str:
    from standfast.views import when

    start, end = when.shown(found.from_us), when.shown(found.until_us)
    last = end.local if end.local[:14] != start.local[:14] else end.local[15:]
    return f"{found.at}: {start.local[4:]} to {last}"


def _unsettled(sf: Standfast, found: Timeline) -> dict[str, str]:
    kinds = sf.recovery.unsettled_of(frozenset(entry.subject for entry in found.entries))
    return {id: NOW[kind] for id, kind in kinds.items() if kind in NOW}


def _rows(found: Timeline, now: dict[str, str]) -> Iterator[dict[str, str]]:
    """Entries and gaps in one order. The day is named once, where it begins."""
    from standfast.ids import is_id, short
    from standfast.views import when

    day = ""
    last = {entry.subject: n for n, entry in enumerate(found.entries)}
    gaps = sorted(found.gaps)
    for n, entry in enumerate(found.entries):
        while gaps and gaps[0].until_us <= entry.occurred_us:
            yield {"time": "", "source": "", "who": "", "what": _gap(gaps.pop(0)), "about": ""}
        local = when.shown(entry.occurred_us).local
        time = local[15:] if local[:14] == day else local[4:]
        day = local[:14]
        about = short(entry.subject) if is_id(entry.subject) else entry.subject
        what = entry.type if not entry.summary else f"{entry.type}  {entry.summary}"
        if entry.seq == 0 and entry.state not in (None, "ok"):
            what += f" ({entry.state})"  # an imported call: how it ended is the answer
        if last[entry.subject] == n and entry.subject in now:
            what += f" ({now[entry.subject]})"
        yield {
            "time": time,
            "source": entry.source,
            "who": entry.who,
            "what": what,
            "about": f"{about} in {entry.session_key}" if entry.session_key else about,
        }
    for gap in gaps:
        yield {"time": "", "source": "", "who": "", "what": _gap(gap), "about": ""}


def _gap(gap: Gap) -> str:
    from standfast.clock import format_duration
    from standfast.views import when

    start, end = when.shown(gap.from_us).local[4:-3], when.shown(gap.until_us).local[4:-3]
    if gap.open_start and gap.open_end:
        return "(nothing was ever recorded)"
    if gap.open_start:
        return f"(nothing before {end})"
    if gap.open_end:
        return f"(nothing since {start})"
    length = format_duration(gap.until_us - gap.from_us, parts=2)
    return f"(nothing from {start} to {end}: {length})"


def _text(out: Out, found: Timeline, now: dict[str, str]) -> Iterator[str]:
    yield out.styled(_head(found), "bold")
    rows = list(_rows(found, now))
    if not rows:
        yield "nothing was recorded"
        return
    yield from out.table(rows, [Column("time"), Column("source"), Column("who"), Column("what"), Column("about")])


def _markdown(found: Timeline, now: dict[str, str]) -> Iterator[str]:
    yield f"## {_head(found)}"
    yield ""
    yield "| time | source | who | what | about |"
    yield "|---|---|---|---|---|"
    for row in _rows(found, now):
        cells = (markdown(row[name]) for name in ("time", "source", "who", "what", "about"))
        yield f"| {' | '.join(cells)} |"
