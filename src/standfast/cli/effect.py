"""`standfast effect`: what is sent to the outside world, from a shell: begin, act, say how it ended."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from standfast.cli import exits
from standfast.cli.frame import argument, noun, option, place, scope_options
from standfast.cli.output import Out, dumps
from standfast.cli.render import Column
from standfast.errors import InvalidInput
from standfast.footings import hints

if TYPE_CHECKING:
    from standfast.footings.journal import Event
    from standfast.ledger.effects.nouns import Effect, Verdict

effect = noun("effect", "What the outside world can see: recorded before it is sent.", default="list")


def moment(us: int) -> str:
    from time import localtime, strftime

    return strftime("%Y-%m-%d %H:%M", localtime(us // 1_000_000))


COLUMNS = [
    Column("id", show=lambda id: id[-6:]),
    Column("stands", "state"),
    Column("shown", "what"),
    Column("planned_us", "when", moment),
    Column("actor", "by"),
    Column("error"),
]


@effect.verb(
    "begin",
    examples=(
        "standfast effect begin deploy to=prod --key deploy:42",
        'standfast effect begin github.open_pr \'{"branch": "fix-42"}\' --by branch --session fix-42',
    ),
)
@argument("tool")
@argument("intent", nargs=-1)
@option("--by", multiple=True, help="A field that identifies it; may be given more than once.")
@option("--key", help="Your own name for it, known in every session.")
@option("--session", envvar="STANDFAST_SESSION", help="The session it belongs to: key or id.")
@option("--task", help="The task it is done for: id, or the end of it.")
@option("--plan", is_flag=True, help="Stop before it is sent.")
@option("--for", "term", help="How long you hold it unless you come back: 30m, 2h.  [default: 15m]")
@option("--while", "pid", type=int, help="Hold it as long as this process lives.")
@option("--idempotent", is_flag=True, help="The remote honours the key that is printed: in doubt, send again.")
@option("--approve", is_flag=True, help="A person has to say yes first.")
@option("--attempts", type=click.IntRange(1, 10), default=1, help="How many sends one approval allows.  [default: 1]")
@option("--again", is_flag=True, help="Once more, although it was done: #2.")
@option("--per", type=click.Choice(["session", "store"]), help="store: one effect in every session.")
@option("--why", help="For the person who has to say yes.")
def begin(
    out: Out,
    tool: str,
    intent: tuple[str, ...],
    by: tuple[str, ...],
    session: str | None,
    term: str | None,
    pid: int | None,
    **options: Any,
) -> None:
    """Record that TOOL is about to be used, with INTENT (JSON, or name=value …); then act.

    Exit 0: it is yours, act now and say `effect done` or `effect fail`. Exit 7: it was done
    before, its result is on stdout. Exit 6: in doubt. Exit 75: somebody is at it.
    """
    from standfast.cli.store import agent_session
    from standfast.clock import parse_duration

    said = intent_of(intent)
    for_us = parse_duration(term) if term else _longest(pid)
    with _opened(pid) as sf:
        begun = sf.effects.begin(
            tool, said, by=by or None, session=session or agent_session(sf), for_us=for_us, **options
        )
    if begun.done:
        _print_result(out, begun)
        raise click.exceptions.Exit(exits.ALREADY_DONE)
    shown = [("effect", begun.id), ("state", begun.state), ("attempt", begun.attempt), ("key", begun.call_key)]
    out.record(plain(begun), out.pairs((name, value) for name, value in shown if value))
    if begun.state == "planned":
        out.then(f"{hints.command('effect', 'begin', tool)} … (the same once more sends it)")
    else:
        out.then(f"standfast effect done {begun.id[-6:]} RESULT    (or: effect fail {begun.id[-6:]} WHY)")


@effect.verb("done", examples=("standfast effect done 9k2m4x", "standfast effect done deploy:42 '{\"run\": 7}'"))
@argument("effect")
@argument("result", required=False)
@option("--ref", "external_ref", help="Where the world keeps it: a URL, a number.")
@option("--attempt", type=int, help="The attempt that is done, where it is not your own.")
def done(out: Out, effect: str, result: str | None, external_ref: str | None, attempt: int | None) -> None:
    """Record the RESULT (JSON, or text; - is stdin) of an EFFECT you began: id, its end, or key."""
    with _opened() as sf:
        ended = sf.effects.done(effect, value_of(result), external_ref=external_ref, attempt=attempt)
    _print(out, ended)


@effect.verb("fail", examples=("standfast effect fail 9k2m4x 'no route to host'", "standfast effect fail deploy:42"))
@argument("effect")
@argument("why", default="not applied")
@option("--attempt", type=int, help="The attempt that failed, where it is not your own.")
def fail(out: Out, effect: str, why: str, attempt: int | None) -> None:
    """Record that nothing was sent, and WHY: the next one acts. If you do not know, do not say it."""
    with _opened() as sf:
        ended = sf.effects.fail(effect, why, attempt=attempt)
    _print(out, ended)


@effect.verb(
    "resolve",
    examples=(
        "standfast effect resolve 9k2m4x --applied --evidence 'pull request 7 is there' --result '{\"number\": 7}'",
        "standfast effect resolve 9k2m4x --not-applied --evidence 'no such pull request'",
    ),
)
@argument("effect")
@option("--applied", is_flag=True, help="It happened.")
@option("--not-applied", is_flag=True, help="It did not happen: the next call acts.")
@option("--evidence", required=True, help="What you looked at, and what it said.")
@option("--result", help="What it would have returned: JSON, or text; - is stdin.")
@option("--attempt", type=int, help="The attempt you looked at: a later one is left as it is.")
def resolve(
    out: Out, effect: str, applied: bool, not_applied: bool, evidence: str, result: str | None, attempt: int | None
) -> None:
    """Settle an EFFECT that is in doubt, after having looked. A second resolve may correct the result."""
    if applied == not_applied:
        said = "--applied and --not-applied contradict each other" if applied else "did it happen?"
        raise InvalidInput(said, "give one of them: --applied or --not-applied")
    answer = "applied" if applied else "not_applied"
    with _opened() as sf:
        settled = sf.effects.resolve(effect, answer, evidence=evidence, result=value_of(result), attempt=attempt)
    _print(out, settled)


@effect.verb(
    "undo",
    examples=(
        "standfast effect undo 9k2m4x -- ./close-pr.sh",
        "standfast effect undo deploy:42 -- ./rollback.sh prod",
    ),
)
@argument("effect")
@argument("command", nargs=-1, type=click.UNPROCESSED)
def undo(out: Out, effect: str, command: tuple[str, ...]) -> None:
    """Undo an EFFECT that was done, by running COMMAND once; it finds the recorded result on stdin, as JSON.

    Exit 0 means undone; another exit code means not undone, to be tried again; ended by a signal,
    the undo itself is in doubt.
    """
    from standfast.cli.once_run import undoing

    if not command:
        raise InvalidInput(
            "how is it undone? Nothing is known here but its result", f"effect undo {effect} -- COMMAND …"
        )
    with _opened(process=True) as sf:
        undone = sf.effects.undo(effect, undoing(command))
    _print(out, undone)


@effect.verb("list", examples=("standfast effect list", "standfast effect list --in-doubt --all"))
@option("--state", help="planned, dispatched, acknowledged, failed, compensated, superseded, in_doubt")
@option("--in-doubt", "state", flag_value="in_doubt", help="Sent, and nobody knows whether it arrived.")
@option("--tool", help="Only of this tool.")
@option("--session", help="Only of this session: key or id.")
@option("--after", callback=place, help="Where the page before ended.")
@option("--limit", default=50, show_default=True, type=click.IntRange(1, 1000))
@scope_options
def list_(out: Out, limit: int, scope_choice: str | None, **asked: Any) -> None:
    """List effects, the newest first."""
    from standfast.cli.store import opened
    from standfast.config import load

    with opened(load(outside=scope_choice == "global"), create=False) as sf:
        found = sf.effects.list(everywhere=scope_choice == "all", limit=limit, **asked)
    doubtful = next((one for one in found if one.in_doubt), None)
    then = f"standfast effect show {(doubtful or found[0]).id[-6:]}" if found else ""
    out.rows(
        [{**plain(one), **_for_people(one)} if out.for_people else plain(one) for one in found],
        COLUMNS,
        next=found[-1].id if len(found) == limit else None,
        then=then,
        empty="nothing is in doubt" if asked["state"] == "in_doubt" else "no effects here",
    )


@effect.verb("show", examples=("standfast effect show 9k2m4x", "standfast effect show deploy:42 --json"))
@argument("effect")
def show(out: Out, effect: str) -> None:
    """Show one EFFECT: what was to be done, how it stands, what happened to it, and what the next call would do."""
    from standfast.cli.store import opened

    with opened(create=False) as sf:
        verdict = sf.effects.may_replay(effect)
        events = sf.journal.about(verdict.effect.id, limit=200)
    if not out.for_people:
        about = {"replay": {"action": verdict.action, "reason": verdict.reason}}
        transitions = [{"time_us": one.time_us, "type": one.type, "actor": one.actor} for one in events]
        out.record({**plain(verdict.effect), **about, "transitions": transitions})
        return
    for line in _lines(out, verdict, events):
        out.text(line)
    if verdict.effect.in_doubt:
        out.then(verdict.settling)


# What others here use, too.


def plain(found: Effect) -> dict[str, Any]:
    """The noun's own fields, and its receipt as commands print it."""
    return {**found._asdict(), "receipt": found.receipt.as_json() if found.receipt else None}


