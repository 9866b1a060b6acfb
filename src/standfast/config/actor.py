"""The actor of a command: the name under which its leases and records are kept.

The actor is `STANDFAST_ACTOR`, else the session of the agent whose variables are set, else the person and their
terminal. An agent without a session variable is `agent:user@host:tty`, so that it never holds a lease in the name of
the person at that terminal. Only a process without an agent's variables can be named `user@host`. With these variables,
the agent's name is put in front of such a name.

If one agent runs inside another, the environment does not show which is the inner one. The order of the table is a
guess. `STANDFAST_ACTOR` overrides it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

from standfast.errors import InvalidInput

ACTOR_MAX = 200


class Agent(NamedTuple):
    """The variables that an agent sets in the shells and hooks that it starts."""

    name: str
    sessions: tuple[str, ...] = ()
    """Variables with the id of the session. The first that is set counts."""
    processes: tuple[str, ...] = ()
    """Variables with an id that is unique only on this host."""
    signs: tuple[str, ...] = ()
    """Variables that only show that the agent runs."""


# Gemini's hooks also set CLAUDE_PROJECT_DIR, and people set CODEX_HOME: neither shows an agent. Codex's hooks report
# the root session, so its id comes before that of the thread: hooks and shells then renew the same lease.
AGENTS = (
    Agent(
        "codex",
        sessions=("CODEX_SESSION_ID", "CODEX_THREAD_ID"),
        signs=("CODEX_TOOL_CALL_ID", "CODEX_VERSION", "CODEX_CI", "CODEX_SANDBOX", "CODEX_SANDBOX_NETWORK_DISABLED"),
    ),
    Agent("gemini-cli", sessions=("GEMINI_SESSION_ID",), signs=("GEMINI_CLI",)),
    Agent("opencode", processes=("OPENCODE_PID",), signs=("OPENCODE",)),
    Agent("cursor", signs=("CURSOR_AGENT",)),
    Agent("claude-code", sessions=("CLAUDE_CODE_SESSION_ID",), signs=("CLAUDECODE",)),
)
# Other agents may set their name in these variables.
NAMED = ("AI_AGENT", "AGENT")
# "@" is removed from the name of an agent, so that it cannot look like the name of a person.
_PERSON = r"[^\s:@]+@[^\s:@]+:(?:pts/\d+|tty\w*|console)"


def agent_present(environ: Mapping[str, str] | None = None) -> str | None:
    """The name of the agent whose variables are set, or None."""
    found = agent_sign(environ)
    return None if found is None else found[0]


def agent_sign(environ: Mapping[str, str] | None = None) -> tuple[str, str] | None:
    """The agent whose variables are set, and the variable that says so."""
    env = os.environ if environ is None else environ
    for agent in AGENTS:
        for name in (*agent.sessions, *agent.processes, *agent.signs):
            if _set(env, name):
                return agent.name, name
    for name in NAMED:
        if value := _set(env, name):
            return "agent" if value.lower() in ("1", "true", "yes") else value.replace("@", "") or "agent", name
    return None


def actor(environ: Mapping[str, str] | None = None) -> str:
    """The actor of commands in this environment. Raises InvalidInput if STANDFAST_ACTOR is not a valid name."""
    env = os.environ if environ is None else environ
    if named := env.get("STANDFAST_ACTOR", "").strip():
        return claimed(checked(named, "STANDFAST_ACTOR"), env)
    agent = agent_present(env)
    if agent is None:
        return person(env)
    for entry in AGENTS:
        if entry.name == agent:
            for name in entry.sessions:
                if value := _set(env, name):
                    return f"{agent}:{value}"
            for name in entry.processes:
                if value := _set(env, name):
                    return f"{agent}:{os.uname().nodename}:{value}"
    return f"{agent}:{person(env)}"


def claimed(name: str, environ: Mapping[str, str] | None = None) -> str:
    """The name that a caller chose. If an agent chose the name of a person, the agent's name is put in front."""
    agent = agent_present(environ) if "@" in name.partition(":")[0] else None
    return name if agent is None else f"{agent}:{name}"[:ACTOR_MAX]


def is_person(actor: str) -> bool:
    """Whether this is the name of a person at a terminal: `user@host:tty`."""
    import re

    return re.fullmatch(_PERSON, actor) is not None


def checked(name: str, what: str, *, code: str = "configuration") -> str:
    """The name. Raises InvalidInput if it is not one line of printable characters."""
    if not name.strip() or not name.isprintable() or len(name) > ACTOR_MAX:
        raise InvalidInput(f"{what} must be one line of 1 to {ACTOR_MAX} printable characters", code=code)
    return name


def person(environ: Mapping[str, str]) -> str:
    """`user@host:tty`, or without a terminal `user@host`."""
    name = f"{_user(environ)}@{os.uname().nodename}"
    terminal = _terminal()
    return f"{name}:{terminal}" if terminal else name


def account() -> str:
    """`user@host` of the account that this process runs as. No variable decides it: a daemon compares it."""
    return f"{_account_name(os.geteuid())}@{os.uname().nodename}"


def _user(environ: Mapping[str, str]) -> str:
    for variable in ("USER", "LOGNAME"):
        if value := _set(environ, variable):
            return value
    return _account_name(os.getuid())


def _account_name(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:  # a container may run as a number that has no name
        return str(uid)


def _terminal() -> str | None:
    for fd in (0, 2, 1):
        try:
            return os.ttyname(fd).removeprefix("/dev/")
        except OSError:
            continue
    return None


def _set(environ: Mapping[str, str], name: str) -> str | None:
    """The value, cut to the characters and length of a name. None if it is unset, 0, false or no."""
    value = "".join(c for c in environ.get(name, "") if c.isprintable() and not c.isspace())[:ACTOR_MAX]
    return None if value.lower() in ("", "0", "false", "no") else value
