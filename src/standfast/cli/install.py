"""`standfast install AGENT`: our hooks, our MCP server and our skill where an agent looks for them.

Shown before, tested after, and taken out again.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from standfast.cli.frame import argument, command, option
from standfast.cli.output import Out
from standfast.cli.render import Column
from standfast.footings import hints

if TYPE_CHECKING:
    from standfast.config import Settings
    from standfast.upkeep.agents.installing import Plan, Standing
    from standfast.upkeep.agents.known import Agent

COLUMNS = [Column("agent"), Column("part"), Column("state"), Column("path"), Column("note")]
TEST_MAX_S = 30
SERVER_MAX_S = 90
"""It loads for a second of CPU, and longer on a busy machine."""
IMPORT_EVERY = "10m"


@command("install", examples=("standfast install claude-code", "standfast install codex --dry-run"))
@argument("agents", nargs=-1, metavar="[AGENT]...")
@option("--all", "every", is_flag=True, help="Every agent found on this account.")
@option("--scope", type=click.Choice(["user", "project"]), default="user", show_default=True)
@option("--shared", is_flag=True, help="With --scope project: the file that others get with the repository.")
@option("--dry-run", is_flag=True, help="Show the change as a diff; change nothing.")
@option("--check", is_flag=True, help="Say how it stands; exit 1 unless everything is current.")
@option("--remove", is_flag=True, help="Take our entries out again.")
@option("--no-mcp", is_flag=True, help="Leave the MCP server out.")
@option("--no-skill", is_flag=True, help="Leave the skill out.")
@option("--loop/--no-loop", "loop", default=None, help="Import its transcripts every 10 minutes.  [default: ask]")
@option("--no-test", is_flag=True, help="Do not run the installed command once at the end.")
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
    """Put standfast into an AGENT: hooks, MCP server, skill; without a name, say which agents are here.

    AGENT is claude-code, codex, gemini-cli or opencode. Only our own entries are written; a file as it
    was stays beside it. Git's hooks are never touched.
    """
    from standfast.config import load, people
    from standfast.upkeep.agents import installing
    from standfast.upkeep.agents.known import AGENTS

    if remove:
        people.refuse("removes the installed hooks")
    settings = load(quiet=True)
    project = settings.project_dir or os.getcwd()
    chosen = [installing.agent_named(name) for name in agents]
    if every or not chosen:
        chosen = [agent for agent in AGENTS if installing.present(agent)]
    for agent in chosen if scope == "project" and not shared else []:
        installing.refuse_shared(agent)
    program = installing.program()
    parts = [part for part, left_out in (("hooks", False), ("mcp", no_mcp), ("skill", no_skill)) if not left_out]
    files = [
        (agent, path, held)
        for agent in chosen
        for path, held in installing.targets(agent, parts, _scope(scope), os.environ, project, shared=shared).items()
    ]
    if check or not (agents or every):
        found = [installing.stand(agent, path, program, part) for agent, path, held in files for part in held]
        _show(out, found, check=check)
        return
    plans = installing.plans(files, program, remove=remove)
    if dry_run:
        _diff(out, plans)
        return
    for plan in plans:
        installing.apply(plan, keep_backup=not remove)
    tested = {} if remove or no_test else _tested(settings, plans, program)
    _tell(out, plans, tested, remove=remove)
    for agent in chosen:
        if remove:
            _left_behind(out, settings, agent)
        else:
            served = any(plan.agent is agent and "mcp" in plan.parts for plan in plans)
            _left_to_do(out, agent, program, loop, served=served or no_mcp)
    if plans and not remove:
        out.then(f"standfast doctor    (take it out: {hints.command('install', plans[0].agent.name, '--remove')})")
    if any(problem for problem in tested.values()):
        raise click.exceptions.Exit(1)


def _scope(text: str) -> Any:
    return text


def _show(out: Out, found: list[Standing], *, check: bool) -> None:
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
        empty="no agent was found on this account: standfast install claude-code | codex | gemini-cli | opencode",
    )
    if check and (missing or not found):
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


def _tell(out: Out, plans: list[Plan], tested: dict[tuple[str, str], str], *, remove: bool) -> None:
    rows = []
    for plan in plans:
        state = ("removed" if remove else "installed") if plan.changes else ("not there" if remove else "current")
        for part in plan.parts:
            problem = tested.get((plan.agent.name, part), "")
            told = "partly installed" if problem else state
            rows.append({"agent": plan.agent.name, "part": part, "state": told, "path": plan.path, "note": problem})
    out.rows(rows, COLUMNS, next=None)


def _left_behind(out: Out, settings: Settings, agent: Agent) -> None:
    """What an installation may have added elsewhere stays until it is taken away by name."""
    from standfast.cli.store import exists, opened

    if not exists(settings):
        return
    from standfast.ids import short

    name: dict[str, object] = {"name": f"import-{agent.name}"}
    with opened(settings) as sf:
        found = [row["id"] for row in sf.rows("SELECT id FROM loop WHERE name = :name AND state <> 'removed'", name)]
    for id in found:
        out.say(f"{agent.name}: its transcripts are still imported; to end that: standfast loop remove {short(id)}")


def _left_to_do(out: Out, agent: Agent, program: str, loop: bool | None, *, served: bool) -> None:
    out.say(f"{agent.name}: {agent.restart}")
    _offer_loop(out, agent, program, loop)
    if not served:
        out.say(f"{agent.name}: to give it standfast's tools: {_mcp(agent, program)}")


def _offer_loop(out: Out, agent: Agent, program: str, wanted: bool | None) -> None:
    """Agents delete their transcripts; a loop keeps them. Asked on a terminal, told elsewhere."""

    name, command = f"import-{agent.name}", [program, "import", agent.name]
    line = hints.command("loop", "add", name, "--every", IMPORT_EVERY, "--", *command)
    if wanted is None and out.for_people and sys.stdin.isatty() and sys.stderr.isatty():
        wanted = click.confirm(
            f"{agent.name}: keep its transcripts for good, by a loop every {IMPORT_EVERY}?", err=True
        )
    if wanted:
        from standfast.cli.store import opened
        from standfast.config import load

        with opened(load(outside=True)) as sf:
            sf.loops.add(name, command, every=IMPORT_EVERY, cwd=os.path.expanduser("~"))
        out.say(
            f"{agent.name}: its transcripts are imported every {IMPORT_EVERY} while the daemon runs: "
            "standfast daemon install"
        )
    elif wanted is None:
        out.say(f"{agent.name}: to keep its transcripts for good: {line}")


def _mcp(agent: Agent, program: str) -> str:
    """Their own commands write it best."""
    import shlex

    line = f"{shlex.quote(program)} mcp"
    return {
        "claude-code": f"claude mcp add --scope user standfast -- {line}",
        "codex": f"codex mcp add standfast -- {line}",
        "gemini-cli": f"gemini mcp add -s user standfast {line}",
        "opencode": f"opencode mcp add standfast    (command: {line})",
    }[agent.name]


def _tested(settings: Settings, plans: list[Plan], program: str) -> dict[tuple[str, str], str]:
    """What went wrong, if it did, when what was installed is run once as the agent would."""
    found = {(plan.agent.name, "hooks"): _heard(settings, plan, program) for plan in plans if "hooks" in plan.parts}
    served = [plan for plan in plans if "mcp" in plan.parts]
    if served:
        problem = _answers(program)
        found |= {(plan.agent.name, "mcp"): problem for plan in served}
    return found


def _answers(program: str) -> str:
    """Say hello to our MCP server, as an agent does."""
    import json
    import subprocess

    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "install", "version": "1"}}
    line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}) + "\n"
    try:
        ran = subprocess.run(
            [program, "mcp"], input=line.encode(), capture_output=True, timeout=SERVER_MAX_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"the MCP server does not answer: {error}"
    if b'"serverInfo"' in ran.stdout:
        return ""
    last = ran.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["nothing was said"]
    return f"the MCP server does not answer: {last[0][:200]}"


def _heard(settings: Settings, plan: Plan, program: str) -> str:
    """Run the installed hook once, and look for what it left. What went wrong, if it did."""
    import json
    import subprocess

    from standfast.cli.store import opened
    from standfast.interchange.hooks import spool
    from standfast.interchange.hooks.keeping import Hooks
    from standfast.upkeep.agents.known import hook_command

    native = f"install-{os.urandom(6).hex()}"
    payload = {"hook_event_name": "InstallCheck", "session_id": native, "cwd": os.getcwd()}
    line = hook_command(program, plan.agent.name)
    try:
        ran = subprocess.run(
            ["/bin/sh", "-c", line],
            input=json.dumps(payload).encode(),
            capture_output=True,
            timeout=TEST_MAX_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"the installed command does not run: {error}"
    if ran.returncode != 0 or ran.stdout:
        return (
            f"the installed command exits with {ran.returncode} and says {ran.stdout[:200].decode(errors='replace')!r}"
        )
    spool.key(settings.data_dir)
    with opened(settings) as sf:
        if Hooks(sf._store).checked(plan.agent.name, native):
            return ""
    return "the installed command runs, and nothing of it has come to the store: standfast doctor"