def intent_of(words: tuple[str, ...]) -> Any:
    """JSON in one word, or name=value in each."""
    from standfast import serial

    if not words:
        return None
    if len(words) == 1 and words[0].lstrip()[:1] in ("{", "[", '"'):
        return serial.loads(words[0], what="intent")
    intent: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise InvalidInput(f"{word[:60]!r} is neither JSON nor name=value", 'to=prod, or \'{"to": "prod"}\'')
        intent[name] = value
    return intent


def value_of(word: str | None) -> Any:
    """JSON, or the text itself; - is stdin."""
    from standfast import serial

    if word is None:
        return None
    text = sys.stdin.read() if word == "-" else word
    try:
        return serial.loads(text, what="result")
    except InvalidInput:
        if text.lstrip()[:1] in ("{", "["):
            raise  # meant as JSON, and broken
        return text.rstrip("\n")


def _opened(pid: int | None = None, *, process: bool = False) -> Any:
    from standfast.cli.store import opened
    from standfast.config import load
    from standfast.handle import connect

    if pid is not None or process:
        return connect(load(), pid=pid)
    return opened()


def _longest(pid: int | None) -> int | None:
    from standfast.footings.leases import LEASE_MAX_US

    return LEASE_MAX_US if pid is not None else None  # it ends with the process; time is only the last resort


