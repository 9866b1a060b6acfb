"""`standfast session`: open, run, resume, show and end sessions."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from shlex import join
from typing import TYPE_CHECKING, Any

import click

from standfast import hints, serial
from standfast.cli.answers import Many, One, literal
from standfast.cli.frame import SESSION_VARIABLE, argument, command_line, noun, option
from standfast.cli.open_store import opened
from standfast.cli.output import Out
from standfast.cli.render import Column, clean_lines
from standfast.cli.values import home_short, moment, plain, repository
from standfast.config import load, people
from standfast.errors import InvalidInput
from standfast.ids import short

if TYPE_CHECKING:
    from standfast.handle import Standfast
    from standfast.record.sessions.models import Opened, SessionRecord, Shown

session = noun(
    "session",
    "Open, run, resume, show and end sessions. A session survives the processes that work in it.",
    default="list",
    of="standfast.record.sessions:Sessions",
)


COLUMNS = [
    Column("key"),
    Column("state"),
    Column("updated_us", "when", moment),
    Column("agent"),
    Column("holder", "held by"),
    Column("preview", "about"),
    Column("reason"),
]


def _listed(sf: Standfast, found: Many) -> Many:
    models = [_with_reason(sf, one) for one in found.models]
    then = "session show {id}" if found.places else found.then  # a key of another repository is refused
    return found._replace(models=models, columns=[*COLUMNS, *found.places], row=_for_people, then=then)


session.generate(
    "list",
    answer=_listed,
    options={"state": {"type": click.Choice(["active", "waiting", "completed", "failed", "crashed"])}},
    then="session show {key}",
    empty=lambda asked: f"no session is {asked['state']}" if "state" in asked else "no sessions here",
    examples=("standfast session list", "standfast session list --state crashed --all"),
)


def _shown(sf: Standfast, shown: Shown) -> One:
    shown = shown.replace(session=_with_reason(sf, shown.session))
    found = shown.session
    then = [_next(found)]
    if found.state == "waiting":  # after a denial its agent may have ended, and then only a person ends it
        then.append(hints.command("session", "end", short(found.id)))
    return One(shown, lambda out: _screen(out, shown), "\n".join(map(literal, then)))


def _screen(out: Out, shown: Shown) -> Iterator[str]:
    from standfast.cli.conversation import lines

    yield from _lines(out, shown.session)
    at = ""
    for one in shown.messages:
        if moment(one.occurred_us) != at:
            at = moment(one.occurred_us)
            yield ""
            yield out.styled(f"{at}, message {one.position}", "dim")
        yield from lines(one)


session.generate(
    "show",
    answer=_shown,
    options={
        "session": {"metavar": "KEY", "envvar": SESSION_VARIABLE},
        "last": {"type": click.IntRange(1, 1000)},
        "after": {"metavar": "N"},
    },
    examples=("standfast session show fix-42", "standfast session show fix-42 --last 3 --json"),
)


def _opened(sf: Standfast, opened: Opened) -> One:
    found = sf.sessions.found(opened.before) if opened.before is not None else None
    record, resumed = opened.record, plain(found) if found is not None else None
    then = literal(f"$ export {SESSION_VARIABLE}={record.id}")
    return One(record, lambda out: out.pairs(_opened_pairs(record, found)), then, extra={"resumed": resumed})


session.generate(
    "open",
    creates=True,
    holds=True,
    answer=_opened,
    without=("command", "cwd", "alone", "join"),
    examples=("standfast session open fix-42", "standfast session open fix-42 --agent coder --for 1h"),
)


@session.verb(
    "run",
    examples=("standfast session run fix-42 -- ./agent.sh", "standfast session run nightly-$(date +%F) -- make audit"),
)
@argument("key")
@option("--agent", metavar="NAME", help="Name the agent that works in the session.")
@command_line(required=True)
def run(out: Out, key: str, agent: str | None, command: tuple[str, ...]) -> None:
    """Run COMMAND in the session KEY, end the session by its exit code, and exit with that code.

    The session is held while COMMAND runs. Child processes find it in STANDFAST_SESSION.
    """
    from standfast.cli.session_run import run_in_session

    raise click.exceptions.Exit(run_in_session(out, key, command, agent=agent, cwd=os.getcwd()))


@session.verb("resume", examples=("standfast session resume fix-42", "standfast session resume 9k2m4x"))
@argument("key")
def resume(out: Out, key: str) -> None:
    """Run the command of the session KEY again in its directory. Only a person or a script starts this."""
    from standfast.cli.session_run import run_in_session

    with opened(create=False) as sf:
        found = sf.sessions.get(key)
    if found.command is None or found.cwd is None:
        raise InvalidInput(
            f"session {found.key!r} has no recorded command",
            f"{hints.command('session', 'run', found.key)} -- COMMAND",
        )
    with opened(create=False) as sf:
        _confirm(sf, found)
    out.say(f"standfast: in {found.cwd}: {join(found.command)}")
    raise click.exceptions.Exit(run_in_session(out, found.id, found.command, agent=None, cwd=found.cwd))


def _confirm(sf: Standfast, found: SessionRecord) -> None:
    """Ask a person before a command runs that another actor may have stored."""
    from standfast.cli.command_consent import Stored, confirm, is_confirmed, is_mine

    if sf.gates.check(found.command or ()):  # a hook sees only `session resume KEY`, not the stored command
        people.refuse("runs stored commands")
    openers = {event.agent for event in sf.journal.about(found.id, limit=1000) if event.type.startswith("session.")}
    stored = Stored(join(found.command or ()), found.cwd or "", tuple(sorted(openers)))
    if is_mine(stored, sf.settings.actor) or is_confirmed(stored, sf.settings.data_dir):
        return
    confirm(stored, sf.settings.data_dir, hints.command("session", "resume", found.key))


@session.verb("take", examples=("standfast session take fix-42", "standfast session take fix-42 --yes"))
@argument("key")
@option("--yes", is_flag=True, help="Do not ask for confirmation.")
def take(out: Out, key: str, yes: bool) -> None:
    """End the hold of another process on the session KEY. Later writes of that process are refused."""
    from standfast.core.leases import holder_text

    with opened(create=False) as sf:
        found = sf.sessions.get(key)
        if found.standing == "live" and not yes:
            _ask(f"{holder_text(found.holder)} is alive and holds {found.key}. End its hold?", key)
        taken = sf.sessions.take(found.id)
    out.record(plain(taken), [f"{taken.key} is released: {taken.reason}"])
    out.then(_next(taken))


@session.verb(
    "say",
    examples=(
        "standfast session say fix-42 'the tests pass' --role assistant",
        "git diff | standfast session say fix-42 - --role tool --key diff-1",
    ),
)
@argument("words", nargs=-1, required=True, metavar="[KEY] TEXT")
@option(
    "--role",
    metavar="NAME",
    help="Use this role: user, assistant, system, tool …  [default: assistant for an agent, else user]",
)
@option("--key", "once", help="Add the message once per key; a repeated call adds nothing.")
@option("--node", help="Add it to the conversation of this sub-agent: reviewer/tests.")
@option("--content-json", is_flag=True, help="Read TEXT as a JSON value.")
def say(
    out: Out, words: tuple[str, ...], role: str | None, once: str | None, node: str | None, content_json: bool
) -> None:
    """Append one message to the session KEY; - reads it from stdin."""
    key, text = _key_and_text(words)
    settings = load()
    content = serial.loads(text, what="content") if content_json else text
    with opened(settings, create=False) as sf:
        role = role or ("assistant" if settings.agent else "user")
        said = sf.sessions.say(key, role, content, key=once, node=node)
    out.record(
        plain(said), [f"message {said.position}, {said.role}" + ("" if said.receipt else ": it was already there")]
    )


session.generate(
    "fork",
    options={"session": {"metavar": "KEY"}},
    text="{key}: {reason}",
    then="session show {key}",
    examples=("standfast session fork fix-42 fix-42b", "standfast session fork fix-42 fix-42b --at 12"),
)


@session.verb(
    "end",
    examples=("standfast session end fix-42", "standfast session end fix-42 --failed 'the tests stay red'"),
)
@argument("key", envvar=SESSION_VARIABLE)
@option("--failed", metavar="TEXT", help="End it as failed, for this reason.")
@option("--waiting", metavar="TEXT", help="End it as waiting for a person or an event, for this reason.")
def end(out: Out, key: str, failed: str | None, waiting: str | None) -> None:
    """End the session KEY that this actor holds, as completed, failed or waiting."""
    if failed is not None and waiting is not None:
        raise click.UsageError("give either --failed or --waiting")
    state = "failed" if failed is not None else "waiting" if waiting is not None else "completed"
    with opened(create=False) as sf:
        found = sf.sessions.get(key)
        # A child process of the holder may end the session in the name of the holder.
        holder = found.holder if os.environ.get(SESSION_VARIABLE) in (found.id, found.key) else None
        ended = sf.sessions.end(found.id, state, reason=failed if failed is not None else waiting, holder=holder)
    out.record(plain(ended), [f"{ended.key} is {ended.state}" + (f": {ended.reason}" if ended.reason else "")])
    out.then(_next(ended))


def _with_reason(sf: Standfast, found: SessionRecord) -> SessionRecord:
    """A waiting session with its current reason; the stored reason may be out of date."""
    if found.state != "waiting":
        return found
    return found.replace(reason=sf.recovery.why_it_waits(found.id) or found.reason)


def _for_people(found: SessionRecord) -> dict[str, Any]:
    from standfast.core.leases import holder_text

    return {
        **found.as_dict(),
        "state": "crashed" if found.crashed else found.state,
        "holder": holder_text(found.holder) if found.holder else None,
        "repository": repository(found),
    }


def _lines(out: Out, found: SessionRecord) -> Iterable[str]:
    from standfast.views.resume_lines import resume_line

    shown = _for_people(found)
    pairs = [
        ("session", f"{found.key} ({found.id})"),
        ("state", shown["state"]),
        ("reason", found.reason),
        ("held by", shown["holder"]),
        ("agent", found.agent),
        ("repository", home_short(repository(found))),
        ("about", found.preview),
        ("command", join(found.command) if found.command else None),
        ("forked", f"from {found.parent_id} at {found.cut_position}" if found.parent_id else None),
        ("cursor", found.cursor),
        ("opened", f"{found.openings}×, first {moment(found.created_us)}"),
        ("updated", moment(found.updated_us)),
        ("resume", resume_line(found.agent, found.key, found.cwd) or None),
    ]
    return out.pairs(pairs)


def _opened_pairs(record: SessionRecord, found: Any) -> list[tuple[str, object]]:
    pairs: list[tuple[str, object]] = [("session", f"{record.key} ({record.id})")]
    if found is None:
        return [*pairs, ("found", "nothing: it is new")]
    was = "crashed" if found.crashed else found.state
    pairs.append(("found", f"{was} since {moment(found.since_us)}, by {found.by}"))
    pairs.append(("holds", f"{found.messages} messages, {found.steps} steps, {found.effects} effects"))
    pairs += [("in doubt", f"{one.tool} ({one.id[-6:]})") for one in found.in_doubt]
    return pairs + [("decided", f"{one.what} ({one.id[-6:]})") for one in found.decisions]


def _next(found: SessionRecord) -> str:
    if found.command is not None and (found.crashed or found.state in ("waiting", "failed")):
        return hints.command("session", "resume", found.key)
    if found.state == "active" and found.standing == "live":
        return hints.command("session", "say", found.key, "TEXT")
    return hints.command("timeline", "--since", "30d", "--session", found.key)


def _key_and_text(words: tuple[str, ...]) -> tuple[str, str]:
    """KEY and TEXT, or only TEXT if STANDFAST_SESSION names the session."""
    known = os.environ.get(SESSION_VARIABLE)
    if len(words) == 1 and not known:
        raise click.UsageError("which session? standfast session say KEY TEXT, or set STANDFAST_SESSION")
    if len(words) > 2:
        raise click.UsageError("put the text in quotes, so that it is one word")
    key, text = words if len(words) == 2 else (known or "", words[0])
    return key, sys.stdin.read() if text == "-" else text


def _ask(question: str, key: str) -> None:
    """Ask on the terminal. Raises InvalidInput, naming --yes, if stdin is no terminal."""
    if not sys.stdin.isatty():
        raise InvalidInput(
            question.replace(" End its hold?", ""), f"to end its hold: {hints.command('session', 'take', key, '--yes')}"
        )
    if not click.confirm(clean_lines(question), err=True):
        raise click.Abort
