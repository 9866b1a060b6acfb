"""`standfast install`: add hooks, the MCP server and the skill of standfast to the configuration of agents.

It can show the changes before, tests the hooks afterwards, and removes everything with --remove. Without a name it
installs into all agents of this account and imports their transcripts.
"""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import click

from standfast import hints, modules
from standfast.cli.frame import argument, command, option
from standfast.cli.open_store import exists, opened
from standfast.cli.output import Out
from standfast.cli.progress import reported
from standfast.cli.render import Column
from standfast.cli.values import counted, home_short
from standfast.config import load, people
from standfast.errors import NotFound, StandfastError
from standfast.ids import short

if TYPE_CHECKING:
    from standfast.admin.agents.catalogue import Agent
    from standfast.admin.agents.install import Plan, Standing
    from standfast.config import Settings

Target = tuple["Agent", str, tuple[str, ...]]
"""A file of an agent, with the parts of standfast in it."""

COLUMNS = [Column("agent"), Column("part"), Column("state"), Column("path", show=home_short), Column("note")]
IMPORT_EVERY = "10m"


@command("install", examples=("standfast install", "standfast install claude-code --dry-run"))
@argument("agents", nargs=-1, metavar="[AGENT|git-hooks]...")
@option("--all", "every", is_flag=True, help="Install into all agents of this account; this is the default.")
@option(
    "--scope",
    type=click.Choice(["user", "project"]),
    default="user",
    show_default=True,
    help="Install for this account, or only for this project.",
)
@option("--shared", is_flag=True, help="With --scope project: use the file that is committed to the repository.")
@option("--dry-run", is_flag=True, help="Show the changes as a diff and change nothing.")
@option("--check", is_flag=True, help="Show the state of each part; exit 1 unless all parts are current.")
@option("--remove", is_flag=True, help="Remove the entries of standfast.")
@option("--no-mcp", is_flag=True, help="Do not install the MCP server.")
@option("--no-skill", is_flag=True, help="Do not install the skill.")
@option(
    "--loop/--no-loop",
    "loop",
    default=None,
    help="Import the transcripts of the agent every 10 minutes.  [default: ask]",
)
@option("--no-test", is_flag=True, help="Do not test the installed hooks and server.")
def install(
    out: Out,
    agents: tuple[str, ...],
    every: bool,
    scope: str,
    shared: bool,
    dry_run: bool,
    check: bool,
    remove: bool,
    no_mcp: bool,
    no_skill: bool,
    loop: bool | None,
    no_test: bool,
) -> None:
    """Install hooks, MCP server and skill into an AGENT; without a name, into all agents of this account.

    AGENT is claude-code, codex, gemini-cli or opencode. Only entries of standfast are written, and a backup of each
    changed file stays beside it. Without a name, transcripts are imported too. git-hooks installs the pre-push hook of
    this repository, which stops a push by an agent if a gate matches.
    """
    from standfast.admin.agents import install as installing
    from standfast.cli import install_check

    if remove:
        people.refuse("removes the installed hooks")
    settings = load(quiet=True)
    project = settings.project_dir or os.getcwd()
    if "git-hooks" in agents:
        _git_hooks(out, agents, project, check=check, remove=remove, dry_run=dry_run)
        return
    chosen = _chosen(out, agents, every=every)
    for agent in chosen if scope == "project" and not shared else []:
        installing.refuse_shared(agent)
    program = installing.program()
    parts = [part for part, left_out in (("hooks", False), ("mcp", no_mcp), ("skill", no_skill)) if not left_out]
    files = [
        (agent, path, held)
        for agent in chosen
        for path, held in installing.targets(agent, parts, _scope(scope), os.environ, project, shared=shared).items()
    ]
    serves = no_mcp or remove or find_spec("mcp") is not None
    files = files if serves else _without_new_servers(files, program)
    if check:
        _show(out, [installing.stand(agent, path, program, part) for agent, path, held in files for part in held])
        return
    plans = installing.plans(files, program, remove=remove)
    if dry_run:
        _diff(out, plans)
        return
    for plan in plans:
        installing.apply(plan, keep_backup=not remove)
    tested = {} if remove or no_test else install_check.tested(settings, plans, program)
    _show_result(out, plans, tested, remove=remove)
    if remove:
        _say_what_stays(out, settings, chosen)
        return
    for agent in chosen if not agents else []:
        _import_transcripts(out, agent)
    loop = _asked_for_loops(out, chosen) if loop is None else loop
    for agent in chosen:
        served = any(plan.agent is agent and "mcp" in plan.parts for plan in plans)
        _remaining_steps(out, agent, program, loop, served=served or no_mcp or not serves)
    if not serves:
        again = hints.command("install", *agents)
        out.say(f"the MCP server is left out, because its package is missing: {modules.install('mcp')} && {again}")
    if plans:
        out.say(f"to remove it: {hints.command('install', *agents, '--remove')}")
        out.then(*["standfast daemon install"] * bool(loop), "standfast doctor")
    if any(problem for problem in tested.values()):
        raise click.exceptions.Exit(1)


