"""`standfast effect`: requests to outside systems, from a shell: begin, act, report the outcome."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from standfast import hints, serial
from standfast.cli import exits
from standfast.cli.answers import Many, One, literal, show
from standfast.cli.frame import SESSION_VARIABLE, argument, made, noun, option
from standfast.cli.open_store import agent_session, opened
from standfast.cli.output import Out, dumps
from standfast.cli.render import Column
from standfast.cli.values import DURATION, VALUE, home_short, moment, plain, short
from standfast.config import load
from standfast.errors import InvalidInput

if TYPE_CHECKING:
    from standfast.core.journal import Event
    from standfast.handle import Standfast
    from standfast.ledger.effects.models import Effect, Verdict
    from standfast.views.subjects import Subject

effect = noun(
    "effect",
    "What the outside world can see: recorded before it is sent.",
    default="list",
    of="standfast.ledger.effects.resource:Effects",
)


COLUMNS = [
    Column("id", show=short),
    Column("state"),
    Column("shown", "what"),
    Column("planned_us", "when", moment),
    Column("agent", "by"),
    Column("session_key", "session"),
    Column("repository", show=home_short),
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
@option("--by", multiple=True, metavar="FIELD", help="A field that identifies it; may be given more than once.")
@option("--key", help="Your own name for it, known in every session.")
@option("--session", envvar=SESSION_VARIABLE, metavar="KEY|ID", help="The session it belongs to.")
@option("--task", metavar="ID", help="The task it is done for.")
@option("--plan", is_flag=True, help="Stop before it is sent.")
@option("--for", "for_", type=DURATION, help="Hold it this long after your last command.  [default: 15m]")
@option("--while", "pid", type=int, metavar="PID", help="Hold it while this process lives: --while $$")
@option("--idempotent", is_flag=True, help="The remote honours the key that is printed: in doubt, send again.")
@option("--approve", is_flag=True, help="A person has to approve it first.")
@option("--attempts", type=click.IntRange(1, 10), default=1, help="How many sends one approval allows.  [default: 1]")
@option("--again", is_flag=True, help="Once more, although it was done: #2.")
@option("--per", type=click.Choice(["session", "store"]), help="store: one effect in every session.")
@option("--why", help="Reason shown to the approver.")
def begin(
    out: Out,
    tool: str,
    intent: tuple[str, ...],
    by: tuple[str, ...],
    session: str | None,
    for_: str | None,
    pid: int | None,
    **options: Any,
) -> None:
    """Record that TOOL is about to be used, with INTENT (JSON, or name=value …); then act.

    Exit 0: it is yours, act now and say `effect done` or `effect fail`. Exit 7: it was done
    before, its result is on stdout. Exit 6: in doubt. Exit 75: another process is running it.
    """
    from standfast.cli.lock import held_for

    said = intent_of(intent)
    with _opened(pid) as sf:
        begun = sf.effects.begin(
            tool, said, by=by or None, session=session or agent_session(sf), for_=held_for(for_, pid), **options
        )
    if begun.done:
        _print_result(out, begun)
        raise click.exceptions.Exit(exits.ALREADY_DONE)
    shown = [
        ("effect", begun.id),
        ("state", begun.state),
        ("attempt", begun.attempt),
        ("idempotency key", begun.call_key),
    ]
    out.record(plain(begun), out.pairs((name, value) for name, value in shown if value))
    if begun.state == "planned":
        out.then(_again(tool, intent, by, session, options))
    else:
        out.then(
            hints.command("effect", "done", begun.id[-6:], "RESULT"),
            hints.command("effect", "fail", begun.id[-6:], "WHY"),
        )


def _again(tool: str, intent: tuple[str, ...], by: tuple[str, ...], session: str | None, given: dict[str, Any]) -> str:
    """The same command without --plan: it sends what was planned."""
    words = [word for field in by for word in ("--by", field)]
    words += ["--session", session] if session else []
    for name in ("key", "task", "per"):
        words += [f"--{name}", given[name]] if given.get(name) else []
    words += [f"--{name}" for name in ("idempotent", "approve", "again") if given.get(name)]
    return hints.command("effect", "begin", tool, *intent, *words)


effect.generate(
    "done",
    answer=lambda _, ended: _ended(ended),
    options={"result": {"type": VALUE}, "external_ref": {"flag": "--ref"}},
    examples=("standfast effect done 9k2m4x", "standfast effect done deploy:42 '{\"run\": 7}'"),
)
effect.generate(
    "fail",
    answer=lambda _, ended: _ended(ended),
    examples=("standfast effect fail 9k2m4x 'no route to host'", "standfast effect fail deploy:42"),
)


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
@option("--result", type=VALUE, help="What it would have returned: JSON, or text; - is stdin.")
@option("--attempt", type=int, metavar="N", help="The attempt you looked at: a later one is left as it is.")
def resolve(
    sf: Standfast, effect: str, applied: bool, not_applied: bool, evidence: str, result: Any, attempt: int | None
) -> One:
    """Settle an EFFECT that is in doubt, after having looked. A second resolve may correct the result."""
    if applied == not_applied:
        said = "--applied and --not-applied contradict each other" if applied else "did it happen?"
        raise InvalidInput(said, "give one of them: --applied or --not-applied")
    answer = "applied" if applied else "not_applied"
    return _ended(sf.effects.resolve(effect, answer, evidence=evidence, result=result, attempt=attempt))


@effect.verb(
    "check",
    examples=("standfast effect check 9k2m4x", "standfast effect check deploy:42 --yes"),
)
@argument("effect")
@option("--yes", is_flag=True, help="Record what the probe found, without asking.")
def check(out: Out, effect: str, yes: bool) -> None:
    """Ask the ready probe of an EFFECT in doubt whether it happened, and record the answer if you say yes.

    The probe only reads. Exit 6: it could not find out, or you did not say yes.
    """
    from standfast.cli.effect_check import check as checked

    with _opened() as sf:
        show(out, checked(sf, effect, yes=yes, ended=_ended))


@effect.verb(
    "compensate",
    examples=(
        "standfast effect compensate 9k2m4x -- ./close-pr.sh",
        "standfast effect compensate deploy:42 -- ./rollback.sh prod",
    ),
)
@argument("effect")
@argument("command", nargs=-1, type=click.UNPROCESSED)
def compensate(out: Out, effect: str, command: tuple[str, ...]) -> None:
    """Reverse an EFFECT that was done: run COMMAND once, with the recorded result on stdin as JSON.

    Exit 0 means compensated. Another exit code means not compensated: try again. If a signal ends the command,
    the compensation is in doubt.
    """
    from standfast.cli.once_run import Killed, compensating
    from standfast.ledger.effects.call import NotApplied

    again = f"{hints.command('effect', 'compensate', effect)} -- COMMAND …"
    if not command:
        raise InvalidInput("effect compensate needs the command that reverses the effect", again)
    with _opened(process=True) as sf:
        try:
            compensated = sf.effects.compensate(effect, compensating(command))
        except NotApplied as error:
            out.error("failed", f"not compensated: {error}", f"correct the command, then try again: {again}")
            raise click.exceptions.Exit(exits.FAILED) from None
        except Killed as error:
            in_doubt = hints.command("effect", "list", "--in-doubt")
            out.error("effect_in_doubt", f"{command[0]} {error}: the compensation is in doubt", in_doubt)
            raise click.exceptions.Exit(exits.IN_DOUBT) from None
    show(out, _ended(compensated))


def _first_in_doubt(found: list[Effect]) -> str:
    first = next((one for one in found if one.in_doubt), found[0] if found else None)
    return f"effect show {short(first.id)}" if first else ""


def _listed(sf: Standfast, found: Many) -> Many:
    about = _subjects(sf, [one.id for one in found.models])
    return found._replace(
        columns=COLUMNS,
        row=lambda one: {**_row(one), **about[one.id].names()},
        plain=lambda one: {**plain(one), **about[one.id].names()},
    )


effect.generate(
    "list",
    without=("scope",),
    also=[
        partial(made, click.Option, ("--in-doubt", "state"), "Sent, with an unknown outcome.", flag_value="in_doubt")
    ],
    answer=_listed,
    then=_first_in_doubt,
    empty=lambda asked: "nothing is in doubt" if asked.get("state") == "in_doubt" else "no effects here",
    examples=("standfast effect list", "standfast effect list --in-doubt --all"),
)


def _subjects(sf: Standfast, ids: list[str]) -> dict[str, Subject]:
    from standfast.views.subjects import Subjects

    return Subjects(sf._store).of(ids)


def _shown(sf: Standfast, verdict: Verdict) -> One:
    events = sf.journal.about(verdict.effect.id, limit=200)
    subject = _subjects(sf, [verdict.effect.id])[verdict.effect.id]
    extra = {
        **subject.names(),
        "replay": {"action": verdict.action, "reason": verdict.reason},
        "transitions": [{"time_us": one.time_us, "type": one.type, "agent": one.agent} for one in events],
    }
    then = _next(verdict) if verdict.effect.in_doubt else ""
    return One(verdict.effect, lambda out: _lines(out, verdict, subject, events), then, extra=extra)


def _next(verdict: Verdict) -> str:
    """The command that settles it: by its ready probe, or by a person who has looked."""
    from standfast.actions import doubts

    ready = doubts.asking(verdict.effect) is not None
    return f"effect check {short(verdict.effect.id)}" if ready else literal(verdict.settling)


effect.generate(
    "show",
    "may_replay",
    answer=_shown,
    examples=("standfast effect show 9k2m4x", "standfast effect show deploy:42 --json"),
)


# Names that other modules here use too.


def intent_of(words: tuple[str, ...]) -> Any:
    """JSON in one word, or name=value in each."""
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


def _opened(pid: int | None = None, *, process: bool = False) -> Any:
    from standfast.handle import connect

    if pid is not None or process:
        return connect(load(), pid=pid)
    return opened()


def _ended(found: Effect) -> One:
    return One(found, lambda out: out.pairs([("effect", found.id), ("state", found.state), ("what", found.shown)]))


def _print_result(out: Out, found: Effect) -> None:
    out.record(plain(found), [found.result if isinstance(found.result, str) else dumps(found.result)])
    if found.ended_us is not None:
        out.say(f"standfast: done before, at {moment(found.ended_us)}")


def _row(found: Effect) -> dict[str, Any]:
    return {**found.as_dict(), "state": "in doubt" if found.in_doubt else found.state, "shown": found.shown}


def _lines(out: Out, verdict: Verdict, subject: Subject, events: list[Event]) -> Any:
    found = verdict.effect
    facts: list[tuple[str, object]] = [
        ("effect", found.id),
        ("state", "in doubt" if found.in_doubt else found.state),
        ("tool", found.tool),
        ("key", found.key),
        ("session", subject.session_key),
        ("repository", home_short(subject.repository) or None),
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
        yield f"{moment(event.time_us)}  {event.type.removeprefix('effect.'):<13} {event.agent}"