def _print(out: Out, found: Effect) -> None:
    out.record(plain(found), out.pairs([("effect", found.id), ("state", found.state), ("what", found.shown)]))


def _print_result(out: Out, found: Effect) -> None:
    out.record(plain(found), [found.result if isinstance(found.result, str) else dumps(found.result)])
    if found.ended_us is not None:
        out.say(f"standfast: done before, at {moment(found.ended_us)}")


def _for_people(found: Effect) -> dict[str, Any]:
    return {"stands": "in doubt" if found.in_doubt else found.state, "shown": found.shown}


def _lines(out: Out, verdict: Verdict, events: list[Event]) -> Any:
    found = verdict.effect
    facts: list[tuple[str, object]] = [
        ("effect", found.id),
        ("state", "in doubt" if found.in_doubt else found.state),
        ("tool", found.tool),
        ("key", found.key),
        ("task", found.task_id),
        ("attempt", found.attempt),
        ("intent", dumps(found.intent)),
        ("result", None if found.result is None else dumps(found.result)),
        ("artifact", found.artifact_id),
        ("error", found.error),
        ("evidence", found.evidence),
        ("reference", found.external_ref),
        ("successor", found.successor_id),
        ("next call", f"{verdict.action}: {verdict.reason}"),
    ]
    yield from out.pairs((name, value) for name, value in facts if value is not None)
    yield ""
    for event in events:
        yield f"{moment(event.time_us)}  {event.type.removeprefix('effect.'):<13} {event.actor}"
