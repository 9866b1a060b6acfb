"""`standfast mail`: send mail to an agent, a role or a session; read, answer and close it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from standfast import hints
from standfast.cli.answers import Many, One
from standfast.cli.frame import SESSION_VARIABLE, argument, made, noun, option
from standfast.cli.open_store import opened
from standfast.cli.output import Out
from standfast.cli.render import Column, clean_lines
from standfast.cli.values import DURATION, JSON_STDIN, SECONDS, STDIN, moment, plain, short
from standfast.errors import NotFound

if TYPE_CHECKING:
    from standfast.handle import Standfast
    from standfast.record.mail import Delivery, Mail
    from standfast.record.mail.models import Shown

STATES = ("sent", "leased", "read", "done", "dead", "expired", "any")

mail = noun(
    "mail",
    "Send mail to an agent, a role or a session; read, answer and close it.",
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


# -- send --------------------------------------------------------------------------------------------


def _sent(sf: Standfast, sent: Mail) -> One:
    say = f"already sent with this key, at {moment(sent.sent_us)}" if sent.replayed else ""
    if not say and not sf.mail.has_reader(sent.box):
        say = f"no live session reads {sent.box} now; the mail waits until one does"
    return One(sent, [sent.id], then="mail receipts {id}", say=say)


_BODY: dict[str, Any] = {
    "answer": _sent,
    "in_session": True,
    "also": [
        partial(
            made,
            click.Option,
            ("--body-json", "body__by_name"),
            "Send this JSON as the body; - reads stdin.",
            type=JSON_STDIN,
        )
    ],
}
_ADDRESSES: dict[str, Any] = {
    "body": {"required": False, "type": STDIN},
    "sender": {"flag": "--from", "metavar": "ADDRESS"},
    "session": {"envvar": SESSION_VARIABLE},
    "attempts_max": {"flag": "--attempts"},
    "thread": {"metavar": "ID"},
}


mail.generate(
    "send",
    creates=True,
    without=("reply_to", "expires"),
    options=_ADDRESSES,
    examples=(
        "standfast mail send reviewer 'please look at #42' --key review:42",
        "git diff | standfast mail send role:reviewer - --subject 'the diff of #42' --for 2h",
    ),
    **_BODY,
)
mail.generate(
    "reply",
    without=("priority", "for_", "attempts_max"),
    options=_ADDRESSES,
    examples=(
        "standfast mail reply 9k2m4x 'looks good' --done",
        "standfast mail reply 9k2m4x - < answer.txt",
    ),
    **_BODY,
)


# -- reads -------------------------------------------------------------------------------------------


@mail.verb(
    "read",
    examples=("standfast mail read", "standfast mail read 9k2m4x --for 1h"),
)
@argument("mail", required=False)
@option(
    "--to",
    metavar="ADDRESS",
    help="Read this box: reviewer, role:reviewer, session:fix-42.  [default: the box of this actor]",
)
@option("--thread", metavar="ID", help="Only read the conversation of this mail.")
@option("--for", "for_", type=DURATION, help="Hold the mail for this long after your last command.  [default: 15m]")
@option("--while", "pid", type=int, metavar="PID", help="Hold the mail while this process lives: --while $$")
@option("--wait", type=SECONDS, help="Wait this long for mail to arrive: 30s, 10m.")
@option("--body", "body_only", is_flag=True, help="Print only the body.")
def read(
    out: Out, mail: str | None, for_: str | None, pid: int | None, wait: str | None, body_only: bool, **box: Any
) -> None:
    """Lease the next mail of a box, or MAIL, and show it. Exit 3 if there is none.

    Other readers do not get the mail until it is done or deferred, or until the lease expires. To read it without a
    lease: mail show.
    """
    from standfast.cli.lock import held_for

    held = held_for(for_, pid)
    with opened(create=False, pid=pid) as sf:
        taken = sf.mail.read(mail, for_=held, **box) if wait is None or mail else None
        if taken is None and wait is not None:
            taken = _waited(sf, box, held, wait)
        name = box["to"] or sf.agent
    if taken is None:
        raise NotFound(f"no mail is ready for {name}", "list all mail: standfast mail list", code="nothing_ready")
    _print(out, taken, body_only=body_only)
    out.then(hints.command("mail", "done", short(taken.id)), hints.command("mail", "reply", short(taken.id), "TEXT"))


def _waited(sf: Standfast, box: dict[str, Any], held: Any, wait: str) -> Mail | None:
    with sf.mail.follow(**box, for_=held, timeout=wait) as follow:
        found = next(follow, None)
    # Read again after the follower released the mail: this lease is the actor's, and its commands renew it.
    return sf.mail.read(found.id) if found is not None else None


@mail.verb(
    "follow",
    examples=(
        "standfast mail follow reviewer --jsonl",
        "standfast mail follow role:builder --idle 10m --limit 1 --done",
    ),
)
@argument("to", required=False)
@option("--thread", metavar="ID", help="Only read the conversation of this mail.")
@option("--for", "for_", type=DURATION, help="Deliver mail again if it is not done after this time.  [default: 15m]")
@option("--idle", "--timeout", "idle", type=SECONDS, help="End after this long without new mail.  [default: never]")
@option("--limit", type=click.IntRange(1), metavar="N", help="End after N mails.")
@option("--done", "at_once", is_flag=True, help="Mark each mail as done after it is printed.")
def follow(out: Out, idle: str | None, limit: int | None, at_once: bool, **asked: Any) -> None:
    """Print mail to TO as it arrives, by default to this actor; --json and --jsonl print one record per line.

    A printed mail is leased. It is marked as read when the next mail is printed. `mail done` closes it.
    """
    from itertools import islice

    with opened() as sf, sf.mail.follow(**asked, timeout=idle) as mails:
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


# -- end of a claim ----------------------------------------------------------------------------------


def _dead(_: Standfast, found: Mail) -> One:
    return One(found, "{id} is a dead letter: {reason}", then="mail dead")


def _deferred(_: Standfast, found: Mail) -> One:
    return One(found, "{id} is delivered again at {ready_us}") if found.state == "sent" else _dead(_, found)


def _released(_: Standfast, found: Mail) -> One:
    return One(found, "{id} is released") if found.state == "sent" else _dead(_, found)


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
    then="mail show {subject}\nmail retry {subject}",
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
    examples=("standfast mail resolve 9k2m4x --note 'called them by phone'", "standfast mail resolve 9k2m4x --json"),
    text="{subject} is resolved by {settled_by}",
    then="mail dead",
)


# -- lists and details -------------------------------------------------------------------------------


def _listed(sf: Standfast, found: Many) -> Many:
    dead = bool(sf.mail.dead(limit=1))
    say = "" if found.models or not dead else "there are dead letters: standfast mail dead"
    first = found.models[0] if found.models else None
    ready = first is not None and first.state == "sent" and first.ready_us <= sf._store.caller.clock.now_us()
    then = "mail dead" if dead else "mail read --to {box}" if ready else "mail show {id}"
    return found._replace(columns=COLUMNS, row=_row, then=then, say=say)


mail.generate(
    "list",
    answer=_listed,
    options={"state": {"type": click.Choice(STATES)}, "sender": {"flag": "--from", "metavar": "ADDRESS"}},
    empty=lambda asked: "none" if "state" in asked else "no mail waits",
    examples=("standfast mail list", "standfast mail list reviewer --state any --json"),
)


def _shown(_: Standfast, shown: Shown) -> One:
    over = shown.mail.state in ("dead", "expired")
    id = short(shown.mail.id)
    then = f"mail retry {id}\nmail resolve {id} --note TEXT" if over else ""
    return One(shown, lambda _: _lines(shown), then)


mail.generate("show", answer=_shown, examples=("standfast mail show 9k2m4x", "standfast mail show review:42 --json"))


@mail.verb(
    "receipts",
    examples=("standfast mail receipts", "standfast mail receipts review:42 --wait 10m"),
)
@argument("mail", required=False)
@option("--from", "sender", metavar="ADDRESS", help="Show mail from this sender.  [default: this actor]")
@option("--wait", type=SECONDS, help="Wait this long until MAIL is done: 10m. Exit 75 if it is not done by then.")
@option(
    "--until",
    type=click.Choice(("leased", "read", "done")),
    default="done",
    show_default=True,
    help="With --wait: wait until MAIL is in this state.",
)
@option("--after", metavar="CURSOR", help="Start after this cursor: the `next` of the page before.")
@option("--limit", default=50, show_default=True, type=click.IntRange(1, 1000), help="Print at most N rows.")
def receipts(sf: Standfast, mail: str | None, wait: str | None, until: str, limit: int, **asked: Any) -> One | Many:
    """Show the delivery state of MAIL (id or key), or of all mail from this actor."""
    if mail is None:
        found = sf.mail.receipts(limit=limit, **asked)
        columns = "id", "box to", "state", "sent_us sent", "words what became of it"
        return Many(found, columns, limit, then="mail receipts {id}", empty="no mail was sent")
    one = sf.mail.delivered(mail) if wait is None else sf.mail.wait(mail, until=until, timeout=wait)
    return One(one, _delivery_lines(one))


# -- private functions -------------------------------------------------------------------------------


def _lines(shown: Shown) -> Iterator[str]:
    yield shown.mail.rendered()
    yield ""
    yield from _delivery_lines(shown.delivery)
    for letter in shown.dead_letters:
        note = f": {letter.note}" if letter.note else ""
        end = f"{letter.settlement} by {letter.settled_by}{note}" if letter.settlement else "not settled"
        yield f"dead letter  {moment(letter.created_us)}  {clean_lines(letter.reason)}  ({clean_lines(end)})"
    for one in shown.thread if len(shown.thread) > 1 else ():
        mark = ">" if one.id == shown.mail.id else " "
        yield f"{mark} {short(one.id)}  {moment(one.sent_us)}  {clean_lines(one.sender)} → {clean_lines(one.box)}"


def _row(found: Mail) -> dict[str, Any]:
    from standfast.record.mail.envelope import author as author_of

    author = author_of(found)
    return {
        **found.as_dict(),
        "p": found.priority,
        "tries": f"{found.attempts}/{found.attempts_max}",
        "by": _holder(found),
        "from": found.sender if author.name == found.sender else f"{found.sender}, by {author}",
        "author": author.name,
        "author_kind": author.kind,
        "about": _about(found),
    }


def _about(found: Mail) -> str:
    from standfast.record.mail.envelope import body_lines

    return found.subject or next((line for line in body_lines(found.body) if line.strip()), "")[:200]


def _holder(found: Mail) -> str | None:
    from standfast.core.leases import holder_text

    if found.holder is None:
        return None
    return holder_text(found.holder) + {"gone": " (gone)", "over": " (late)"}.get(found.standing, "")


def _print(out: Out, found: Mail, *, body_only: bool = False) -> None:
    """Print text that is safe for a terminal, or the mail as JSON."""
    from standfast.record.mail.envelope import body_lines, rendered

    text = "\n".join(body_lines(found.body)) if body_only else rendered(found)
    out.record(plain(found), [text])


def _delivery_lines(found: Delivery) -> list[str]:
    lines = [f"{short(found.id)} to {clean_lines(found.box)}: {clean_lines(found.words)}"]
    for one in found.attempts:
        end = f"{one.outcome}{f': {one.reason}' if one.reason else ''}" if one.outcome else "in progress"
        lines.append(f"  attempt {one.n}  {moment(one.began_us)}  {clean_lines(one.agent)}  {clean_lines(end)}")
    return lines
