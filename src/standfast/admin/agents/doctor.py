"""What `doctor` reports about each agent: is standfast installed, current and trusted, when did a hook last run, and
when will the agent delete its transcripts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from standfast import hints
from standfast.admin.agents import hook_entries, install, jsonc, mcp_entries
from standfast.admin.agents.catalogue import AGENTS, BY_NAME, Agent, is_ours
from standfast.admin.agents.install import Standing
from standfast.admin.doctor import Finding
from standfast.clock import DAY_US
from standfast.db.contract import Tx
from standfast.interchange.hooks import record

RETENTION_DAYS = {"claude-code": 30, "gemini-cli": 30}
"""The agent deletes its transcripts after this time by default."""


class Facts(NamedTuple):
    """The facts about an agent in the store."""

    last_us: int | None
    imported: int
    now_us: int


def facts(tx: Tx, agent: str) -> Facts:
    """Read the facts about an agent."""
    last_us, imported = record.last_heard(tx, agent)
    return Facts(last_us, imported, tx.now_us())


def examine(
    known: Mapping[str, Facts], project: str | None, environ: Mapping[str, str] | None = None
) -> Iterator[Finding]:
    """Findings about every agent that has a directory on this account."""
    env = os.environ if environ is None else environ
    for agent in AGENTS:
        if not os.path.isdir(agent.directory(env)):
            continue
        yield _installed(agent, known.get(agent.name), project, env)
        yield from _stores(agent, project, env)
        if agent.name in RETENTION_DAYS:
            yield _retention(agent, known.get(agent.name), env)


def standing(agent: Agent, project: str | None, env: Mapping[str, str]) -> Standing:
    """The state of our hooks in the user's settings, or in the project's if they are only there."""
    paths = [agent.path("user", env, project or "")]
    if project is not None:
        paths += [agent.path("project", env, project), agent.path("project", env, project, shared=True)]
    found = [install.stand(agent, path, _program()) for path in dict.fromkeys(paths)]
    return next((one for one in found if one.state != "missing"), found[0])


def _installed(agent: Agent, facts: Facts | None, project: str | None, env: Mapping[str, str]) -> Finding:
    id = f"agent-{agent.name}"
    found = standing(agent, project, env)
    again = hints.command("install", agent.name)
    if found.state == "unreadable":
        return Finding(id, "warn", f"{found.path}: {found.note}", "mend the file; standfast leaves it alone")
    if found.state == "missing":
        return Finding(id, "ok", f"found, and standfast is not installed in it{_heard(facts)}", again)
    gone = [command for command in _commands(agent, found.path) if not os.access(_program_of(command), os.X_OK)]
    if gone:
        return Finding(id, "warn", f"its hooks call {_program_of(gone[0])}, which is not there", again)
    if found.state == "stale":
        return Finding(id, "warn", f"installed in {found.path}, not as this standfast would write it", again)
    off = switched_off(agent, env)
    if off:
        return Finding(
            id, "warn", f"installed, and {off} switches all its hooks off", f"take {off} out of its settings"
        )
    silent = codex_skips(found.path, env) if agent.name == "codex" else {}
    if silent:
        why = ", ".join(f"{event} {reason}" for event, reason in list(silent.items())[:3])
        text = f"installed, and Codex does not run {len(silent)} of its hooks: {why}{', …' if len(silent) > 3 else ''}"
        return Finding(id, "warn", text, "start codex, type /hooks, and trust those of standfast")
    return Finding(id, "ok", f"installed in {found.path}{_heard(facts)}")


def _stores(agent: Agent, project: str | None, env: Mapping[str, str]) -> Iterator[Finding]:
    """Warn if the hooks and the MCP server of an agent use two stores. Codex passes few variables to its server."""
    from standfast.config import load
    from standfast.errors import InvalidInput

    if standing(agent, project, env).state in ("missing", "unreadable"):
        return
    for path in _server_files(agent, project, env):
        passed = _server_environment(agent, path, env)
        if passed is None:
            continue
        try:
            hooks, tools = load(environ=env, quiet=True), load(environ=passed, quiet=True)
        except InvalidInput:
            continue  # `config` reports the error
        if hooks.target != tools.target:
            text = f"its hooks use {hooks.target.shown}, its MCP server uses {tools.target.shown} ({path})"
            yield Finding(f"store-{agent.name}", "warn", text, hints.command("install", agent.name))
        elif env.get("STANDFAST_ACTOR") and passed.get("STANDFAST_ACTOR") != env.get("STANDFAST_ACTOR"):
            text = f"its MCP server does not get STANDFAST_ACTOR ({path}), so its tools act as another actor"
            yield Finding(f"store-{agent.name}", "warn", text, hints.command("install", agent.name))


def _server_files(agent: Agent, project: str | None, env: Mapping[str, str]) -> list[str]:
    paths = [agent.server_path("user", env, project or "")]
    if project is not None:
        paths.append(agent.server_path("project", env, project, shared=True))
    return [path for path in dict.fromkeys(paths) if path is not None and os.path.isfile(path)]


def _server_environment(agent: Agent, path: str, env: Mapping[str, str]) -> dict[str, str] | None:
    try:
        with open(path, encoding="utf-8") as file:
            return mcp_entries.environment(agent, file.read(), env)
    except (OSError, UnicodeDecodeError, jsonc.Broken):
        return None


def _retention(agent: Agent, facts: Facts | None, env: Mapping[str, str]) -> Finding:
    """Does the agent delete its transcripts before they are imported?"""
    id = f"transcripts-{agent.name}"
    days = retention_days(agent, env)
    kept = "keeps its transcripts" if days is None else f"deletes its transcripts after {days} days"
    text = f"{agent.name} {kept}"
    if facts is not None and facts.imported:
        return Finding(id, "ok", f"{text}; {facts.imported} of its files are imported")
    if days is None:
        return Finding(id, "ok", text)
    return Finding(id, "warn", f"{text}, and none is imported", hints.command("import", agent.name))


def retention_days(agent: Agent, env: Mapping[str, str]) -> int | None:
    """The number of days after which an agent deletes its transcripts; None if it never does."""
    value = _settings(os.path.join(agent.directory(env), "settings.json"))
    default = RETENTION_DAYS.get(agent.name)
    if agent.name == "claude-code":
        days = value.get("cleanupPeriodDays", default)
        return days if isinstance(days, int) and not isinstance(days, bool) and 0 <= days < 36_500 else default
    kept = value.get("general", value)
    kept = kept.get("sessionRetention", {}) if isinstance(kept, dict) else {}
    if not isinstance(kept, dict) or kept.get("enabled") is False:
        return None if isinstance(kept, dict) else default
    age = str(kept.get("maxAge", ""))
    units = {"h": 1 / 24, "d": 1, "w": 7, "m": 30}
    if age[:-1].isdigit() and age[-1:] in units:
        return int(int(age[:-1]) * units[age[-1]])
    return default


def switched_off(agent: Agent, env: Mapping[str, str]) -> str:
    """The setting that disables all hooks of an agent; empty if none does."""
    directory = agent.directory(env)
    if agent.name == "claude-code":
        return "disableAllHooks" if _settings(os.path.join(directory, "settings.json")).get("disableAllHooks") else ""
    if agent.name == "gemini-cli":
        found = _settings(os.path.join(directory, "settings.json")).get("hooksConfig")
        return "hooksConfig.enabled" if isinstance(found, dict) and found.get("enabled") is False else ""
    if agent.name == "codex":
        features = _codex_config(env).get("features")
        return "features.hooks" if isinstance(features, dict) and features.get("hooks") is False else ""
    return ""


def codex_skips(path: str, env: Mapping[str, str]) -> dict[str, str]:
    """The events whose hook Codex skips silently, with the reason. Codex 0.166 decides in the same way.

    Codex identifies a hook by file, event and position, and stores the hash that a person trusted. Only Codex may write
    that hash; standfast reads it.
    """
    hooks = _codex_config(env).get("hooks", {})
    state = hooks.get("state", {}) if isinstance(hooks, dict) else {}
    state = state if isinstance(state, dict) else {}
    silent: dict[str, str] = {}
    for event, place, handler, matcher in _placed(path):
        names = (f"{one}:{_snake(event)}:{place}" for one in (path, os.path.realpath(path)))
        known: dict[str, Any] = next((state[name] for name in names if isinstance(state.get(name), dict)), {})
        if known.get("enabled") is False:
            silent[event] = "is switched off"
        elif not known.get("trusted_hash"):
            silent[event] = "is not trusted"
        elif known["trusted_hash"] != codex_hash(event, handler, matcher):
            silent[event] = "has changed since it was trusted"
    return silent


def codex_hash(event: str, handler: dict[str, Any], matcher: str | None) -> str:
    """The hash of a hook as Codex 0.166 computes it."""
    import hashlib

    command = {"type": "command", "command": handler["command"], "timeout": handler.get("timeout", 600), "async": False}
    identity = {"event_name": _snake(event), "hooks": [command], **({} if matcher is None else {"matcher": matcher})}
    text = json.dumps(identity, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def _placed(path: str) -> Iterator[tuple[str, str, dict[str, Any], str | None]]:
    """Each of our hooks in a file: its event, its position, the handler, and its pattern of tools."""
    agent = BY_NAME["codex"]
    for event, groups in _settings(path).get("hooks", {}).items():
        for n, group in enumerate(groups if isinstance(groups, list) else []):
            handlers = group.get("hooks") if isinstance(group, dict) else None
            for m, handler in enumerate(handlers if isinstance(handlers, list) else []):
                if isinstance(handler, dict) and is_ours(handler.get("command"), agent.name):
                    yield event, f"{n}:{m}", handler, group.get("matcher")


def _snake(event: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in event).lstrip("_")


def _codex_config(env: Mapping[str, str]) -> dict[str, Any]:
    import tomllib

    try:
        with open(os.path.join(BY_NAME["codex"].directory(env), "config.toml"), "rb") as file:
            return tomllib.load(file)
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError):
        return {}


def _commands(agent: Agent, path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8") as file:
            return hook_entries.programs(agent, file.read())
    except (OSError, UnicodeDecodeError, jsonc.Broken):
        return []


def _program_of(command: str) -> str:
    import shlex

    return shlex.split(command)[0]


def _program() -> str:
    from standfast.errors import InvalidInput

    try:
        return install.program()
    except InvalidInput:
        return "standfast"


def _heard(facts: Facts | None) -> str:
    if facts is None or facts.last_us is None:
        return "; no report of it yet"
    days = (facts.now_us - facts.last_us) // DAY_US
    return "; last report today" if days <= 0 else f"; last report {days} days ago"


def _settings(path: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            value = jsonc.plain(file.read())
    except (OSError, UnicodeDecodeError, jsonc.Broken, json.JSONDecodeError):
        return {}
    return value if isinstance(value, dict) else {}