def _chosen(out: Out, names: tuple[str, ...], *, every: bool) -> list[Agent]:
    """The agents of these names; without a name, or for `every`, all that this account uses."""
    from standfast.admin.agents import install as installing
    from standfast.admin.agents.catalogue import AGENTS

    named = [installing.agent_named(name) for name in names]
    if named and not every:
        return named
    found = [agent for agent in AGENTS if installing.present(agent)]
    _say_found(out, found)
    return found


def _without_new_servers(files: list[Target], program: str) -> list[Target]:
    """The files without the MCP server where it is not installed yet: an agent reports a server that does not start."""
    from standfast.admin.agents import install as installing

    kept = []
    for agent, path, parts in files:
        found = tuple(
            part for part in parts if part != "mcp" or installing.stand(agent, path, program, part).state != "missing"
        )
        kept += [(agent, path, found)] if found else []
    return kept


def _scope(text: str) -> Any:
    return text


def _say_found(out: Out, chosen: list[Agent]) -> None:
    """Print which agents were found on this account. Raises NotFound if there is none."""
    from standfast.admin.agents.catalogue import AGENTS

    missing = ", ".join(agent.name for agent in AGENTS if agent not in chosen)
    if not chosen:
        raise NotFound(f"no agent was found on this account: {missing}", "install one by name: standfast install codex")
    found = ", ".join(agent.name for agent in chosen)
    out.say(f"found: {found}" + (f"; not on this account: {missing}" if missing else ""))


def _import_transcripts(out: Out, agent: Agent) -> None:
    """Import the transcripts of the agent, and print how many there were."""
    try:
        with opened(scope_choice="global") as sf:
            report = sf.imports.run(agent.name, progress=reported(out))
    except StandfastError as error:
        out.say(f"{agent.name}: its transcripts were not imported: {error.message}")
        return
    if not report.sources:
        out.say(f"{agent.name}: no transcripts yet")
        return
    known = report.totals.get("same", 0)
    out.say(
        f"{agent.name}: {counted(report.messages, 'message')} in {counted(report.sessions, 'new session')} imported "
        f"from {counted(len(report.sources), 'transcript')}" + (f"; {known:,} had nothing new" if known else "")
    )


def _git_hooks(out: Out, names: tuple[str, ...], project: str, *, check: bool, remove: bool, dry_run: bool) -> None:
    from standfast.admin import git_hooks
    from standfast.admin.agents import install as installing

    if len(names) > 1:
        raise click.UsageError("git-hooks is installed alone: standfast install git-hooks")
    program = installing.program()
    hook = git_hooks.find(program, project)
    state = hook.state
    if dry_run:
        out.text(git_hooks.text(program).removesuffix("\n"))
        out.say(f"{hook.path}: nothing was changed (--dry-run)")
        return
    if remove:
        git_hooks.remove(hook)
        state = "removed" if state in ("current", "stale") else "not there"
    elif not check and state != "current":
        git_hooks.install(hook, program)
        state = "installed"
    out.rows([{"agent": "git-hooks", "part": "pre-push", "state": state, "path": hook.path}], COLUMNS, next=None)
    if check and state != "current":
        raise click.exceptions.Exit(1)
    if not (check or remove):
        out.then("standfast gate add --preset git-push")


