"""`standfast mail`: to another agent, a role or a session; kept until it is done, or until it says why not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from standfast.cli.answers import One
from standfast.cli.frame import argument, noun, option, scope_options
from standfast.cli.output import Out
from standfast.cli.render import Column, clean_lines
from standfast.cli.values import moment, plain, short

if TYPE_CHECKING:
    from standfast.handle import Standfast
    from standfast.record.mail import Delivery, Mail

SESSION = "STANDFAST_SESSION"
STATES = ("sent", "leased", "read", "done", "dead", "expired", "any")

mail = noun(
    "mail",
    "Mail: to an agent, a role or a session, kept until it is done.",
    default="list",
    of="standfast.record.mail:Mails",
)


COLUMNS = [
    Column("id", show=short),
    Column("p"),
    Column("box", "to"),
    Column("from"),
    Column("state"),
    Column("tries"),
    Column("sent_us", "sent", moment),
    Column("by", "held by"),
    Column("about"),
]


# -- sending -----------------------------------------------------------------------------------------


@mail.verb(
    "send",
    examples=(
        "standfast mail send reviewer 'please look at #42' --key review:42",
        "git diff | standfast mail send role:reviewer - --subject 'the diff of #42' --for 2h",
    ),
)
@argument("to")
@argument("body", required=False)
@option("--body-json", help="The body as JSON instead of text; `-` reads it from standard input.")
@option("--subject", help="One line for lists.")
@option("--key", help="Sends once, however often this is run.")
@option("--priority", type=int, help="0 comes first.  [default: 2]")
@option("--for", "term", help="Worth reading so long: 2h. After that it expires.")
@option("--attempts", "attempts_max", type=int, default=5, show_default=True, help="Then it is a dead letter.")
@option("--thread", help="A mail of the conversation it belongs to.")
@option("--from", "sender", help="Where an answer goes.  [default: this actor]")
@option("--session", envvar=SESSION, help="The session it comes from: its key or id.")
def send(out: Out, to: str, body: str | None, body_json: str | None, term: str | None, **given: Any) -> None:
    """Send BODY to TO: an agent's name, role:NAME, session:KEY, or a session's id.

    `-` reads the body from standard input. The mail is durable when this returns; a full box refuses it: exit 4.
    """
    from standfast.cli.store import opened

    with opened() as sf:
        given["session"] = given["session"] or sf._store.caller.session_id
        sent = sf.mail.send(to, _body(body, body_json), for_us=_duration(term), **given)
    out.record(plain(sent), [sent.id])
    if out.for_people and sent.replayed:
        out.say(f"standfast: sent before with this key, at {moment(sent.sent_us)}")
    out.then(f"standfast mail receipts {short(sent.id)}")


@mail.verb(
    "reply",
    examples=(
        "standfast mail reply 9k2m4x 'looks good' --done",
        "standfast mail reply 9k2m4x - < answer.txt",
    ),
)
@argument("mail")
@argument("body", required=False)
@option("--body-json", help="The body as JSON instead of text; `-` reads it from standard input.")
@option("--done", is_flag=True, help="MAIL is done with that.")
@option("--subject", help="[default: that of MAIL]")
@option("--key", help="Sends once, however often this is run.")
@option("--from", "sender", help="Where an answer goes.  [default: the box MAIL was in]")
@option("--session", envvar=SESSION, help="The session it comes from: its key or id.")
def reply(out: Out, mail: str, body: str | None, body_json: str | None, **given: Any) -> None:
    """Answer MAIL, to its sender, in its thread."""
    from standfast.cli.store import opened

    with opened(create=False) as sf:
        given["session"] = given["session"] or sf._store.caller.session_id
        sent = sf.mail.reply(mail, _body(body, body_json), **given)
    out.record(plain(sent), [sent.id])
    out.then(f"standfast mail receipts {short(sent.id)}")


# -- receiving ---------------------------------------------------------------------------------------


@mail.verb(
    "read",
    examples=("standfast mail read", "standfast mail read 9k2m4x --for 1h"),
)
@argument("mail", required=False)
@option("--to", help="The box to read from: reviewer, role:reviewer, session:fix-42.  [default: this actor's]")
@option("--thread", help="Only of this conversation: a mail of it.")
@option("--for", "term", help="Hold it this long from your last command: 30m, 2h.  [default: 15m]")
@option("--while", "pid", type=int, help="Hold it as long as this process lives: --while $$")
@option("--wait", "patience", help="Wait so long for one to come: 30s, 10m.")
@option("--body", "body_only", is_flag=True, help="Print the body alone.")
def read(
    out: Out,
    mail: str | None,
    to: str | None,
    thread: str | None,
    term: str | None,
    pid: int | None,
    patience: str | None,
    body_only: bool,
) -> None:
    """Take the next mail of a box, or MAIL, and show it. Exit 3 if there is none.

    It is this actor's until it is done, deferred, or the time is over: then it comes back. To look without
    taking it: mail show.
    """
    from standfast.cli.lock import held_for
    from standfast.cli.store import held_while, opened
    from standfast.config import load
    from standfast.errors import NotFound

    for_us, wait_s = held_for(_duration(term), pid), _seconds(patience)
    with opened(create=False) if pid is None else held_while(load(), pid, create=False) as sf:
        taken = sf.mail.read(mail, to=to, thread=thread, for_us=for_us) if wait_s is None or mail else None
        if taken is None and wait_s is not None:
            taken = _waited(sf, to, thread, for_us, wait_s)
        box = to or sf.actor
    if taken is None:
        raise NotFound(f"no mail is ready for {box}", "what there is: standfast mail list", code="nothing_ready")
    _print(out, taken, body_only=body_only)
    out.then(f"standfast mail done {short(taken.id)}    (or: mail reply, mail defer)")


def _waited(sf: Any, to: str | None, thread: str | None, for_us: int | None, wait_s: float) -> Mail | None:
    with sf.mail.follow(to, thread=thread, for_us=for_us, timeout_s=wait_s) as follow:
        found = next(follow, None)
    # After the follower has let go of it, so that this actor's commands renew it.
    return sf.mail.read(found.id) if found is not None else None


@mail.verb(
    "follow",
    examples=(
        "standfast mail follow reviewer --jsonl",
        "standfast mail follow role:builder --idle 10m --limit 1 --done",
    ),
)
@argument("to", required=False)
@option("--thread", help="Only of this conversation: a mail of it.")
@option("--for", "term", help="What is not done comes back after so long.  [default: 15m]")
@option("--idle", "--timeout", "idle", help="End once nothing has come for so long: 30s, 10m.  [default: never]")
@option("--limit", type=click.IntRange(1), help="End after so many.")
@option("--done", "at_once", is_flag=True, help="Each is done once it is printed.")
def follow(
    out: Out,
    to: str | None,
    thread: str | None,
    term: str | None,
    idle: str | None,
    limit: int | None,
    at_once: bool,
) -> None:
    """Print mail as it comes to TO, by default to this actor; with --json or --jsonl a record a line.

    What is printed is leased, and read when the next one comes; it is done when `mail done` says so.
    """
    import sys
    from itertools import islice

    from standfast.cli.store import opened

    for_us, timeout_s = _duration(term), _seconds(idle)
    with opened() as sf, sf.mail.follow(to, thread=thread, for_us=for_us, timeout_s=timeout_s) as mails:
        for one in islice(mails, limit):
            _print(out if out.for_people else Out("jsonl"), one)
            sys.stdout.flush()
            if at_once:
                sf.mail.done(one)


mail.generate(
    "renew",
    examples=("standfast mail renew 9k2m4x", "standfast mail renew 9k2m4x --for 1h"),
    text="{id} is yours until {lease_until_us}",
)


# -- ending ------------------------------------------------------------------------------------------


def _dead(_: Standfast, found: Mail) -> One:
    return One(found, "{id} is a dead letter: {reason}", then="mail dead")


def _deferred(_: Standfast, found: Mail) -> One:
    return One(found, "{id} is delivered again at {ready_us}") if found.state == "sent" else _dead(_, found)


def _released(_: Standfast, found: Mail) -> One:
    return One(found, "{id} is free") if found.state == "sent" else _dead(_, found)


mail.generate(
    "done",
    examples=("standfast mail done 9k2m4x", "standfast mail done 9k2m4x --note 'merged as #43'"),
    text="{id} is done",
    then="mail read",
)
mail.generate(
    "defer",
    examples=(
        "standfast mail defer 9k2m4x --for 2h --reason 'CI is red'",
        "standfast mail defer 9k2m4x --until 'mon 09:00'",
    ),
    answer=_deferred,
)
mail.generate(
    "release",
    examples=("standfast mail release 9k2m4x", "standfast mail release 9k2m4x --reason 'not for me'"),
    answer=_released,
)
mail.generate(
    "refuse",
    examples=(
        "standfast mail refuse 9k2m4x --reason 'no such repository'",
        "standfast mail refuse 9k2m4x --reason 'not a review' --json",
    ),
    by_name=("reason",),
    answer=_dead,
)


# -- dead letters ------------------------------------------------------------------------------------


mail.generate(
    "dead",
    examples=("standfast mail dead", "standfast mail dead --settled --all --json"),
    columns=("subject mail", "created_us dead since", "attempts", "settlement settled", "reason"),
    then="mail show {subject}    (then: mail retry, mail resolve)",
    empty="no dead letters",
)
mail.generate(
    "retry",
    examples=("standfast mail retry 9k2m4x", "standfast mail retry 9k2m4x --attempts 3 --note 'reviewer is back'"),
    text="{id} is in {box} again",
    then="mail receipts {id}",
)
mail.generate(
    "resolve",
    examples=("standfast mail resolve 9k2m4x --note 'told them by phone'", "standfast mail resolve 9k2m4x --json"),
    text="{subject} is resolved by {settled_by}",
    then="mail dead",
)


# -- looking -----------------------------------------------------------------------------------------


@mail.verb("list", examples=("standfast mail list", "standfast mail list reviewer --state any --json"))
@argument("to", required=False)
@option("--mine", is_flag=True, help="Without TO, only what is for this actor.")
@option("--state", type=click.Choice(STATES), help="[default: what is to be delivered]")
@option("--from", "sender", help="Only from this sender.")
@option("--after", help="Where the page before ended.")
@option("--limit", default=50, show_default=True, type=click.IntRange(1, 1000))
@scope_options
def list_(out: Out, to: str | None, mine: bool, limit: int, scope_choice: str | None, **asked: Any) -> None:
    """List what is to be delivered, for TO or for everybody. Nothing is taken or marked."""
    from standfast.cli.store import opened
    from standfast.config import load

    with opened(load(outside=scope_choice == "global"), create=False) as sf:
        found = sf.mail.list(to or (sf.actor if mine else None), everywhere=scope_choice == "all", limit=limit, **asked)
        dead = sf.mail.dead(limit=1) if out.for_people else []
    out.rows(
        [_row(one) if out.for_people else plain(one) for one in found],
        COLUMNS,
        next=found[-1].place if len(found) == limit else None,
        then=("standfast mail dead" if dead else _reading(to)) if found or dead else "",
        empty="no mail waits" if asked["state"] is None else "none",
    )


@mail.verb("show", examples=("standfast mail show 9k2m4x", "standfast mail show review:42 --json"))
@argument("mail")
def show(out: Out, mail: str) -> None:
    """Show MAIL, by id or key: its body, every attempt with its reason, its thread. Nothing is marked."""
    from standfast.cli.store import opened
    from standfast.record.mail import rendered

    with opened(create=False) as sf:
        shown = sf.mail.show(mail)
    if not out.for_people:
        out.record(
            {
                **plain(shown.mail),
                "delivery": _delivery(shown.delivery),
                "thread": [plain(one) for one in shown.thread],
                "dead_letters": [{**one._asdict(), "receipt": None} for one in shown.dead_letters],
                "history": [one._asdict() for one in shown.history],
            }
        )
        return
    out.text(rendered(shown.mail))
    out.text("")
    for line in _delivery_lines(shown.delivery):
        out.text(line)
    for letter in shown.dead_letters:
        end = f"{letter.settlement} by {letter.settled_by}: {letter.note or ''}" if letter.settlement else "not settled"
        out.text(f"dead letter  {moment(letter.created_us)}  {clean_lines(letter.reason)}  ({clean_lines(end)})")
    for one in shown.thread if len(shown.thread) > 1 else ():
        mark = ">" if one.id == shown.mail.id else " "
        out.text(f"{mark} {short(one.id)}  {moment(one.sent_us)}  {clean_lines(one.sender)} → {clean_lines(one.box)}")
    if shown.mail.state in ("dead", "expired"):
        out.then(f"standfast mail retry {short(shown.mail.id)}    (or: mail resolve --note TEXT)")


@mail.verb(
    "receipts",
    examples=("standfast mail receipts", "standfast mail receipts review:42 --wait 10m"),
)
@argument("mail", required=False)
@option("--from", "sender", help="What this sender sent.  [default: this actor]")
@option("--wait", "patience", help="Wait so long until MAIL is done: 10m. Exit 75 if it is not.")
@option("--until", type=click.Choice(("leased", "read", "done")), default="done", show_default=True)
@option("--after", help="Where the page before ended.")
@option("--limit", default=50, show_default=True, type=click.IntRange(1, 1000))
def receipts(
    out: Out, mail: str | None, sender: str | None, patience: str | None, until: str, after: str | None, limit: int
) -> None:
    """Show what became of what was sent: of MAIL (id or key), or of everything from this actor."""
    from standfast.cli.store import opened

    wait_s = _seconds(patience)
    with opened(create=False) as sf:
        if mail is None:
            found = sf.mail.receipts(sender=sender, limit=limit, after=after)
        elif wait_s is None:
            found = [sf.mail.delivered(mail)]
        else:
            found = [sf.mail.wait(mail, until=until, timeout_s=wait_s)]
    if mail is not None:
        out.record(_delivery(found[0]), _delivery_lines(found[0]))
        return
    columns = [
        Column("id", show=short),
        Column("box", "to"),
        Column("state"),
        Column("sent_us", "sent", moment),
        Column("words", "what became of it"),
    ]
    out.rows(
        [_delivery(one) for one in found],
        columns,
        next=found[-1].place if len(found) == limit else None,
        then=f"standfast mail receipts {short(found[0].id)}" if found else "",
        empty="nothing was sent",
    )


# -- small parts -------------------------------------------------------------------------------------


def _row(found: Mail) -> dict[str, Any]:
    from standfast.record.mail.rendering import author as author_of

    author = author_of(found)
    return {
        **found._asdict(),
        "p": found.priority,
        "tries": f"{found.attempts}/{found.attempts_max}",
        "by": _holder(found),
        "from": found.sender if author.name == found.sender else f"{found.sender}, by {author}",
        "author": author.name,
        "author_kind": author.kind,
        "about": _about(found),
    }


def _about(found: Mail) -> str:
    from standfast.record.mail.rendering import body_lines

    return found.subject or next((line for line in body_lines(found.body) if line.strip()), "")[:200]


def _holder(found: Mail) -> str | None:
    from standfast.footings.leases import who

    if found.holder is None:
        return None
    return who(found.holder) + {"gone": " (gone)", "over": " (late)"}.get(found.standing, "")


def _print(out: Out, found: Mail, *, body_only: bool = False) -> None:
    """For people and agents as text that can be trusted with a terminal; for programs as it is."""
    from standfast.record.mail.rendering import body_lines, rendered

    text = "\n".join(body_lines(found.body)) if body_only else rendered(found)
    out.record(plain(found), [text])


def _delivery(found: Delivery) -> dict[str, Any]:
    letter = found.dead_letter
    return {
        **found._asdict(),
        "attempts": [one._asdict() for one in found.attempts],
        "dead_letter": {**letter._asdict(), "receipt": None} if letter else None,
        "settled": found.settled,
    }


def _delivery_lines(found: Delivery) -> list[str]:
    lines = [f"{short(found.id)} to {clean_lines(found.box)}: {clean_lines(found.words)}"]
    for one in found.attempts:
        end = f"{one.outcome}{f': {one.reason}' if one.reason else ''}" if one.outcome else "under way"
        lines.append(f"  attempt {one.n}  {moment(one.began_us)}  {clean_lines(one.actor)}  {clean_lines(end)}")
    return lines


def _body(body: str | None, body_json: str | None) -> Any:
    """Text, or JSON; `-` is standard input."""
    import sys

    if (body is None) == (body_json is None):
        raise click.UsageError("what does it say? BODY, `-` for standard input, or --body-json")
    if body_json is None:
        return sys.stdin.read() if body == "-" else body
    from standfast import serial

    return serial.loads(sys.stdin.read() if body_json == "-" else body_json, what="body")


def _reading(to: str | None) -> str:
    from shlex import quote

    return f"standfast mail read --to {quote(to)}" if to else "standfast mail read"


def _seconds(text: str | None) -> float | None:
    """How long to wait: a duration as everywhere, or a bare number of seconds."""
    try:
        return float(text) if text is not None else None
    except ValueError:
        us = _duration(text)
        return None if us is None else us / 1_000_000


def _duration(text: str | None) -> int | None:
    if text is None:
        return None
    from standfast.clock import parse_duration

    return parse_duration(text)
