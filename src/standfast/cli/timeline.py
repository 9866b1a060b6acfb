"""`standfast timeline`: show the events around a time, or between two times."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from standfast import hints, when
from standfast.cli.frame import argument, command, option, scope_options
from standfast.cli.open_store import opened
from standfast.cli.output import Out
from standfast.cli.render import Column, clean, markdown
from standfast.cli.values import DURATION, TIME, home_short, plain
from standfast.clock import format_duration, iso
from standfast.config import load
from standfast.ids import is_id, short

if TYPE_CHECKING:
    from standfast.handle import Standfast
    from standfast.views.timeline import Entry, Gap, Timeline

NOW = {
    "effect_in_doubt": "still in doubt",
    "approval_waiting": "still waiting",
    "dead_letter": "still not settled",
    "session_crashed": "crashed: its process is gone",
}
"""The mark on the last entry of an item that is not settled now."""
COLUMNS = [
    Column("time"),
    Column("source"),
    Column("who"),
    Column("what"),
    Column("id"),
    Column("session", wraps=True),
    Column("repository", show=home_short),
]


EMPTY = dict.fromkeys((column.field for column in COLUMNS), "")
DEFAULTS = {"window": "1h"}


@command(
    "timeline",
    examples=('standfast timeline "tue 03:00"', "standfast timeline --since 1d --problems --all"),
)
@argument("time", nargs=-1, metavar="[TIME]")
@option("--at", type=TIME, hidden=True, help="The same as TIME.")
@option(
    "--window",
    type=DURATION,
    default="1h",
    show_default=True,
    help="Show this long a time span, half before and half after TIME.",
)
@option("--from", "start", type=TIME, help='Start at this time: "tue 02:00", 2026-11-17, 3h.')
@option("--to", "end", type=TIME, help="End at this time.  [default: now]")
@option("--since", type=TIME, help="Show from this time until now: 6h, yesterday.")
@option("--problems", is_flag=True, help="Only show what failed, crashed, is in doubt or did not run.")
@option("--session", metavar="KEY|ID", help="Only show this session.")
@option("--agent", metavar="NAME", help="Only show events of this agent or actor.")
@option("--subject", metavar="ID", help="Only show events of this row.")
@option("--type", "kind", metavar="TYPE", help="Only show this type: effect, or effect.dispatched.")
@option(
    "--limit", default=500, show_default=True, type=click.IntRange(1, 2000), metavar="N", help="Show at most N rows."
)
@option("--md", is_flag=True, help="Print Markdown.")
@option("--html", type=click.Path(dir_okay=False), metavar="FILE", help="Write an HTML page to FILE; - prints it.")
@scope_options
def timeline(
    out: Out,
    time: tuple[str, ...],
    at: str | None,
    start: str | None,
    end: str | None,
    since: str | None,
    kind: str | None,
    md: bool,
    html: str | None,
    scope_choice: str | None,
    **asked: Any,
) -> None:
    """Show recorded events around a TIME, oldest first: "tue 03:00", "3h ago". Default: now.

    The source is `seen` if standfast recorded the event, and `said` if an agent or a person reported it. Outside a
    repository it shows the events of all repositories.
    """
    from standfast.views import coverage

    if (html or md) and not out.for_people:
        raise click.UsageError("give only one of --html, --md and --json")
    asked |= {"at": _time(time, at, start or since or end), "start": _start(start, since), "end": end, "type": kind}
    everywhere = coverage.choice(scope_choice)
    settings = load(outside=scope_choice == "global")
    with opened(settings, create=False) as sf:
        found = sf.timeline(**asked, everywhere=everywhere)
        now = _unsettled(sf, found) if out.for_people and found.entries else {}
        elsewhere = sf.recovery.report(everywhere=everywhere, limit=1).elsewhere
        whole = coverage.covers_all(sf._store.caller, everywhere)
    if not out.for_people:
        out.record(_as_json(found) | {"elsewhere": elsewhere})
        return
    options = _options(asked) + ([f"--{scope_choice}"] if scope_choice else [])
    lines = (
        _html(found, now) if html else _markdown(found, now) if md else _text(out, found, now, whole, asked["problems"])
    )
    if html and html != "-":
        _written(out, html, "\n".join(lines))
    else:
        for line in lines:
            out.text(line)
    _rest_of_it(out, found, options, elsewhere)
    if asked["problems"] and (unread := coverage.not_read(coverage.unread_stores(settings))):
        out.say(unread)


def _time(words: tuple[str, ...], at: str | None, other: str | None) -> str:
    """TIME as one text: it may be typed without quotes."""
    time = " ".join(words) or at
    if time and other:
        raise click.UsageError("give TIME, or --from, --to and --since, not both")
    return time or "now"


def _start(start: str | None, since: str | None) -> str | None:
    if start and since:
        raise click.UsageError("give --from or --since, not both")
    return start or since


def _written(out: Out, path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(text + "\n")
    out.text(path)


def _rest_of_it(out: Out, found: Timeline, options: list[str], elsewhere: dict[str, int]) -> None:
    from standfast.views import coverage

    if found.truncated:
        out.say(f"more was recorded than these {len(found.entries)}: {_rest(found, options)}")
    if elsewhere:
        out.say(f"{coverage.waiting_elsewhere(elsewhere)}: standfast status --all")
    if found.entries:
        last = found.entries[-1].subject
        out.then(hints.command("show", _id(found.entries[-1])) if is_id(last) else _about(last))
    else:
        choice = [option for option in options if option in ("--all", "--global")]
        out.then(hints.command("timeline", "--since", "1d", *choice))


def _about(subject: str) -> str:
    return hints.command("timeline", "--since", "30d", "--subject", subject)


def _id(entry: Entry) -> str:
    return short(entry.subject) if is_id(entry.subject) else entry.subject


def _options(asked: dict[str, Any]) -> list[str]:
    """The given options, repeated in the next command."""
    words = [asked["at"]] if asked["at"] != "now" else []
    names = {"start": "from", "end": "to"}
    given = {name: value for name, value in asked.items() if name not in ("at", "limit") and value}
    for name, value in given.items():
        if DEFAULTS.get(name) != value:
            words += [f"--{names.get(name, name)}"] if value is True else [f"--{names.get(name, name)}", value]
    return words


def _rest(found: Timeline, options: list[str]) -> str:
    """The command that shows the remaining rows: a larger limit, or the same span from the last row."""
    from standfast.views.timeline import ROWS_MAX

    if len(found.entries) < ROWS_MAX:
        return hints.command("timeline", *options, "--limit", str(ROWS_MAX))
    kept, skip = [], False
    for word in options if options[:1] and options[0].startswith("--") else options[1:]:
        if not skip and word not in ("--from", "--to", "--window"):
            kept.append(word)
        skip = word in ("--from", "--to", "--window")
    span = ("--from", iso(found.entries[-1].occurred_us), "--to", iso(found.until_us), "--limit", str(ROWS_MAX))
    return hints.command("timeline", *kept, *span)


def _as_json(found: Timeline) -> dict[str, Any]:
    return {**plain(found), "at": found.at and found.at.as_dict()}


def _head(found: Timeline) -> str:
    start, end = when.shown(found.from_us), when.shown(found.until_us)
    last = end.local if end.local[:14] != start.local[:14] else end.local[15:]
    if found.at is None:
        return f"{start.local} to {last} {end.zone}"
    return f"{found.at}: {start.local[4:]} to {last}"


def _unsettled(sf: Standfast, found: Timeline) -> dict[str, str]:
    kinds = sf.recovery.unsettled_of(frozenset(entry.subject for entry in found.entries))
    return {id: NOW[kind] for id, kind in kinds.items() if kind in NOW}


def _rows(found: Timeline, now: dict[str, str]) -> Iterator[dict[str, str]]:
    """Entries and gaps in the order of time, with a line at the start of each day."""
    day = ""
    last = {entry.subject: n for n, entry in enumerate(found.entries)}
    gaps = sorted(found.gaps, key=lambda gap: (gap.from_us, gap.until_us))
    for n, entry in enumerate(found.entries):
        while gaps and gaps[0].until_us <= entry.occurred_us:
            yield {**EMPTY, "what": _gap(gaps.pop(0))}
        local = when.shown(entry.occurred_us).local
        if local[:14] != day:
            day = local[:14]
            yield {**EMPTY, "what": f"-- {day} --"}
        what = entry.type if not entry.summary else f"{entry.type}  {entry.summary}"
        if entry.seq == 0 and entry.type != "run.absent" and entry.state not in (None, "ok"):
            what += f" ({entry.state})"  # an imported call: show how it ended
        if last[entry.subject] == n and entry.subject in now:
            what += f" ({now[entry.subject]})"
        yield {
            "time": local[15:],
            "source": entry.source,
            "who": entry.agent,
            "what": what,
            "id": _id(entry),
            "session": entry.session_key or "",
            "repository": entry.repository,
        }
    for gap in gaps:
        yield {**EMPTY, "what": _gap(gap)}


def _gap(gap: Gap) -> str:
    start, end = when.shown(gap.from_us).local[4:-3], when.shown(gap.until_us).local[4:-3]
    if gap.open_start and gap.open_end:
        return "(nothing is recorded)"
    if gap.open_start:
        return f"(nothing before {end})"
    if gap.open_end:
        return f"(nothing since {start})"
    length = format_duration(gap.until_us - gap.from_us, parts=2)
    return f"(nothing from {start} to {end}: {length})"


def _text(out: Out, found: Timeline, now: dict[str, str], whole: bool, problems: bool) -> Iterator[str]:
    yield out.styled(_head(found), "bold")
    rows = list(_rows(found, now))
    if not rows:
        yield "no problem was recorded" if problems else "nothing was recorded"
        return
    if not found.entries:
        yield from (row["what"] for row in rows)
        return
    yield from out.table(rows, COLUMNS if whole else COLUMNS[:-1])


def _markdown(found: Timeline, now: dict[str, str]) -> Iterator[str]:
    yield f"## {_head(found)}"
    yield ""
    yield f"| {' | '.join(EMPTY)} |"
    yield "|---" * len(EMPTY) + "|"
    for row in _rows(found, now):
        yield f"| {' | '.join(markdown(row[name]) for name in EMPTY)} |"


def _html(found: Timeline, now: dict[str, str]) -> Iterator[str]:
    """A complete HTML page without scripts and external styles."""
    from html import escape

    yield '<!doctype html><meta charset="utf-8">'
    yield f"<title>{escape(_head(found))}</title>"
    yield "<style>body{font:14px sans-serif} td,th{padding:2px 8px;text-align:left;vertical-align:top}</style>"
    yield f"<h1>{escape(_head(found))}</h1>"
    yield f"<table><tr>{''.join(f'<th>{name}</th>' for name in EMPTY)}</tr>"
    for row in _rows(found, now):
        yield f"<tr>{''.join(f'<td>{escape(clean(row[name]))}</td>' for name in EMPTY)}</tr>"
    yield "</table>"
