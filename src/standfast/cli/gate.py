"""`standfast gate`: commands that need a person's yes, or to be recorded as an effect first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from standfast.cli import exits
from standfast.cli.frame import argument, noun, option, place, scope_options
from standfast.cli.output import Out
from standfast.cli.render import Column

if TYPE_CHECKING:
    from standfast.config import Settings
    from standfast.ledger.gate_patterns import Gate

gate = noun("gate", "Commands that need a person's yes, or to be an effect first.", default="list")

COLUMNS = [
    Column("id", show=lambda id: id[-6:]),
    Column("pattern"),
    Column("need"),
    Column("scope", show=lambda scope: scope or "everywhere"),
    Column("why"),
]
_GLOBAL = option("--global", "everywhere", is_flag=True, help="In every scope, not only in this repository.")


@gate.verb(
    "add", examples=('standfast gate add "git push*"', 'standfast gate add "mcp__github__*" --need effect --global')
)
@argument("pattern")
@option("--need", type=click.Choice(["approval", "effect"]), default="approval", show_default=True)
@option("--why", help="What the refused agent is told.")
@_GLOBAL
def add(out: Out, pattern: str, need: str, why: str | None, everywhere: bool) -> None:
    """Let commands or tools that match PATTERN (a glob: quote it) pass only with what they need."""
    from standfast.cli.store import opened

    with opened(_settings(everywhere)) as sf:
        made = sf.gates.add(pattern, need=need, why=why)
    out.record(plain(made), out.pairs([("gate", made.id), ("pattern", made.pattern), ("need", made.need)]))
    out.then('standfast gate test "COMMAND LINE"')


@gate.verb("list", examples=("standfast gate list", "standfast gate list --all --json"))
@option("--after", callback=place, help="Where the page before ended.")
@option("--limit", default=50, show_default=True, type=click.IntRange(1, 1000))
@scope_options
def list_(out: Out, after: str | None, limit: int, scope_choice: str | None) -> None:
    """List the gates that hold here: this scope's, and those that hold everywhere."""
    from standfast.cli.store import opened

    with opened(_settings(scope_choice == "global"), create=False) as sf:
        repaired = sf.gates.mirror()
        found = sf.gates.list(everywhere=scope_choice == "all", after=after, limit=limit)
    out.rows(
        [plain(one) for one in found],
        COLUMNS,
        next=found[-1].id if len(found) == limit else None,
        then='standfast gate test "COMMAND LINE"' if found else 'standfast gate add "git push*"',
        empty="no gate stands here",
    )
    if repaired:
        out.say("gates.json was brought up to the store")


@gate.verb("remove", examples=('standfast gate remove "git push*"', "standfast gate remove 9k2m4x"))
@argument("gate")
@_GLOBAL
def remove(out: Out, gate: str, everywhere: bool) -> None:
    """Take down a GATE: its pattern here, its id, or the end of it. For people: refused to agents."""
    from standfast.cli.store import opened
    from standfast.config import people

    people.refuse("removes a gate")
    with opened(_settings(everywhere), create=False) as sf:
        made = sf.gates.remove(gate)
    out.record(plain(made), [f"removed: {made.pattern} needed {made.need}"])


@gate.verb(
    "test", examples=('standfast gate test "cd app && git push"', "standfast gate test --tool mcp__github__merge ''")
)
@argument("command")
@option("--tool", help="The name of the tool, as the agent calls it.")
def test(out: Out, command: str, tool: str | None) -> None:
    """Show which gates a COMMAND line meets: exit 0 for none, 5 needs a yes, 4 needs to be an effect."""
    from standfast.cli.store import opened

    with opened(create=False) as sf:
        sf.gates.mirror()
        found = sf.gates.check(command, tool=tool)
    out.rows([plain(one) for one in found], COLUMNS, empty="no gate: it passes")
    if found:
        yes = found[0].need == "approval"
        out.then(f"standfast once KEY{' --approve' if yes else ''} -- COMMAND")
        raise click.exceptions.Exit(exits.NEEDS_A_PERSON if yes else exits.CONFLICT)


def plain(found: Gate) -> dict[str, Any]:
    """The noun's own fields, and its receipt as commands print it."""
    return {**found._asdict(), "receipt": found.receipt.as_json() if found.receipt else None}


def _settings(everywhere: bool) -> Settings:
    from standfast.config import load

    return load(scope="" if everywhere else None, outside=everywhere)
