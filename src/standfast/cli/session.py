"""`standfast session`: work that outlives the processes that do it, from a shell."""

from __future__ import annotations

import os
from shlex import join, quote
from typing import TYPE_CHECKING, Any

import click

from standfast.cli.frame import argument, noun, option, scope_options
from standfast.cli.output import Out
from standfast.cli.render import Column, clean_lines
from standfast.errors import InvalidInput
from standfast.footings import hints

if TYPE_CHECKING:
    from standfast.handle import Standfast
    from standfast.record.messages import Message
    from standfast.record.sessions import SessionRecord

VARIABLE = "STANDFAST_SESSION"
"""Names the session for every command below `session run`, or below a shell that exports it."""

session = noun("session", "Sessions: work that outlives the processes that do it.", default="list")


def _moment(us: int) -> str:
    from time import localtime, strftime

    return strftime("%Y-%m-%d %H:%M", localtime(us // 1_000_000))


COLUMNS = [
    Column("key"),
    Column("standing_state", "state"),
    Column("updated_us", "when", _moment),
    Column("agent"),
    Column("holder_name", "held by"),
    Column("about"),
]


@session.verb("list", examples=("standfast session list", "standfast session list --state crashed --all"))
@option("--state", type=click.Choice(["active", "waiting", "completed", "failed", "crashed"]))
@option("--after", help="Where the page before ended.")
@option("--limit", default=50, show_default=True, type=click.IntRange(1, 1000))
@scope_options
def list_(out: Out, state: str | None, after: str | None, limit: int, scope_choice: str | None) -> None:
    """List sessions, the newest first, with the first thing their user said."""
    from standfast.cli.store import opened
    from standfast.config import load

    with opened(load(outside=scope_choice == "global"), create=False) as sf:
        found = sf.sessions.list(state=state, everywhere=scope_choice == "all", after=after, limit=limit)
        found = [_with_reason(sf, one) for one in found]
    out.rows(
        [{**plain(one), **_for_people(one)} if out.for_people else plain(one) for one in found],
        COLUMNS,
        next=found[-1].place if len(found) == limit and state != "crashed" else None,
        then=f"standfast session show {quote(found[0].key)}" if found else "",
        empty="no sessions here" if state is None else f"no session is {state}",
    )


@session.verb("show", examples=("standfast session show fix-42", "standfast session show fix-42 --last 3 --json"))
@argument("key", envvar=VARIABLE)
@option("--last", default=10, show_default=True, type=click.IntRange(1, 1000), help="The newest messages.")
@option("--after", type=int, help="Messages behind this position instead.")
@option("--node", help="A sub-agent's conversation: reviewer/tests.")
def show(out: Out, key: str, last: int, after: int | None, node: str | None) -> None:
    """Show one session, KEY or id: how it stands, its sub-agents, its last messages."""
    from standfast.cli.store import opened

    with opened(create=False) as sf:
        record = _with_reason(sf, sf.sessions.get(key))
        nodes = sf.sessions.nodes(record.id)
        messages = sf.sessions.messages(record.id, last=last, after=after, node=node)
    if not out.for_people:
        heard = [_message(one) for one in messages]
        out.record({**plain(record), "nodes": [one._asdict() for one in nodes], "messages": heard})
        return
    _print(out, record)
    for one in messages:
        said = one.content if isinstance(one.content, str) else str(one.content)
        taken_back = "  (taken back)" if one.retracted_us is not None else ""
        out.text(out.styled(f"{one.position} {one.role}  {_moment(one.occurred_us)}{taken_back}", "bold"))
        out.text(clean_lines(said))
    out.then(_next(record))


@session.verb(
    "open",
    examples=("standfast session open fix-42", "standfast session open fix-42 --agent coder --for 1h"),
)
@argument("key")
@option("--agent", help="Who works in it.")
@option("--for", "term", help="Hold it this long unless renewed: 30m, 2h.  [default: 15m]")
@option("--while", "pid", type=int, help="Hold it as long as this process lives.")
def open_(out: Out, key: str, agent: str | None, term: str | None, pid: int | None) -> None:
    """Open or resume the session KEY and hold it in this actor's name. It is yours until `session end`."""
    from standfast.clock import parse_duration
    from standfast.config import load
    from standfast.handle import connect

    if pid is not None and not _alive(pid):
        raise InvalidInput(f"there is no process {pid}", "--while takes the pid of a process that runs")
    for_us = parse_duration(term) if term else None
    if pid is not None and for_us is None:
        from standfast.footings.leases import LEASE_MAX_US

        for_us = LEASE_MAX_US  # it ends with the process; time is only the last resort
    with connect(load(), as_actor=True, pid=pid) as sf:
        opened = sf.sessions.open(key, agent=agent, for_us=for_us)
        found = sf.sessions.found(opened.before) if opened.before is not None else None
    resumed = found and {**found._asdict(), "in_doubt": [one._asdict() for one in found.in_doubt]}
    if resumed and found:
        resumed["decisions"] = [one._asdict() for one in found.decisions]
    out.record({**plain(opened.record), "resumed": resumed}, out.pairs(_opened_pairs(opened.record, found)))
    out.then(f"export {VARIABLE}={opened.record.id}")


@session.verb(
    "run",
    examples=("standfast session run fix-42 -- ./agent.sh", "standfast session run nightly-$(date +%F) -- make audit"),
)
@argument("key")
@option("--agent", help="Who works in it.")
@argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def run(out: Out, key: str, agent: str | None, command: tuple[str, ...]) -> None:
    """Run COMMAND in the session KEY: held while it runs, ended by how it ends, its exit code passed on.

    Everything below finds the session in STANDFAST_SESSION.
    """
    from standfast.cli.session_run import run_in_session

    raise click.exceptions.Exit(run_in_session(out, key, command, agent=agent, cwd=os.getcwd()))


@session.verb("resume", examples=("standfast session resume fix-42", "standfast session resume 9k2m4x"))
@argument("key")
def resume(out: Out, key: str) -> None:
    """Run the command of the session KEY again, where it ran before. Nothing does this by itself."""
    from standfast.cli.session_run import run_in_session
    from standfast.cli.store import opened

    with opened(create=False) as sf:
        found = sf.sessions.get(key)
    if found.command is None or found.cwd is None:
        raise InvalidInput(
            f"session {found.key!r} was not started by a command that is known",
            f"{hints.command('session', 'run', found.key)} -- COMMAND",
        )
    with opened(create=False) as sf:
        _confirm(sf, found)
    out.say(f"standfast: in {found.cwd}: {join(found.command)}")
    raise click.exceptions.Exit(run_in_session(out, found.id, found.command, agent=None, cwd=found.cwd))


def _confirm(sf: Standfast, found: SessionRecord) -> None:
    """A command that another actor may have stored is read by a person before it runs."""
    from standfast.cli.stored_commands import Stored, confirm, is_confirmed, is_mine

    openers = {event.actor for event in sf.journal.about(found.id, limit=1000) if event.type.startswith("session.")}
    stored = Stored(join(found.command or ()), found.cwd or "", tuple(sorted(openers)))
    if is_mine(stored, sf.settings.actor) or is_confirmed(stored, sf.settings.data_dir):
        return
    confirm(stored, sf.settings.data_dir, hints.command("session", "resume", found.key))


@session.verb("take", examples=("standfast session take fix-42", "standfast session take fix-42 --yes"))
@argument("key")
@option("--yes", is_flag=True, help="Do not ask.")
def take(out: Out, key: str, yes: bool) -> None:
    """End somebody's hold on the session KEY. Whatever they do in it from now on is refused."""
    from standfast.cli.store import opened
    from standfast.footings.leases import who

    with opened(create=False) as sf:
        found = sf.sessions.get(key)
        if found.standing == "live" and not yes:
            _ask(f"{who(found.holder)} is alive and holds {found.key}. End its hold?", key)
        taken = sf.sessions.take(found.id)
    out.record(plain(taken), [f"{taken.key} is free: {taken.reason}"])
    out.then(_next(taken))


@session.verb(
    "say",
    examples=(
        "standfast session say fix-42 'the tests pass' --role assistant",
        "git diff | standfast session say fix-42 - --role tool --key diff-1",
    ),
)
@argument("words", nargs=-1, required=True, metavar="[KEY] TEXT")
@option("--role", help="user, assistant, system, tool …  [default: assistant for an agent, else user]")
@option("--key", "once", help="Say it once under this key, however often this is run.")
@option("--node", help="To a sub-agent's conversation: reviewer/tests.")
@option("--content-json", is_flag=True, help="TEXT is a JSON value.")
def say(
    out: Out, words: tuple[str, ...], role: str | None, once: str | None, node: str | None, content_json: bool
) -> None:
    """Put one message at the end of the session KEY. `-` reads it from standard input."""
    from standfast import serial
    from standfast.cli.store import opened
    from standfast.config import load

    key, text = _key_and_text(words)
    settings = load()
    content = serial.loads(text, what="content") if content_json else text
    with opened(settings, create=False) as sf:
        role = role or ("assistant" if settings.agent else "user")
        said = sf.sessions.say(key, role, content, key=once, node=node)
    out.record(_message(said), [f"{said.position} {said.role}" + ("" if said.receipt else ": it was said before")])


@session.verb(
    "fork",
    examples=("standfast session fork fix-42 fix-42b", "standfast session fork fix-42 fix-42b --at 12"),
)
@argument("key")
@argument("new_key", required=False)
@option("--at", type=int, help="The last message that both share.  [default: all there are]")
def fork(out: Out, key: str, new_key: str | None, at: int | None) -> None:
    """Make NEW_KEY, a session that shares the first messages of KEY, and its steps and effects until then."""
    from standfast.cli.store import opened

    with opened(create=False) as sf:
        made = sf.sessions.fork(key, new_key, at=at)
    out.record(plain(made), [f"{made.key}: {made.reason}"])
    out.then(hints.command("session", "show", made.key))


@session.verb(
    "end",
    examples=("standfast session end fix-42", "standfast session end fix-42 --failed 'the tests stay red'"),
)
@argument("key", envvar=VARIABLE)
@option("--failed", metavar="WHY", help="It failed.")
@option("--waiting", metavar="WHY", help="It waits for somebody or something.")
def end(out: Out, key: str, failed: str | None, waiting: str | None) -> None:
    """End the session KEY that this actor holds: completed, unless it failed or waits."""
    from standfast.cli.store import opened

    if failed is not None and waiting is not None:
        raise click.UsageError("either --failed or --waiting")
    state = "failed" if failed is not None else "waiting" if waiting is not None else "completed"
    with opened(create=False) as sf:
        found = sf.sessions.get(key)
        # Below the command that holds it, one speaks in its name.
        holder = found.holder if os.environ.get(VARIABLE) in (found.id, found.key) else None
        ended = sf.sessions.end(found.id, state, reason=failed if failed is not None else waiting, holder=holder)
    out.record(plain(ended), [f"{ended.key} is {ended.state}" + (f": {ended.reason}" if ended.reason else "")])
    out.then(_next(ended))


def plain(found: SessionRecord) -> dict[str, Any]:
    """The noun's own fields, and its receipt as commands print it."""
    receipt = found.receipt.as_json() if found.receipt else None
    return {**found._asdict(), "crashed": found.crashed, "receipt": receipt}


def _with_reason(sf: Standfast, found: SessionRecord) -> SessionRecord:
    """A waiting session with the reason of now: the stored sentence may be out of date."""
    if found.state != "waiting":
        return found
    return found._replace(reason=sf.recovery.why_it_waits(found.id) or found.reason)


def _for_people(found: SessionRecord) -> dict[str, Any]:
    from standfast.footings.leases import who

    return {
        "standing_state": "crashed" if found.crashed else found.state,
        "holder_name": who(found.holder) if found.holder else None,
        "about": found.reason or found.preview,
    }


def _print(out: Out, found: SessionRecord) -> None:
    shown = {**_for_people(found), "command": join(found.command) if found.command else None}
    pairs = [
        ("session", f"{found.key} ({found.id})"),
        ("state", shown["standing_state"]),
        ("reason", found.reason),
        ("held by", shown["holder_name"]),
        ("agent", found.agent),
        ("about", found.preview),
        ("command", shown["command"]),
        ("forked", f"from {found.parent_id} at {found.cut_position}" if found.parent_id else None),
        ("cursor", found.cursor),
        ("opened", f"{found.openings}×, first {_moment(found.created_us)}"),
        ("updated", _moment(found.updated_us)),
    ]
    for line in out.pairs([(label, value) for label, value in pairs if value is not None]):
        out.text(line)


def _opened_pairs(record: SessionRecord, found: Any) -> list[tuple[str, object]]:
    pairs: list[tuple[str, object]] = [("session", f"{record.key} ({record.id})")]
    if found is None:
        return [*pairs, ("found", "nothing: it is new")]
    was = "crashed" if found.crashed else found.state
    pairs.append(("found", f"{was} since {_moment(found.since_us)}, by {found.by}"))
    pairs.append(("holds", f"{found.messages} messages, {found.steps} steps, {found.effects} effects"))
    pairs += [("in doubt", f"{one.tool} ({one.id[-6:]})") for one in found.in_doubt]
    return pairs + [("decided", f"{one.what} ({one.id[-6:]})") for one in found.decisions]


def _next(found: SessionRecord) -> str:
    if found.command is not None and (found.crashed or found.state in ("waiting", "failed")):
        return hints.command("session", "resume", found.key)
    if found.state == "active" and found.standing == "live":
        return f"{hints.command('session', 'say', found.key)} '…'"
    return hints.command("session", "open", found.key)


def _message(said: Message) -> dict[str, Any]:
    return {**said._asdict(), "receipt": said.receipt.as_json() if said.receipt else None}


def _key_and_text(words: tuple[str, ...]) -> tuple[str, str]:
    """KEY TEXT, or TEXT alone where the session is known."""
    import sys

    known = os.environ.get(VARIABLE)
    if len(words) == 1 and not known:
        raise click.UsageError(f"which session? standfast session say KEY TEXT, or set {VARIABLE}")
    if len(words) > 2:
        raise click.UsageError("the text is one word: put it in quotes")
    key, text = words if len(words) == 2 else (known or "", words[0])
    return key, sys.stdin.read() if text == "-" else text


def _alive(pid: int) -> bool:
    from standfast.clock import SYSTEM
    from standfast.footings.leases import is_gone, process

    return not is_gone(str(process(pid, SYSTEM)), SYSTEM)


def _ask(question: str, key: str) -> None:
    """Ask on the terminal; without one, say how to agree."""
    import sys

    if not sys.stdin.isatty():
        raise InvalidInput(
            question.replace(" End its hold?", ""), f"to end its hold: {hints.command('session', 'take', key, '--yes')}"
        )
    if not click.confirm(clean_lines(question), err=True):
        raise click.Abort
