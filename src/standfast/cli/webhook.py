"""`standfast webhook`: record each incoming event once, and handle it once."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from standfast import serial
from standfast.cli.answers import One
from standfast.cli.answers import show as show_answer
from standfast.cli.frame import argument, command_line, noun, option
from standfast.cli.open_store import opened
from standfast.cli.output import Out, dumps
from standfast.cli.render import clean_lines
from standfast.cli.values import second, short
from standfast.errors import InvalidInput

if TYPE_CHECKING:
    from standfast.handle import Standfast
    from standfast.ledger.webhooks import WebhookEvent
    from standfast.ledger.webhooks.models import Shown

STATES = ("received", "done", "dead")

webhook = noun(
    "webhook",
    "Record each incoming event once, and handle it once.",
    default="list",
    of="standfast.ledger.webhooks:Webhooks",
)


# -- deliveries --------------------------------------------------------------------------------------


@webhook.verb(
    "receive",
    examples=(
        "standfast webhook receive stripe --event-id evt_1 body.json --ignore pending_webhooks",
        "curl … | standfast webhook receive github --event-id 72d3162e --kind push -- ./on-push.sh",
    ),
)
@argument("source")
@argument("file", default="-")
@option("--event-id", required=True, help="The id that the sender gave the event.")
@option("--kind", help="The type of the event as the sender names it: invoice.paid.")
@option(
    "--ignore",
    multiple=True,
    help="Ignore this field of the body, because it differs in each delivery; may be given several times.",
)
@option("--text", is_flag=True, help="Read the body as text, not as JSON.")
@option(
    "--attempts-max",
    type=int,
    default=8,
    show_default=True,
    help="Make the event a dead letter after N failed attempts.",
)
@command_line()
def receive(
    out: Out, source: str, file: str, event_id: str, text: bool, command: tuple[str, ...], **given: Any
) -> None:
    """Record one delivery from SOURCE: the body in FILE, or on stdin.

    SOURCE and --event-id identify the event. A repeated delivery changes nothing and prints the state of the event.
    With COMMAND the event is handled immediately: COMMAND gets the body on stdin, exit 0 marks the event as done, and
    a repeated delivery prints the stored output of COMMAND.

    This command does not verify that the delivery is genuine: check its signature first.
    """
    payload = _payload(file, text=text)
    with opened() as sf:
        event = sf.webhooks.receive(source, event_id, payload, **given)
    if command:
        from standfast.cli.webhook_run import answer

        raise click.exceptions.Exit(answer(out, event, command))
    then = "webhook claim" if event.state == "received" else "webhook show {id}"
    show_answer(out, One(event, [event.id], then=then, say=_found(event)))


# -- claims ------------------------------------------------------------------------------------------


def _claimed(_: Standfast, claimed: WebhookEvent) -> One:
    say = f"{claimed.name}, attempt {claimed.attempts} of {claimed.attempts_max}"
    return One(claimed, [claimed.id], then="webhook done {id}", say=say)


webhook.generate(
    "claim",
    answer=_claimed,
    options={"which": {"metavar": "EVENT"}},
    holds=True,
    nothing=("no event is ready", "all events: standfast webhook list"),
    examples=("standfast webhook claim --json", "standfast webhook claim 9k2m4x --for 1h"),
)


def _failed(_: Standfast, failed: WebhookEvent) -> One:
    if failed.state == "dead":
        return One(failed, "{id} is dead after {attempts} attempts", then="webhook retry {id}")
    return One(
        failed, "{id} failed: attempt {attempts} of {attempts_max}, again at {ready_us}", then="webhook show {id}"
    )


webhook.generate(
    "renew",
    examples=("standfast webhook renew 9k2m4x", "standfast webhook renew 9k2m4x --for 1h"),
    text="{id} is yours until {lease_until_us}",
)
webhook.generate(
    "done",
    examples=("standfast webhook done 9k2m4x", "standfast webhook done stripe/evt_1 --result '{\"order\": 7}'"),
    text="{id} is done",
    then="webhook list",
)
webhook.generate(
    "fail",
    answer=_failed,
    by_name=("reason",),
    options={"again": {"flag": "--again-in"}},
    examples=(
        "standfast webhook fail 9k2m4x --reason 'the API answered 503'",
        "standfast webhook fail 9k2m4x --reason 'unknown customer' --dead",
    ),
)
webhook.generate(
    "dead",
    examples=("standfast webhook dead", "standfast webhook dead --settled --all --json"),
    columns=("subject event", "attempts tried", "created_us since", "settlement", "reason"),
    then="webhook show {subject}",
    empty="no dead letters",
)
webhook.generate(
    "retry",
    examples=("standfast webhook retry 9k2m4x", "standfast webhook retry 9k2m4x --note 'the API is back'"),
    text="{id} is ready",
    then="webhook claim {id}",
)
webhook.generate(
    "resolve",
    examples=(
        "standfast webhook resolve 9k2m4x --note 'refunded by hand'",
        "standfast webhook resolve 9k2m4x --note 'test data' --json",
    ),
    text="{id} is resolved",
    then="webhook dead",
)
webhook.generate(
    "list",
    examples=("standfast webhook list", "standfast webhook list --state received --json"),
    options={"state": {"type": click.Choice(STATES)}},
    then="webhook show {id}",
    empty="no event was received here",
)


def _shown(_: Standfast, shown: Shown) -> One:
    then = f"webhook retry {short(shown.event.id)}" if shown.event.state == "dead" else ""
    return One(shown, lambda out: _lines(out, shown), then)


webhook.generate(
    "show",
    answer=_shown,
    options={"which": {"metavar": "EVENT"}},
    examples=("standfast webhook show 9k2m4x", "standfast webhook show stripe/evt_1 --json"),
)


# -- private functions -------------------------------------------------------------------------------


def _lines(out: Out, shown: Shown) -> list[str]:
    event, letter = shown.event, shown.letter
    waits = event.state == "received" and event.holder is None
    pairs = [
        ("event", event.id),
        ("from", event.name),
        ("kind", event.kind),
        ("state", event.state),
        ("received", f"{second(event.received_us)}, delivered {event.deliveries}×"),
        ("tried", f"{event.attempts} of {event.attempts_max}"),
        ("ready", second(event.ready_us) if waits else None),
        ("held by", event.held_by),
        ("error", event.error),
        ("result", dumps(event.result) if event.result is not None else None),
        ("dead letter", _settled(letter) if letter is not None else None),
        ("body", dumps(event.payload)),
    ]
    lines = list(out.pairs(pairs))
    told = (f"{second(e.time_us)}  {e.type:<19} {e.agent}  {clean_lines(e.summary or '')}" for e in shown.history)
    return [*lines, "", *told]


def _settled(letter: Any) -> str:
    words = f"{second(letter.created_us)}: {letter.reason}"
    if letter.settlement is None:
        return words
    note = f": {letter.note}" if letter.note else ""
    return f"{words} ({letter.settlement} by {letter.settled_by} at {second(letter.settled_us)}{note})"


def _found(event: WebhookEvent) -> str:
    if event.fresh:
        return "received"
    ended = f" since {second(event.ended_us)}" if event.ended_us is not None else ""
    return f"already delivered, {event.deliveries} times by now; it is {event.state}{ended}"


def _payload(file: str, *, text: bool) -> Any:
    """The delivered body: JSON, or text with --text."""
    if file == "-" and (sys.stdin is None or sys.stdin.isatty()):
        raise click.UsageError("give FILE, or the body on stdin")
    data = _bytes(file, serial.PAYLOAD_MAX_BYTES)
    if len(data) > serial.PAYLOAD_MAX_BYTES:
        raise InvalidInput(
            f"the body has more than {serial.PAYLOAD_MAX_BYTES:,} bytes",
            "store it with standfast artifact put, and record its id",
        )
    if text:
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise InvalidInput(f"body: byte {error.start} is not UTF-8", "encode it first: base64") from None
    try:
        return serial.loads(data, what="body")
    except InvalidInput as error:
        raise InvalidInput(error.message, "to record a body that is not JSON: --text") from None


def _bytes(file: str, limit_bytes: int) -> bytes:
    """Read at most one byte more than the limit, so that a large body is refused without being read."""
    if file == "-":
        return sys.stdin.buffer.read(limit_bytes + 1)
    try:
        with open(file, "rb") as source:
            return source.read(limit_bytes + 1)
    except OSError as error:
        raise click.UsageError(f"{file}: {error.strerror}") from None
