"""`standfast event`: append events to streams; list, follow, consume and compare them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from standfast import hints, serial, when
from standfast.cli import values
from standfast.cli.answers import Many, literal
from standfast.cli.frame import argument, command_line, noun, option
from standfast.cli.open_store import opened
from standfast.cli.output import Out, dumps
from standfast.cli.render import Column, clean_lines
from standfast.clock import SYSTEM
from standfast.errors import InvalidInput, StandfastError

if TYPE_CHECKING:
    from standfast.handle import Standfast
    from standfast.record.events import Appended, Difference, Event, Listed

SESSION = "STANDFAST_SESSION"
INPUT_MAX_BYTES = 16 << 20
SHOWN = 160

event = noun(
    "event",
    "Append events to streams of your own; list, follow and consume them.",
    default="list",
    of="standfast.record.events:Events",
)


def _said(found: dict[str, Any]) -> str:
    text = found["summary"] or ("" if found["data"] is None else dumps(found["data"]))
    return text[:SHOWN]


COLUMNS = [
    Column("occurred_us", "when", values.second),
    Column("stream", show=lambda name: name or ""),
    Column("version", "v", lambda version: "" if version is None else str(version)),
    Column("type"),
    Column("agent", "by"),
    Column("said", "what"),
]


# -- writes ------------------------------------------------------------------------------------------


@event.verb(
    "append",
    examples=(
        """standfast event append orders placed '{"id": 42}' --key req-7""",
        "standfast event append orders - --expect 12 < events.jsonl",
    ),
)
@argument("stream")
@argument("type")
@argument("data", required=False)
@option(
    "--as",
    "form",
    type=click.Choice(["auto", "json", "text"]),
    default="auto",
    show_default=True,
    help="Read DATA as JSON (json), as text (text), or as JSON if it is valid JSON (auto).",
)
@option("--key", help="Append the event once per key; a repeated call appends nothing.")
@option(
    "--expect",
    type=click.IntRange(0),
    metavar="N",
    help="Append only if the stream is at version N; 0: it has no event.",
)
@option("--summary", help="Add a line that the timeline shows.")
@option("--at", help='The event happened at this time: "tue 03:00", "2h ago".  [default: now]')
@option("--session", envvar=SESSION, help="The session that the event belongs to.")
def append(
    out: Out,
    stream: str,
    type: str,
    data: str | None,
    form: str,
    key: str | None,
    expect: int | None,
    summary: str | None,
    at: str | None,
    session: str | None,
) -> None:
    """Append an event of TYPE to STREAM. DATA is JSON or text; - reads it from stdin.

    If TYPE is -, stdin has one event per line: {"type": …, "data": …}. All of them are appended, or none.
    """
    asked: dict[str, Any] = {"expected_version": expect, "key": key, "session": session}
    if type == "-":
        if data is not None or summary is not None or at is not None:
            raise click.UsageError("with - for TYPE, give DATA, --summary and --at in each line of stdin")
        lines = _lines()
        with opened() as sf:
            made = sf.events.append_many(stream, lines, **asked)
    else:
        value = _value(data, form)
        with opened() as sf:
            made = [sf.events.append(stream, type, value, summary=summary, occurred=at, **asked)]
    _print_appended(out, made)


def _print_appended(out: Out, made: list[Appended]) -> None:
    plain = [values.plain(one) for one in made]
    last = made[-1]
    if len(made) == 1:
        out.record(plain[0], [str(last.version)])
    else:
        out.rows(plain, ["version", "type"])
    if last.receipt is None and out.for_people:
        out.say("standfast: already appended with this key; nothing was added")
    out.then(hints.command("event", "list", last.stream))


# -- reads -------------------------------------------------------------------------------------------


def _older(found: list[Any], stream: str | None, limit: int, *, since: str | None, after: str | None) -> str:
    """The command that shows what came before the newest, where there is more than the page shows."""
    if since is not None or after is not None or len(found) < limit:
        return ""
    start = (stream, "--after", "0") if stream else ("--since", "30d")
    return hints.command("event", "list", *start)


def _newest(asked: dict[str, Any]) -> None:
    asked["newest"] = "since" not in asked and "after" not in asked


def _listed(sf: Standfast, found: Listed) -> Many:
    asked = click.get_current_context().params
    stream = asked["stream"]
    if stream is not None and not found.events and asked["scope_choice"] != "all":
        sf.events.stream(stream)  # raises NotFound, with the streams that exist
    older = asked["since"] is None and asked["after"] is None and len(found.events) == asked["limit"]
    if older:
        then = hints.command("event", "list", *((stream, "--after", "0") if stream else ("--since", "30d")))
    else:
        then = hints.command("event", "follow", stream) if stream else "standfast event streams"
    return Many(
        found.events,
        COLUMNS,
        limit=len(found.events) if found.next is not None else 0,
        cursor=lambda _: found.next,
        then=literal(then),
        empty="nothing has happened here",
        plain=lambda one: one.as_dict(),
        row=lambda one: {**one.as_dict(), "said": _said(one.as_dict())},
    )


event.generate(
    "list",
    answer=_listed,
    prepare=_newest,
    without=("newest",),
    options={"limit": {"default": 50}},
    examples=("standfast event list orders", "standfast event list --since 3h --type task --json"),
)
event.generate("streams", then="event list {name}", empty="no stream yet: standfast event append STREAM TYPE DATA")


@event.verb(
    "follow", examples=("standfast event follow orders --jsonl", "standfast event follow --type task --idle 10m")
)
@argument("stream", required=False)
@option("--type", help="Only print this type, or types that begin with this word.")
@option("--after", help="Start after this version of the stream.  [default: now]")
@option("--idle", help="End after this long without an event: 30s, 10m.  [default: never]")
def follow(out: Out, **asked: Any) -> None:
    """Print events of STREAM, or of the whole journal, as they arrive. `consume` also remembers the position."""
    with opened() as sf, sf.events.follow(**asked) as following:
        following.on_held_back = lambda sentence: out.say(f"standfast: {sentence}")
        out.say("standfast: waiting for events; end it with Ctrl-C") if out.for_people else None
        for one in following:
            _print(out, one)
            sys.stdout.flush()


@event.verb(
    "consume",
    examples=(
        "standfast event consume mailer orders -- ./send-mail.sh",
        "standfast event consume auditor orders --limit 10 --jsonl",
    ),
)
@argument("consumer")
@argument("stream", required=False)
@option(
    "--journal",
    is_flag=True,
    help="Read the whole journal instead of a stream; it includes the events of standfast itself.",
)
@option("--type", help="Only hand out this type, or types that begin with this word; skip the others.")
@option("--limit", type=click.IntRange(1), help="End after N events.")
@option("--peek", is_flag=True, help="Print the events and commit none.")
@option("--follow", "waits", is_flag=True, help="Wait for further events.")
@option("--idle", help="With --follow: end after this long without an event: 10m.")
@command_line()
def consume(
    out: Out,
    consumer: str,
    stream: str | None,
    journal: bool,
    type: str | None,
    limit: int | None,
    peek: bool,
    waits: bool,
    idle: str | None,
    command: tuple[str, ...],
) -> None:
    """Give CONSUMER the events of STREAM that it has not committed yet.

    COMMAND runs once for each event, with the event as JSON on stdin. Exit 0 commits the event. Any other exit code
    ends `consume`, and the next call gives the same event again. Without COMMAND, a printed event is committed.
    """
    if journal:
        command = command if stream is None else (stream, *command)
        stream = None
    elif stream is None:
        raise click.UsageError("give STREAM, or --journal for all events")
    with opened(create=waits) as sf:
        if peek:
            for one in sf.events.poll(consumer, stream, type=type, limit=limit or 100).events:
                _print(out, one)
            return
        with sf.events.consume(consumer, stream, type=type, follow=waits, idle=idle) as consuming:
            for count, one in enumerate(consuming, 1):
                _hand(out, one, command)
                consuming.commit()
                if count == limit:
                    break


def _hand(out: Out, one: Event, command: tuple[str, ...]) -> None:
    if not command:
        _print(out, one)
        sys.stdout.flush()  # print before the next commit
        return
    import subprocess

    try:
        ended = subprocess.run(command, input=dumps(one.as_dict()) + "\n", text=True, check=False)
    except OSError as error:
        raise InvalidInput(f"{command[0]}: {error.strerror}", "COMMAND is a program and its arguments") from None
    if ended.returncode != 0:
        raise StandfastError(
            f"{command[0]} exited with {ended.returncode} at {_named(one)}: the event is not committed",
            "repair the command, then run this again; to skip the event: sf.events.seek in Python",
            code="command_failed",
        )


event.generate("consumers", then="event consume {name} {reads} --peek", empty="no consumer reads events here")


# -- differences -------------------------------------------------------------------------------------


@event.verb(
    "diff",
    examples=(
        "standfast event diff board --from session:night-3 --to session:night-5",
        "standfast event diff board --from 'mon 09:00'",
    ),
)
@argument("stream")
@option("--from", "first", required=True, help='Compare from this version, time ("tue 03:00") or session:KEY.')
@option("--to", "second", help="Compare up to this version, time or session:KEY.  [default: now]")
def diff(out: Out, stream: str, first: str, second: str | None) -> None:
    """Show how the merged state of STREAM differs between two moments."""
    from standfast.record.events.folds import merged

    with opened(create=False) as sf:
        sf.events.stream(stream)
        between = (_at(first), _at(second))
        found: Difference[Any] = sf.events.diff(stream, merged, {}, between=between, name="standfast:merged")
    if out.for_people:
        out.say(f"standfast: version {found.before.version} to {found.after.version}")
    out.rows(
        [one.as_dict() for one in found.changes],
        [Column("path"), Column("kind"), Column("was", show=_json), Column("now", show=_json)],
        empty="nothing changed",
    )
    if found.truncated:
        out.say("standfast: there are more changes than are shown")


# -- private functions -------------------------------------------------------------------------------


def _print(out: Out, one: Event) -> None:
    plain = one.as_dict()
    words = f"{values.second(one.occurred_us)}  {_named(one)}  {clean_lines(_said(plain))}"
    out.record(plain, [words.rstrip()])


def _named(one: Event) -> str:
    return clean_lines(f"{one.stream} {one.version} {one.type}" if one.stream else f"{one.type} {one.subject}")


def _json(value: Any) -> str:
    return "" if value is None else dumps(value)[:SHOWN]


def _value(text: str | None, form: str) -> Any:
    from standfast.cli.state import parsed

    if text is None:
        return None
    return parsed(_input().removesuffix("\n") if text == "-" else text, form)


def _lines() -> list[Any]:
    lines = [line for line in _input().splitlines() if line.strip()]
    return [serial.loads(line, what=f"line {n}") for n, line in enumerate(lines, 1)]


def _input() -> str:
    data = sys.stdin.buffer.read(INPUT_MAX_BYTES + 1)
    if len(data) > INPUT_MAX_BYTES:
        raise InvalidInput(f"standard input has more than {INPUT_MAX_BYTES:,} bytes", "append it in parts")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InvalidInput(f"standard input is not UTF-8: byte {error.start}") from None


def _at(text: str | None) -> Any:
    """A moment of a stream: a version, a session or a time."""
    if text is None:
        return None
    if text.isdigit() and len(text) < 19:
        return int(text)
    if text.startswith("session:"):
        return text.removeprefix("session:")
    return when.utc(when.past(text, SYSTEM.now_us(), "--at").us)