def _show(out: Out, found: list[Standing]) -> None:
    rows = [
        {"agent": one.agent.name, "part": one.part, "state": one.state, "path": one.path, "note": one.note}
        for one in found
    ]
    missing = [one.agent.name for one in found if one.state != "current"]
    out.rows(
        rows,
        COLUMNS,
        next=None,
        then=hints.command("install", missing[0]) if missing else "",
    )
    if missing:
        raise click.exceptions.Exit(1)


def _diff(out: Out, plans: list[Plan]) -> None:
    rows = [
        {"agent": plan.agent.name, "part": ", ".join(plan.parts), "path": plan.path, "diff": plan.diff()}
        for plan in plans
        if plan.changes
    ]
    if not out.for_people:
        out.rows(rows, COLUMNS, next=None)
        return
    for row in rows:
        out.text(row["diff"].removesuffix("\n"))
    out.say("nothing was changed (--dry-run)" if rows else "nothing to change")


def _show_result(out: Out, plans: list[Plan], tested: dict[tuple[str, str], str], *, remove: bool) -> None:
    rows = []
    for plan in plans:
        state = ("removed" if remove else "installed") if plan.changes else ("not there" if remove else "current")
        for part in plan.parts:
            problem = tested.get((plan.agent.name, part), "")
            told = "partly installed" if problem else state
            rows.append({"agent": plan.agent.name, "part": part, "state": told, "path": plan.path, "note": problem})
    out.rows(rows, COLUMNS, next=None)


def _say_what_stays(out: Out, settings: Settings, agents: list[Agent]) -> None:
    """Name what `install --remove` leaves: loops that import the transcripts of these agents, and the store."""
    if not exists(settings):
        return
    find = "SELECT id FROM loop WHERE name = :name AND state <> 'removed'"
    with opened(settings) as sf:
        found = [(one.name, row["id"]) for one in agents for row in sf.rows(find, {"name": f"import-{one.name}"})]
    for agent, id in found:
        remove = hints.command("loop", "remove", short(id))
        out.say(f"{agent}: a loop still imports its transcripts; to remove it: {remove}")
    out.say("the store stays, and so do its copies: standfast where")


def _remaining_steps(out: Out, agent: Agent, program: str, loop: bool | None, *, served: bool) -> None:
    out.say(f"{agent.name}: {agent.restart}")
    _add_loop(out, agent, program, loop)
    if not served:
        out.say(f"{agent.name}: to give it standfast's tools: {_mcp(agent, program)}")


def _asked_for_loops(out: Out, agents: list[Agent]) -> bool | None:
    """Ask whether loops should import the transcripts, because agents delete them. None without a terminal."""
    if not (out.for_people and sys.stdin.isatty() and sys.stderr.isatty()):
        return None
    names = ", ".join(agent.name for agent in agents)
    return click.confirm(f"import the transcripts of {names} into the store every {IMPORT_EVERY}?", err=True)


def _add_loop(out: Out, agent: Agent, program: str, wanted: bool | None) -> None:
    """Add a loop that imports the transcripts if it is wanted. If it is not known, print a hint."""
    name, command = f"import-{agent.name}", [program, "import", agent.name]
    line = hints.command("loop", "add", name, "--every", IMPORT_EVERY, "--", *command)
    if wanted:
        with opened(scope_choice="global") as sf:
            sf.loops.add(name, command, every=IMPORT_EVERY, cwd=os.path.expanduser("~"))
        out.say(
            f"{agent.name}: its transcripts are imported every {IMPORT_EVERY} while the daemon runs: "
            "standfast daemon install"
        )
    elif wanted is None:
        out.say(f"{agent.name}: to import its transcripts into the store: {line}")


def _mcp(agent: Agent, program: str) -> str:
    """The command that adds the MCP server, after its packages; most agents have a command of their own for it."""
    line = f"{hints.word(program)} mcp"
    packages = "" if find_spec("mcp") else f"{modules.install('mcp')} && "
    return (
        packages
        + {
            "claude-code": f"claude mcp add --scope user standfast -- {line}",
            "codex": f"codex mcp add standfast -- {line}",
            "gemini-cli": f"gemini mcp add -s user standfast {line}",
            "opencode": "standfast install opencode",
        }[agent.name]
    )
