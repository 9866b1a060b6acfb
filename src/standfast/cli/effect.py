"""`standfast effect`: record requests to outside systems: begin, act, report the outcome."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from standfast import hints, serial
from standfast.cli import exits
from standfast.cli.answers import Many, One, literal, show
from standfast.cli.frame import argument, command_line, made, noun, option
from standfast.cli.open_store import opened
from standfast.cli.output import Out, dumps
from standfast.cli.render import Column
from standfast.cli.values import VALUE, home_short, moment, plain, short
from standfast.config import load
from standfast.errors import InvalidInput

if TYPE_CHECKING:
    from standfast.core.journal import Event
    from standfast.handle import Standfast
    from standfast.ledger.effects.models import Effect, Verdict
    from standfast.views.subjects import Subject

effect = noun(
    "effect",
    "Record requests to outside systems before they are sent, and their outcome after.",
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


def _read_intent(asked: dict[str, Any]) -> None:
    if "intent" in asked:
        given = asked["intent"]
        asked["intent"] = intent_of(given if isinstance(given, tuple) else (given,))


def _begun(_: Standfast, begun: Effect) -> One:
    if begun.done:
        result = begun.result if isinstance(begun.result, str) else dumps(begun.result)
        say = f"done before, at {moment(begun.ended_us)}" if begun.ended_us is not None else ""
        return One(begun, [result], say=say, exit_code=exits.ALREADY_DONE)
    facts = [
        ("effect", begun.id),
        ("state", begun.state),
        ("attempt", begun.attempt or None),
        ("idempotency key", begun.call_key),
    ]
    then = literal(_again()) if begun.state == "planned" else "effect done {id} RESULT\neffect fail {id} WHY"
    return One(begun, lambda out: out.pairs(facts), then)


def _again() -> str:
    """The command line without --plan, which sends the planned effect."""
    given = click.get_current_context().params
    words = [word for field in given["by"] for word in ("--by", field)]
    for name in ("session", "key", "task", "per"):
        words += [f"--{name}", given[name]] if given[name] else []
    words += [f"--{name}" for name in ("idempotent", "approve", "again") if given[name]]
    named = given["intent__by_name"]
    intent = given["intent"] if named is None else (named,)
    return hints.command("effect", "begin", given["tool"], *intent, *words)


effect.generate(
    "begin",
    creates=True,
    in_session=True,
    holds=True,
    prepare=_read_intent,
    answer=_begun,
    without=("gate", "holder", "context", "still"),
    options={
        "intent": {"nargs": -1, "type": click.UNPROCESSED},
        "by": {"multiple": True, "metavar": "FIELD"},
        "idempotent": {"is_flag": True},
        "attempts": {"type": click.IntRange(1, 10)},
        "per": {"type": click.Choice(["session", "store"])},
    },
    examples=(
        "standfast effect begin deploy to=prod --key deploy:42",
        'standfast effect begin github.open_pr \'{"branch": "fix-42"}\' --by branch --session fix-42',
    ),
)
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


def _one_answer(asked: dict[str, Any]) -> None:
    applied, not_applied = asked.pop("applied", False), asked.pop("not_applied", False)
    if applied == not_applied:
        fact = "--applied and --not-applied contradict each other" if applied else "effect resolve needs an answer"
        raise InvalidInput(fact, "give one of them: --applied or --not-applied")
    asked["answer"] = "applied" if applied else "not_applied"


effect.generate(
    "resolve",
    prepare=_one_answer,
    without=("answer",),
    also=[
        partial(made, click.Option, ("--applied",), "The effect happened.", is_flag=True),
        partial(
            made, click.Option, ("--not-applied",), "The effect did not happen: the next call sends it.", is_flag=True
        ),
    ],
    options={"result": {"type": VALUE}},
    answer=lambda _, ended: _ended(ended),
    examples=(
        "standfast effect resolve 9k2m4x --applied --evidence 'pull request 7 is there' --result '{\"number\": 7}'",
        "standfast effect resolve 9k2m4x --not-applied --evidence 'no such pull request'",
    ),
)


@effect.verb(
    "check",
    examples=("standfast effect check 9k2m4x", "standfast effect check deploy:42 --yes"),
)
@argument("effect")
@option("--yes", is_flag=True, help="Record the answer of the probe without asking.")
def check(out: Out, effect: str, yes: bool) -> None:
    """Run the ready probe of an EFFECT in doubt, and record its answer if you agree.

    The probe only reads. Exit 6: the probe could not tell, or you did not agree.
    """
    from standfast.cli.effect_check import check as checked

    with opened() as sf:
        show(out, checked(sf, effect, yes=yes, ended=_ended))


@effect.verb(
    "compensate",
    examples=(
        "standfast effect compensate 9k2m4x -- ./close-pr.sh",
        "standfast effect compensate deploy:42 -- ./rollback.sh prod",
    ),
)
@argument("effect")
@command_line()
def compensate(out: Out, effect: str, command: tuple[str, ...]) -> None:
    """Reverse an EFFECT that was done: run COMMAND once, with the recorded result on stdin as JSON.

    Exit 0 means compensated. Another exit code means not compensated: try again. If a signal ends the command,
    the compensation is in doubt.
    """
    from standfast.cli.once_run import Killed, compensating
    from standfast.handle import connect
    from standfast.ledger.effects.call import NotApplied

    again = f"{hints.command('effect', 'compensate', effect)} -- COMMAND …"
    if not command:
        raise InvalidInput("effect compensate needs a command that reverses the effect", again)
    with connect(load()) as sf:
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
        partial(
            made,
            click.Option,
            ("--in-doubt", "state"),
            "Only list effects that were sent and whose outcome is unknown.",
            flag_value="in_doubt",
        )
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
    """The command that settles the effect: its ready probe, or `effect resolve` by a person."""
    from standfast.actions import doubts

    ready = doubts.asking(verdict.effect) is not None
    return f"effect check {short(verdict.effect.id)}" if ready else literal(verdict.settling)


effect.generate(
    "show",
    "may_replay",
    answer=_shown,
    examples=("standfast effect show 9k2m4x", "standfast effect show deploy:42 --json"),
)


def intent_of(words: tuple[str, ...]) -> Any:
    """The intent: one word of JSON, or name=value words."""
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


def _ended(found: Effect) -> One:
    return One(found, lambda out: out.pairs([("effect", found.id), ("state", found.state), ("what", found.shown)]))


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
        ("repository", home_short(subject.repository)),
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
    yield from out.pairs(facts)
    yield ""
    for event in events:
        yield f"{moment(event.time_us)}  {event.type.removeprefix('effect.'):<13} {event.agent}"
