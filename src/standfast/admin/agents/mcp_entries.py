"""Our MCP server in the text of an agent's settings. Pure functions, as in `hook_entries`.

Three of the agents keep their servers in JSON, Codex in TOML. In TOML our table is at the end of the file, under a
comment with our name. Settings that the user adds to it, such as a timeout, are kept.

Codex passes its whole environment to hooks, but only a few variables and those of `env_vars` to an MCP server. So our
`env_vars` names every variable that decides the store and the actor. Otherwise hooks and server could use two stores.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Mapping
from typing import Any

from standfast.admin.agents import jsonc
from standfast.admin.agents.catalogue import Agent
from standfast.admin.agents.hook_entries import State, index

NAME = "standfast"
MARK = "# standfast: written and removed by `standfast install`"

ENV_VARS = (
    "STANDFAST_ACTOR",
    "STANDFAST_DATA_DIR",
    "STANDFAST_DB_DIRECT_URL",
    "STANDFAST_HOT_URL",
    "STANDFAST_DB_URL",
    "STANDFAST_GIT_DIR",
    "STANDFAST_ORIGIN",
    "STANDFAST_REMEMBER",
    "STANDFAST_SCOPE",
    "STANDFAST_SESSION",
    "STANDFAST_STORE",
    "STANDFAST_UNSAFE_STORAGE",
    "XDG_STATE_HOME",
    "PGDATABASE",
    "PGHOST",
    "PGPASSFILE",
    "PGPASSWORD",
    "PGPORT",
    "PGSERVICE",
    "PGSERVICEFILE",
    "PGSSLMODE",
    "PGSSLROOTCERT",
    "PGUSER",
)
"""The variables that decide the store, the actor, the scope and the repository. Codex passes on those that are set."""
CODEX_PASSES = ("HOME", "LOGNAME", "PATH", "SHELL", "USER", "LANG", "LC_ALL", "TERM", "TMPDIR", "TZ")
"""The variables that Codex passes on by default."""

_HEADER = re.compile(rf"\[\s*mcp_servers\s*\.\s*(?:{NAME}|\"{NAME}\"|'{NAME}')\s*\]")
_ENV_VARS = re.compile(r"^env_vars[ \t]*=[ \t]*\[[^\]]*\]", re.MULTILINE)
_COMMAND = re.compile(r"command[ \t]*=[ \t]*(?:\"[^\"\n]*\"|'[^'\n]*')")


def installed(agent: Agent, text: str | None, program: str) -> str:
    """The text with one entry for our server.

    Raises jsonc.Broken if the text is not a settings file, or has another server of this name.
    """
    found = _found(agent, text)
    if found is not None and not _is_ours(found):
        raise jsonc.Broken(f"another server is called {NAME!r} in it")
    if agent.name == "codex":
        return _in_toml(text or "", program, found)
    wanted = _wanted(agent, program)
    if text is None or not text.strip():
        schema = {"$schema": "https://opencode.ai/config.json"} if agent.name == "opencode" else {}
        return json.dumps({**schema, _member(agent): {NAME: wanted}}, indent=2) + "\n"
    root = jsonc.parse(text)
    servers = root.get(_member(agent))
    if servers is None:
        return jsonc.add_member(text, root, _member(agent), {NAME: wanted})
    ours = servers.get(NAME)
    if ours is None:
        return jsonc.add_member(text, servers, NAME, wanted)
    return _brought_up(text, ours, {name: wanted[name] for name in ("command", "args") if name in wanted})


def removed(agent: Agent, text: str, before: str | None = None) -> str:
    """The text without our server. An object that `before` already had is kept, even if it is empty."""
    found = _found(agent, text)
    if found is None or not _is_ours(found):
        return text
    if agent.name == "codex":
        return _out_of_toml(text)
    root = jsonc.parse(text)
    servers = root.get(_member(agent))
    assert servers is not None
    text = jsonc.remove(text, servers, index(servers, NAME))
    had = values(agent, before) if before and before.strip() else {}
    if len(servers.members) == 1 and _member(agent) not in had:
        root = jsonc.parse(text)
        text = jsonc.remove(text, root, index(root, _member(agent)))
    return text


def state(agent: Agent, text: str | None, program: str) -> State:
    """Whether our server is in the text, with the command that this version writes."""
    found = _found(agent, text)
    if found is None or not _is_ours(found):
        return "missing"
    current = _called(found) == [program, "mcp"] and (agent.name != "codex" or set(ENV_VARS) <= set(_passed(found)))
    return "current" if current else "stale"


def environment(agent: Agent, text: str | None, env: Mapping[str, str]) -> dict[str, str] | None:
    """The variables that our server gets from an agent that runs with `env`; None if it is not installed."""
    found = _found(agent, text)
    if not isinstance(found, dict) or not _is_ours(found):
        return None
    names = {*CODEX_PASSES, *_passed(found)} if agent.name == "codex" else set(env)
    own = found.get("environment" if agent.name == "opencode" else "env", {})
    return {name: env[name] for name in names if name in env} | (
        {name: str(value) for name, value in own.items()} if isinstance(own, dict) else {}
    )


def snippet(agent: Agent, program: str) -> str:
    """The text to add by hand if a file cannot be edited."""
    return installed(agent, None, program)


def others(agent: Agent, value: dict[str, Any]) -> dict[str, Any]:
    """The values without our server, and without an object that would be empty then."""
    member = _member(agent)
    servers = value.get(member)
    if not isinstance(servers, dict):
        return value
    kept = {name: one for name, one in servers.items() if name != NAME}
    rest = {name: one for name, one in value.items() if name != member}
    return {**rest, member: kept} if kept else rest


def values(agent: Agent, text: str) -> dict[str, Any]:
    """The values of a settings file. Raises jsonc.Broken."""
    if agent.name != "codex":
        value = jsonc.plain(text)
    else:
        try:
            value = tomllib.loads(text)
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            raise jsonc.Broken(str(error)) from None
    if not isinstance(value, dict):
        raise jsonc.Broken("it holds no object")
    if not isinstance(value.get(_member(agent), {}), dict):
        raise jsonc.Broken(f'"{_member(agent)}" is no object')
    return value


# -- one entry -----------------------------------------------------------------------------------------


def _member(agent: Agent) -> str:
    return {"codex": "mcp_servers", "opencode": "mcp"}.get(agent.name, "mcpServers")


def _wanted(agent: Agent, program: str) -> dict[str, Any]:
    if agent.name == "opencode":
        return {"type": "local", "command": [program, "mcp"], "enabled": True}
    kind = {"type": "stdio"} if agent.name == "claude-code" else {}
    return {**kind, "command": program, "args": ["mcp"]}


def _found(agent: Agent, text: str | None) -> object:
    if text is None or not text.strip():
        return None
    return values(agent, text).get(_member(agent), {}).get(NAME)


def _called(found: object) -> list[Any]:
    """The command and arguments of a server's entry."""
    if not isinstance(found, dict):
        return []
    command, args = found.get("command"), found.get("args", [])
    words = command if isinstance(command, list) else [command]
    return [*words, *(args if isinstance(args, list) else [args])]


