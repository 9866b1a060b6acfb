"""`standfast webhook`: what others deliver, recorded once and handled once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from standfast.cli.frame import Command, argument, noun, option, place, scope_options
from standfast.cli.output import Out
from standfast.cli.render import Column, clean_lines

if TYPE_CHECKING:
    from standfast.ledger.webhooks import WebhookEvent
    from standfast.ledger.webhooks.nouns import Shown

STATES = ("received", "done", "dead")
_COMMAND = "standfast.command"

webhook = noun("webhook", "Webhooks: what others deliver, recorded once, handled once.", default="list")


class _WithCommand(Command):
    """A command line that may end in another one: `-- COMMAND …`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[_COMMAND] = ()
        if "--" in args:
            cut = args.index("--")
            args, ctx.meta[_COMMAND] = args[:cut], tuple(args[cut + 1 :])
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- COMMAND …]"]


def _command() -> tuple[str, ...]:
    found: tuple[str, ...] = click.get_current_context().meta[_COMMAND]
    return found


def _short(id: object) -> str:
    return str(id)[-6:]


def _moment(us: int) -> str:
    from time import localtime, strftime

    return strftime("%Y-%m-%d %H:%M:%S", localtime(us // 1_000_000))


COLUMNS = [
    Column("id", show=_short),
    Column("state"),
    Column("source"),
    Column("event_id", "event"),
    Column("kind"),
    Column("deliveries", "delivered"),
    Column("attempts", "tried"),
    Column("received_us", "received", _moment),
    Column("by", "held by"),
    Column("error"),
]


# -- receiving ---------------------------------------------------------------------------------------


@webhook.verb(
    "receive",
    cls=_WithCommand,
    examples=(
        "standfast webhook receive stripe --event-id evt_1 body.json --ignore pending_webhooks",
        "curl … | standfast webhook receive github --event-id 72d3162e --kind push -- ./on-push.sh",
    ),
)
@argument("source")
@argument("file", default="-")
@option("--event-id", required=True, help="The sender's own id of the event.")
@option("--kind", help="What happened, in the sender's words: invoice.paid.")
@option("--ignore", multiple=True, help="A field of the body that the sender changes with every delivery.")
@option("--text", is_flag=True, help="The body is text, not JSON.")
@option("--attempts-max", type=int, default=8, show_default=True, help="So many attempts, then it is a dead letter.")
def receive(out: Out, source: str, file: str, event_id: str, text: bool, **given: Any) -> None:
    """Record one delivery from SOURCE: the body in FILE, or on standard input.

    The event is known by SOURCE and --event-id. The first delivery counts, every other is answered
    with what became of it. With COMMAND it is handled at once: the body is its standard input,
    exit 0 is done, and its output is what every later delivery is answered with.

    Whether the delivery is genuine is not checked here: verify signatures before.
    """
    from standfast.cli.store import opened

    command = _command()
    payload = _payload(file, text=text)
    with opened() as sf:
        event = sf.webhooks.receive(source, event_id, payload, **given)
    if command:
        from standfast.cli.webhook_run import answer

        raise click.exceptions.Exit(answer(out, event, command))
    out.record(plain(event), [event.id])
    if out.for_people:
        out.say(f"standfast: {_found(event)}")
    out.then("standfast webhook claim" if event.state == "received" else f"standfast webhook show {_short(event.id)}")


# -- working -----------------------------------------------------------------------------------------


@webhook.verb("claim", examples=("standfast webhook claim --json", "standfast webhook claim 9k2m4x --for 1h"))
@argument("event", required=False)
@option("--source", help="Only from this source.")
@option("--kind", help="Only of this kind.")
@option("--for", "term", help="Hold it this long from your last command: 30m, 2h.  [default: 15m]")
@option("--while", "pid", type=int, help="Hold it as long as this process lives: --while $$")
def claim(out: Out, event: str | None, source: str | None, kind: str | None, term: str | None, pid: int | None) -> None:
    """Take the event that has waited longest, or EVENT, alone. Prints its id; exit 3 if none is ready."""
    from standfast.cli.lock import held_for
    from standfast.cli.store import held_while, opened
    from standfast.config import load
    from standfast.errors import NotFound

    for_us = held_for(_duration(term), pid)
    with opened(create=False) if pid is None else held_while(load(), pid, create=False) as sf:
        if event is not None:
            claimed: WebhookEvent | None = sf.webhooks.claim(event, for_us=for_us)
        else:
            claimed = sf.webhooks.claim(source=source, kind=kind, for_us=for_us)
    if claimed is None:
        raise NotFound("no event is ready", "what there is: standfast webhook list", code="nothing_ready")
    out.record(plain(claimed), [claimed.id])
    if out.for_people:
        out.say(f"standfast: {claimed.name}, attempt {claimed.attempts} of {claimed.attempts_max}")
    out.then(f"standfast webhook done {_short(claimed.id)}")


@webhook.verb("renew", examples=("standfast webhook renew 9k2m4x", "standfast webhook renew 9k2m4x --for 1h"))
@argument("event")
@option("--for", "term", help="So long from now.  [default: as long as it was claimed for]")
def renew(out: Out, event: str, term: str | None) -> None:
    """Hold on to EVENT for another term."""
    from standfast.cli.store import opened

    with opened(create=False) as sf:
        renewed = sf.webhooks.renew(event, for_us=_duration(term))
    out.record(plain(renewed), [f"{_short(renewed.id)} is yours until {_moment(renewed.lease_until_us or 0)}"])


@webhook.verb(
    "done", examples=("standfast webhook done 9k2m4x", "standfast webhook done stripe/evt_1 --result '{\"order\": 7}'")
)
@argument("event")
@option("--result", help="What every later delivery is answered with: JSON, or text.")
def done(out: Out, event: str, result: str | None) -> None:
    """EVENT is handled. Held by somebody else it is refused: exit 4."""
    from standfast.cli.store import opened

    with opened(create=False) as sf:
        ended = sf.webhooks.done(event, _json_or_text(result))
    out.record(plain(ended), [f"{_short(ended.id)} is done"])
    out.then("standfast webhook claim")


@webhook.verb(
    "fail",
    examples=(
        "standfast webhook fail 9k2m4x --reason 'the API answered 503'",
        "standfast webhook fail 9k2m4x --reason 'unknown customer' --dead",
    ),
)
@argument("event")
@option("--reason", required=True, help="What went wrong.")
@option("--again-in", "again", help="Try it again after this long.  [default: 30s, then twice as long each time]")
@option("--dead", is_flag=True, help="Never try it again: a person has to look.")
def fail(out: Out, event: str, reason: str, again: str | None, dead: bool) -> None:
    """Handling EVENT failed: it is tried again later; after its last attempt it is a dead letter."""
    from standfast.cli.store import opened

    with opened(create=False) as sf:
        failed = sf.webhooks.fail(event, reason, again_us=_duration(again), dead=dead)
    if failed.state == "dead":
        out.record(plain(failed), [f"{_short(failed.id)} is dead after {failed.attempts} attempts"])
        out.then(f"standfast webhook retry {_short(failed.id)}")
    else:
        again_at = f"attempt {failed.attempts} of {failed.attempts_max}, again at {_moment(failed.ready_us)}"
        out.record(plain(failed), [f"{_short(failed.id)} failed: {again_at}"])
        out.then("standfast webhook claim")


# -- what is dead --------------------------------------------------------------------------------------


@webhook.verb("dead", examples=("standfast webhook dead", "standfast webhook dead --settled --all --json"))
@option("--settled", is_flag=True, help="Also what was retried or resolved.")
@option("--after", callback=place, help="Where the page before ended.")
@option("--limit", default=50, show_default=True, type=click.IntRange(1, 1000))
@scope_options
def dead(out: Out, settled: bool, after: str | None, limit: int, scope_choice: str | None) -> None:
    """List what was given up, with the reason."""
    from standfast.cli.store import opened
    from standfast.config import load

    with opened(load(outside=scope_choice == "global"), create=False) as sf:
        found = sf.webhooks.dead(everywhere=scope_choice == "all", settled=settled, after=after, limit=limit)
    columns = [
        Column("subject", "event", _short),
        Column("attempts", "tried"),
        Column("created_us", "since", _moment),
        Column("settlement"),
        Column("reason"),
    ]
    out.rows(
        [one._asdict() | {"receipt": None} for one in found],
        columns if settled else [column for column in columns if column.field != "settlement"],
        next=found[-1].id if len(found) == limit else None,
        then=f"standfast webhook show {_short(found[0].subject)}" if found else "",
        empty="nothing was given up",
    )


@webhook.verb(
    "retry", examples=("standfast webhook retry 9k2m4x", "standfast webhook retry 9k2m4x --note 'the API is back'")
)
@argument("event")
@option("--note", help="What has changed.")
def retry(out: Out, event: str, note: str | None) -> None:
    """Hand EVENT out again, now: a dead one with all its attempts before it."""
    from standfast.cli.store import opened

    with opened(create=False) as sf:
        again = sf.webhooks.retry(event, note=note)
    out.record(plain(again), [f"{_short(again.id)} is ready"])
    out.then(f"standfast webhook claim {_short(again.id)}")


@webhook.verb(
    "resolve",
    examples=(
        "standfast webhook resolve 9k2m4x --note 'refunded by hand'",
        "standfast webhook resolve 9k2m4x --note 'test data' --json",
    ),
)
@argument("event")
@option("--note", required=True, help="How it was looked after.")
@option("--result", help="What every later delivery is answered with: JSON, or text.")
def resolve(out: Out, event: str, note: str, result: str | None) -> None:
    """Somebody looked after a dead EVENT in another way: it is done."""
    from standfast.cli.store import opened

    with opened(create=False) as sf:
        resolved = sf.webhooks.resolve(event, note=note, result=_json_or_text(result))
    out.record(plain(resolved), [f"{_short(resolved.id)} is resolved"])
    out.then("standfast webhook dead")


# -- looking -----------------------------------------------------------------------------------------


@webhook.verb("list", examples=("standfast webhook list", "standfast webhook list --state received --json"))
@option("--state", type=click.Choice(STATES))
@option("--source")
@option("--kind")
@option("--after", callback=place, help="Where the page before ended.")
@option("--limit", default=50, show_default=True, type=click.IntRange(1, 1000))
@scope_options
def list_(out: Out, limit: int, scope_choice: str | None, **asked: Any) -> None:
    """List what was received, the newest first."""
    from standfast.cli.store import opened
    from standfast.config import load

    with opened(load(outside=scope_choice == "global"), create=False) as sf:
        found = sf.webhooks.list(everywhere=scope_choice == "all", limit=limit, **asked)
    out.rows(
        [{**one._asdict(), "by": _holder(one)} if out.for_people else plain(one) for one in found],
        COLUMNS,
        next=found[-1].id if len(found) == limit else None,
        then=f"standfast webhook show {_short(found[0].id)}" if found else "",
        empty="nothing was received here",
    )


@webhook.verb("show", examples=("standfast webhook show 9k2m4x", "standfast webhook show stripe/evt_1 --json"))
@argument("event")
def show(out: Out, event: str) -> None:
    """Show EVENT: its body, its result, why it failed, and every change."""
    from standfast.cli.store import opened

    with opened(create=False) as sf:
        shown = sf.webhooks.show(event)
    if not out.for_people:
        letter = shown.letter._asdict() | {"receipt": None} if shown.letter else None
        out.record({**plain(shown.event), "dead_letter": letter, "history": [one._asdict() for one in shown.history]})
        return
    for line in _lines(out, shown):
        out.text(line)
    if shown.event.state == "dead":
        out.then(f"standfast webhook retry {_short(shown.event.id)}")


# -- small parts -------------------------------------------------------------------------------------


def plain(found: WebhookEvent) -> dict[str, Any]:
    """The noun's own fields, and its receipt as commands print it."""
    return {**found._asdict(), "receipt": found.receipt.as_json() if found.receipt else None}


def _lines(out: Out, shown: Shown) -> list[str]:
    from standfast.cli.output import dumps

    event, letter = shown.event, shown.letter
    waits = event.state == "received" and event.holder is None
    pairs = [
        ("event", event.id),
        ("from", event.name),
        ("kind", event.kind),
        ("state", event.state),
        ("received", f"{_moment(event.received_us)}, delivered {event.deliveries}×"),
        ("tried", f"{event.attempts} of {event.attempts_max}"),
        ("ready", _moment(event.ready_us) if waits else None),
        ("held by", _holder(event)),
        ("error", event.error),
        ("result", dumps(event.result) if event.result is not None else None),
        ("given up", _settled(letter) if letter is not None else None),
        ("body", dumps(event.payload)),
    ]
    lines = list(out.pairs([(label, value) for label, value in pairs if value not in (None, "")]))
    told = (f"{_moment(e.time_us)}  {e.type:<19} {e.actor}  {clean_lines(e.summary or '')}" for e in shown.history)
    return [*lines, "", *told]


def _settled(letter: Any) -> str:
    words = f"{_moment(letter.created_us)}: {letter.reason}"
    if letter.settlement is None:
        return words
    note = f": {letter.note}" if letter.note else ""
    return f"{words} ({letter.settlement} by {letter.settled_by} at {_moment(letter.settled_us)}{note})"


def _holder(found: WebhookEvent) -> str | None:
    from standfast.footings.leases import who

    if found.holder is None:
        return None
    return who(found.holder) + {"gone": " (gone)", "over": " (late)"}.get(found.standing, "")


def _found(event: WebhookEvent) -> str:
    if event.fresh:
        return "received"
    ended = f" since {_moment(event.ended_us)}" if event.ended_us is not None else ""
    return f"delivered before, {event.deliveries} times now; it is {event.state}{ended}"


def _payload(file: str, *, text: bool) -> Any:
    """What was delivered: JSON, or text if they say so."""
    import sys

    from standfast import serial
    from standfast.errors import InvalidInput

    if file == "-" and (sys.stdin is None or sys.stdin.isatty()):
        raise click.UsageError("what was delivered? a FILE, or the body on standard input")
    data = _bytes(file, serial.PAYLOAD_MAX_BYTES)
    if len(data) > serial.PAYLOAD_MAX_BYTES:
        raise InvalidInput(
            f"the body has more than {serial.PAYLOAD_MAX_BYTES:,} bytes",
            "keep it with standfast artifact put, and record its id",
        )
    if text:
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise InvalidInput(f"body: byte {error.start} is not UTF-8", "encode it first: base64") from None
    try:
        return serial.loads(data, what="body")
    except InvalidInput as error:
        raise InvalidInput(error.message, "a body that is not JSON is recorded with --text") from None


def _bytes(file: str, limit_bytes: int) -> bytes:
    """At most one byte more than may be stored: whoever sends a terabyte is told so."""
    import sys

    if file == "-":
        return sys.stdin.buffer.read(limit_bytes + 1)
    try:
        with open(file, "rb") as source:
            return source.read(limit_bytes + 1)
    except OSError as error:
        raise click.UsageError(f"{file}: {error.strerror}") from None


def _json_or_text(text: str | None) -> Any:
    from standfast import serial
    from standfast.errors import InvalidInput

    if text is None:
        return None
    try:
        return serial.loads(text, what="result")
    except InvalidInput:
        return text


def _duration(text: str | None) -> int | None:
    if text is None:
        return None
    from standfast.clock import parse_duration

    return parse_duration(text)
