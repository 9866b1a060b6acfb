"""`standfast gate`: require an approval or an effect for some commands of agents."""

from __future__ import annotations

from time import time
from typing import TYPE_CHECKING, Any

import click

from standfast.cli import exits
from standfast.cli.answers import Many, One
from standfast.cli.frame import argument, noun, option
from standfast.cli.render import Column
from standfast.cli.values import moment, repository_name, short

if TYPE_CHECKING:
    from standfast.handle import Standfast

gate = noun(
    "gate",
    "Require an approval or an effect for some commands of agents.",
    default="list",
    of="standfast.ledger.gates:Gates",
)


def _paused(until_us: int | None) -> str:
    """The end of a pause; empty if the pause has ended."""
    return moment(until_us) if until_us is not None and until_us > time() * 1e6 else ""


NEEDS = ("approval", "effect", "ask")
PRESETS = ("git-push", "publish", "terraform", "kubectl-delete")
COLUMNS = [
    Column("id", show=short),
    Column("pattern"),
    Column("need"),
    Column("repository", show=lambda name: repository_name(name) or "every repository"),
    Column("scope"),
    Column("paused_until_us", "paused until", show=_paused),
    Column("why"),
]
_GLOBAL: dict[str, Any] = {
    "flag": "--global",
    "is_flag": True,
    "flag_value": "",
    "default": None,
    "help": "Use a gate of every repository, not only of this one.",
}


@gate.verb(
    "add",
    creates=True,
    examples=('standfast gate add "git push*" --need ask', "standfast gate add --preset publish --why 'ask Ada'"),
)
@argument("pattern", required=False)
@option("--preset", type=click.Choice(PRESETS), help="Add all gates of this kind of action.")
@option(
    "--need",
    type=click.Choice(NEEDS),
    default="approval",
    show_default=True,
    help="Require an approval or an effect. With ask, Claude Code asks its user; other agents need an approval.",
)
@option("--why", help="Give the reason that a refused agent reads.")
@option("--global", "everywhere", is_flag=True, help="Add the gate for every repository, not only for this one.")
def add(
    sf: Standfast, pattern: str | None, preset: str | None, need: str, why: str | None, everywhere: bool
) -> One | Many:
    """Require an approval or an effect for commands or tools that match PATTERN (a glob: quote it)."""
    if (pattern is None) == (preset is None):
        raise click.UsageError("give a PATTERN or --preset")
    wanted: dict[str, Any] = {"need": need, "why": why, "scope": "" if everywhere else None}
    then = 'gate test "COMMAND LINE"'
    if pattern is not None:
        return One(sf.gates.add(pattern, **wanted), then=then)
    return Many(sf.gates.add_preset(preset or "", **wanted), COLUMNS, then=then)


def _listed(sf: Standfast, found: Many) -> Many:
    repaired = sf.gates.mirror()
    return found._replace(columns=COLUMNS, say="gates.json was updated from the store" if repaired else "")


gate.generate(
    "list",
    without=("scope",),
    answer=_listed,
    then='gate test "COMMAND LINE"',
    empty='no gate here; add one: standfast gate add "git push*"',
    examples=("standfast gate list", "standfast gate list --all --json"),
)
gate.generate(
    "remove",
    options={"scope": _GLOBAL},
    text="removed: {pattern} needed {need}",
    examples=('standfast gate remove "git push*"', "standfast gate remove 9k2m4x"),
)


gate.generate(
    "pause",
    options={"scope": _GLOBAL},
    text="{pattern} is paused until {paused_until_us}",
    then="gate resume {id}",
    examples=(
        'standfast gate pause "git push*" --for 2h --why "release 2.0"',
        "standfast gate pause 9k2m4x --for 30m --why hotfix",
    ),
)
gate.generate(
    "resume",
    options={"scope": _GLOBAL},
    text="{pattern} needs {need} again",
    examples=('standfast gate resume "git push*"', "standfast gate resume 9k2m4x"),
)


def _met(sf: Standfast, found: Many) -> Many:
    from standfast.core.checks import PAGE_MAX
    from standfast.ledger.gate_patterns import met

    asked = click.get_current_context().params
    gates = met(sf.gates.list(limit=PAGE_MAX), asked["command"], tool=asked["tool"])
    paused = [one for one in gates if _paused(one.paused_until_us)]
    found = found._replace(
        say="\n".join(f"paused until {moment(one.paused_until_us)}: {one.pattern}" for one in paused)
    )
    if not found.models:
        return found
    if found.models[0].needs_person:
        return found._replace(then="once KEY --approve -- COMMAND", exit_code=exits.NEEDS_A_PERSON)
    return found._replace(then="once KEY -- COMMAND", exit_code=exits.CONFLICT)


gate.generate(
    "test",
    "check",
    without=("scope",),
    columns=COLUMNS,
    answer=_met,
    empty="no gate: it passes",
    examples=('standfast gate test "cd app && git push"', "standfast gate test --tool mcp__github__merge ''"),
)