def _passed(found: object) -> list[str]:
    """The names in `env_vars` of an entry of Codex. An item is a name or a table with a name."""
    listed = found.get("env_vars") if isinstance(found, dict) else None
    names = [one.get("name") if isinstance(one, dict) else one for one in listed] if isinstance(listed, list) else []
    return [name for name in names if isinstance(name, str)]


def _is_ours(found: object) -> bool:
    words = _called(found)
    return len(words) == 2 and os.path.basename(str(words[0])) == "standfast" and words[1] == "mcp"


def _brought_up(text: str, ours: jsonc.Place, wanted: dict[str, Any]) -> str:
    """Change only the command and arguments of our entry. Other keys belong to the user."""
    edits = [(place, value) for name, value in wanted.items() if (place := ours.get(name)) is not None]
    for place, value in sorted(edits, key=lambda edit: -edit[0].start):
        items = value if isinstance(place.value, list) and len(place.value) == len(value) else None
        places = [member.place for member in place.members] if items is not None else [place]
        for one, new in reversed(list(zip(places, items or [value], strict=True))):
            if one.value != new:
                text = text[: one.start] + json.dumps(new, ensure_ascii=False) + text[one.end :]
    return text


# -- TOML ----------------------------------------------------------------------------------------------


def _in_toml(text: str, program: str, found: object) -> str:
    newline = "\r\n" if "\r\n" in text else "\n"
    command = f"command = {json.dumps(program, ensure_ascii=False)}"
    lines = text.splitlines(keepends=True)
    table = _table(lines) if found is not None else None
    if found is not None and table is None:
        raise jsonc.Broken("our server is in it in another form than `standfast install` writes")
    if table is not None:
        mended = [_COMMAND.sub(lambda _: command, line) if _COMMAND.match(line) else line for line in lines[table]]
        ours = _with_env_vars("".join(mended), found, newline)
        return "".join([*lines[: table.start], ours, *lines[table.stop :]])
    gap = "" if not text else newline if text.endswith("\n") else newline * 2
    return text + gap + newline.join([MARK, f"[mcp_servers.{NAME}]", command, 'args = ["mcp"]', _env_vars([]), ""])


def _env_vars(known: list[str]) -> str:
    return f"env_vars = {json.dumps([*known, *(name for name in ENV_VARS if name not in known)])}"


def _with_env_vars(table: str, found: object, newline: str) -> str:
    """Our table with every variable that we need, and those that the user added."""
    listed = found.get("env_vars", []) if isinstance(found, dict) else []
    known = _passed(found)
    if set(ENV_VARS) <= set(known):
        return table
    if len(known) != len(listed):
        raise jsonc.Broken("env_vars of our server is in another form than `standfast install` writes")
    if _ENV_VARS.search(table):
        return _ENV_VARS.sub(lambda _: _env_vars(known), table, count=1)
    return (table if table.endswith("\n") else table + newline) + _env_vars(known) + newline


def _out_of_toml(text: str) -> str:
    lines = text.splitlines(keepends=True)
    table = _table(lines)
    if table is None:
        raise jsonc.Broken("our server is in it in another form than `standfast install` writes")
    before, after = lines[: table.start], lines[table.stop :]
    if (
        lines[table.start].startswith(MARK) and before and not before[-1].strip()
    ):  # the empty line that `_in_toml` added
        del before[-1]
    return "".join([*before, *after])


def _table(lines: list[str]) -> slice | None:
    """The lines of our table, with the comment above it. Comments right above the next table belong to the next one."""
    at = next((n for n, line in enumerate(lines) if _HEADER.match(line)), None)
    if at is None:
        return None
    end = next((n for n in range(at + 1, len(lines)) if lines[n].lstrip().startswith("[")), len(lines))
    while end < len(lines) and (not lines[end - 1].strip() or lines[end - 1].lstrip().startswith("#")):
        end -= 1
    return slice(at - 1 if at and lines[at - 1].startswith(MARK) else at, end)
