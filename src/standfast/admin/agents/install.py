"""Install our entries into the settings files of an agent, and remove them.

A file is replaced by a rename and keeps its mode. The original is kept beside it (`….standfast-backup`). If only our
entries have changed since, removing them restores the original bytes. Otherwise they are removed from the present text.

Settings of a user may be symbolic links. In a project no link is followed, because a repository may contain links.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from standfast import files, hints
from standfast.admin.agents import hook_entries, jsonc, mcp_entries, skills
from standfast.admin.agents.catalogue import AGENTS, ALIASES, BY_NAME, Agent, Scope
from standfast.config import regular_files
from standfast.config.people import for_people
from standfast.errors import Conflict, InvalidInput, StandfastError, close_matches

BACKUP = ".standfast-backup"
FILE_MAX_BYTES = 8 << 20
INSTALL = "in the directory of its source: uv tool install ."

PARTS: dict[str, Any] = {"hooks": hook_entries, "mcp": mcp_entries, "skill": skills}
"""The parts to install, and the functions that edit the text of each file."""
HOOKS = ("hooks",)


class Plan(NamedTuple):
    """The change that an installation, or its removal, makes in one file."""

    agent: Agent
    path: str
    before: bytes | None
    after: bytes | None
    """None: the file is removed."""
    parts: tuple[str, ...] = HOOKS

    @property
    def changes(self) -> bool:
        return self.before != self.after

    def diff(self) -> str:
        """The change in the format of `diff -u`."""
        from difflib import unified_diff

        old = (self.before or b"").decode(errors="replace").splitlines(keepends=True)
        new = (self.after or b"").decode(errors="replace").splitlines(keepends=True)
        names = (
            self.path if self.before is not None else "/dev/null",
            self.path if self.after is not None else "/dev/null",
        )
        return "".join(line if line.endswith("\n") else line + "\n" for line in unified_diff(old, new, *names))


class Standing(NamedTuple):
    """The state of one of our parts in one file."""

    agent: Agent
    path: str
    state: str
    """missing, current, stale or unreadable."""
    note: str = ""
    part: str = "hooks"


def agent_named(name: str) -> Agent:
    """An agent by its name or alias. Raises InvalidInput."""
    found = BY_NAME.get(ALIASES.get(name.lower(), name.lower()))
    if found is None:
        names = (*BY_NAME, "git-hooks")
        meant = "".join(f"; did you mean {near}?" for near in close_matches(name.lower(), names))
        raise InvalidInput(f"standfast does not know the agent {name!r}{meant}", f"one of: {', '.join(names)}")
    return found


def refuse_shared(agent: Agent) -> None:
    """Raises InvalidInput without `--shared` if the only file of a project is in its repository."""
    if agent.project_file == agent.shared_file:
        raise InvalidInput(
            f"{agent.name} has only one file per project, {agent.shared_file}, which others get with the repository",
            hints.command("install", agent.name, "--scope", "project", "--shared")
            + "    (or for you alone: --scope user)",
        )


def present(agent: Agent, environ: Mapping[str, str] | None = None) -> bool:
    """Whether this account has the directory or the command of an agent."""
    from shutil import which

    env = os.environ if environ is None else environ
    return os.path.isdir(agent.directory(env)) or which(agent.program, path=env.get("PATH")) is not None


def program() -> str:
    """The path of the standfast command for hooks. Raises InvalidInput if it is in a cache that is emptied."""
    import sysconfig
    from shutil import which

    called = sys.argv[0]
    candidates = [
        os.path.abspath(called) if os.path.basename(called) == "standfast" and os.path.sep in called else "",
        os.path.join(sysconfig.get_path("scripts"), "standfast"),
        which("standfast") or "",
    ]
    found = next((path for path in candidates if path and os.access(path, os.X_OK)), None)
    if found is None:
        raise InvalidInput("the standfast command is not installed as a file", INSTALL)
    parts = os.path.realpath(found).split(os.path.sep)
    if "archive-v0" in parts or any(part.startswith("builds-v") for part in parts):
        raise InvalidInput(f"{found} is in a cache and will vanish: hooks need a path that stays", INSTALL)
    return found


def targets(
    agent: Agent,
    parts: Iterable[str],
    scope: Scope,
    environ: Mapping[str, str],
    project: str,
    *,
    shared: bool,
) -> dict[str, tuple[str, ...]]:
    """The files to change, with the parts for each file. One file may take two parts.

    `.claude.json` is also the state file of Claude Code. It is changed if it exists, and never created.
    """
    where = {"hooks": agent.path, "mcp": agent.server_path, "skill": agent.skill_path}
    found: dict[str, tuple[str, ...]] = {}
    for part in parts:
        path = where[part](scope, environ, project, shared=shared)
        if path is not None and (os.path.basename(path) != ".claude.json" or os.path.exists(path)):
            if scope == "project":
                _refuse_link(path, project)
            found[path] = (*found.get(path, ()), part)
    return found


def _refuse_link(path: str, project: str) -> None:
    """A repository may contain links. A write through a link would change a file that its author chose."""
    real = os.path.join(os.path.realpath(project), os.path.relpath(path, project))
    if os.path.realpath(path) != real:
        raise InvalidInput(
            f"{path} leads through a symbolic link to {os.path.realpath(path)}; standfast does not write through it",
            "remove the link, or install for you alone: --scope user",
            code="not_settings",
        )


def stand(agent: Agent, path: str, program: str, part: str = "hooks") -> Standing:
    """The state of one of our parts in a file, without changing it."""
    try:
        text = _text(path, _read(path))
        return Standing(agent, path, PARTS[part].state(agent, text, program), part=part)
    except (StandfastError, jsonc.Broken) as error:
        return Standing(agent, path, "unreadable", str(error).partition("\n")[0], part=part)


def install_plan(agent: Agent, path: str, program: str, parts: tuple[str, ...] = HOOKS) -> Plan:
    """The change that adds our entries. Raises InvalidInput for a file that cannot be parsed."""
    before = _read(path)
    text = _text(path, before)
    part = parts[0]
    try:
        for part in parts:
            text = PARTS[part].installed(agent, text, program)
        assert text is not None
        _same_otherwise(agent, before, text, parts)
    except jsonc.Broken as error:
        raise _refused(agent, path, error, program, part) from None
    return Plan(agent, path, before, text.encode(), parts)


@for_people("removes the installed hooks")
def remove_plan(agent: Agent, path: str, program: str, parts: tuple[str, ...] = HOOKS) -> Plan:
    """The change that removes our entries. It restores the original bytes if nothing else has changed."""
    before = _read(path)
    if before is None:
        return Plan(agent, path, None, None, parts)
    text = _text(path, before)
    assert text is not None
    part, removed = parts[0], text
    try:
        there = tuple(part for part in parts if PARTS[part].state(agent, text, program) != "missing")
        if not there:
            return Plan(agent, path, before, before, parts)
        original = _read(path + BACKUP)
        if _gives(agent, original, text, program, there):
            return Plan(agent, path, before, original, parts)
        for part in there:
            removed = PARTS[part].removed(
                agent, removed, None if original is None else original.decode(errors="replace")
            )
            if removed is None:
                return Plan(agent, path, before, None, parts)
        _same_otherwise(agent, before, removed, parts)
    except jsonc.Broken as error:
        raise _refused(agent, path, error, program, part) from None
    return Plan(agent, path, before, removed.encode(), parts)


def plans(files: list[tuple[Agent, str, tuple[str, ...]]], program: str, *, remove: bool) -> list[Plan]:
    """The changes of all files. A skill that several agents read is removed with the last of them."""
    make = remove_plan if remove else install_plan
    chosen = [agent for agent, _, _ in files]
    made: dict[str, Plan] = {}
    for agent, path, parts in files:
        if path not in made and not (remove and parts == ("skill",) and _still_read(path, chosen, program)):
            made[path] = make(agent, path, program, parts)
    return list(made.values())


def _still_read(path: str, leaving: list[Agent], program: str) -> bool:
    """Whether an agent that keeps our hooks reads the same skill."""
    return any(
        other.skill_path("user", os.environ, "") == path
        and stand(other, other.path("user", os.environ, ""), program).state in ("current", "stale")
        for other in AGENTS
        if other not in leaving
    )


def apply(plan: Plan, *, keep_backup: bool) -> None:
    """Write the change. Raises Conflict if the file has changed since the plan was made."""
    if not plan.changes:
        return
    path = os.path.realpath(plan.path)
    if _read(path) != plan.before:
        raise Conflict(f"{plan.path} has changed meanwhile", "try again")
    backup = plan.path + BACKUP
    if keep_backup and plan.before is not None and entries_missing(plan):
        files.replace(backup, plan.before, mode=0o600)
    if plan.after is None:
        os.unlink(path)
        if plan.parts == ("skill",):
            with suppress(OSError):
                os.rmdir(os.path.dirname(path))  # fails if another file is in the directory of the skill
    else:
        mode = stat.S_IMODE(os.stat(path).st_mode) if plan.before is not None else 0o600
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        files.replace(path, plan.after, mode=mode)
    if not keep_backup and (plan.after is None or plan.after == _read(backup)):
        with suppress(FileNotFoundError):
            os.unlink(backup)


def entries_missing(plan: Plan) -> bool:
    """Whether the file of a plan had none of our entries."""
    text = None if plan.before is None else plan.before.decode(errors="replace")
    try:
        return all(PARTS[part].state(plan.agent, text, "") == "missing" for part in _of_one_file(plan))
    except jsonc.Broken:
        return True


def _of_one_file(plan: Plan) -> tuple[str, ...]:
    """All parts that the file of this plan may have, also those that this plan does not change."""
    return ("hooks", "mcp") if plan.agent.name == "gemini-cli" and plan.parts != ("skill",) else plan.parts


def _gives(agent: Agent, original: bytes | None, text: str, program: str, parts: tuple[str, ...]) -> bool:
    """Whether installing these parts into the original bytes gives exactly this text."""
    try:
        before = None if original is None else original.decode()
        return _with(agent, before, program, parts) == text
    except (jsonc.Broken, UnicodeDecodeError):
        return False


def _with(agent: Agent, text: str | None, program: str, parts: tuple[str, ...]) -> str | None:
    for part in parts:
        text = PARTS[part].installed(agent, text, program)
    return text


def _same_otherwise(agent: Agent, before: bytes | None, after: str, parts: tuple[str, ...]) -> None:
    """Raises jsonc.Broken if an edit would change entries that are not ours."""
    if parts == ("skill",) or not (agent.events or "mcp" in parts) or before is None or not before.strip():
        return
    if _others(agent, before.decode(), parts) != _others(agent, after, parts):
        raise jsonc.Broken("it is too unusual to be edited safely")


def _others(agent: Agent, text: str, parts: tuple[str, ...] = HOOKS) -> object:
    """The values of a text without our entries, and without objects that would be empty then."""
    value = mcp_entries.values(agent, text) if "mcp" in parts else jsonc.plain(text)
    if "mcp" in parts:
        value = mcp_entries.others(agent, value)
    if "hooks" not in parts:
        return value
    hooks = {
        event: [kept for group in groups if (kept := _without_ours(agent, group))]
        for event, groups in value.get("hooks", {}).items()
    }
    rest = {name: one for name, one in value.items() if name != "hooks"}
    return rest, {event: groups for event, groups in hooks.items() if groups}


def _without_ours(agent: Agent, group: object) -> object:
    if not isinstance(group, dict) or not isinstance(group.get("hooks"), list):
        return group
    from standfast.admin.agents.catalogue import is_ours

    handlers = [
        one for one in group["hooks"] if not (isinstance(one, dict) and is_ours(one.get("command"), agent.name))
    ]
    return {**group, "hooks": handlers} if handlers else None


def _refused(agent: Agent, path: str, error: jsonc.Broken, program: str, part: str) -> InvalidInput:
    words = f"{path} cannot be edited: {error}"
    if part == "skill" or (part == "hooks" and not agent.events):
        return InvalidInput(words, "move it away, then install again", code="not_settings")
    written = PARTS[part].snippet(agent, program)
    without = " (or leave it out: --no-mcp)" if part == "mcp" else ""
    return InvalidInput(words, f"mend it, or put this in by hand{without}:\n{written}", code="not_settings")


def _text(path: str, data: bytes | None) -> str | None:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise InvalidInput(f"{path} is not UTF-8, so it is left alone", code="not_settings") from None


def _read(path: str) -> bytes | None:
    try:
        data = regular_files.read(path, FILE_MAX_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}", code="not_settings") from None
    if len(data) > FILE_MAX_BYTES:
        raise InvalidInput(f"{path} is larger than {FILE_MAX_BYTES >> 20} MB, so it is left alone", code="not_settings")
    return data


def default_path(agent: Agent, scope: Scope, project: str, *, shared: bool = False) -> str:
    return agent.path(scope, os.environ, project, shared=shared)
