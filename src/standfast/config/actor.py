"""The actor of a process that exits right after its call.

`STANDFAST_ACTOR` decides; else the session of the agent whose variables are set; else the
person and their terminal. An agent that tells no session is `agent:user@host:tty`, so that it
never holds a lease in the name of the person beside it. Only a process without an agent's variables
is named `user@host`, with or without a terminal: where they are set, such a name gets the agent's name in front.

Of two agents, one inside the other, the environment does not say which is the inner one. The
order of the table is a guess at what people do; `STANDFAST_ACTOR` settles it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

from standfast.errors import InvalidInput

ACTOR_MAX = 200


class Agent(NamedTuple):
    """The variables by which an agent is known in the shells and hooks it starts."""

    name: str
    sessions: tuple[str, ...] = ()
    """Hold the session's own id; the first one set wins."""
    processes: tuple[str, ...] = ()
    """Hold an id that means something on this host only."""
    signs: tuple[str, ...] = ()
    """Say no more than that the agent is there."""


# Gemini's hooks also set CLAUDE_PROJECT_DIR, and CODEX_HOME is set by people: neither is a sign.
# Codex's hooks report the root session, so its id comes before the thread's: both renew one lease.
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
# Tools outside the table may say their name in these.
NAMED = ("AI_AGENT", "AGENT")
# The name of an agent is cleared of @, so that it cannot look like a person's.
_PERSON = r"[^\s:@]+@[^\s:@]+:(?:pts/\d+|tty\w*|console)"


def agent_present(environ: Mapping[str, str] | None = None) -> str | None:
    """The name of the agent whose variables are set, or None where a person is typing."""
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
    """The actor of commands in this environment. Raises InvalidInput if STANDFAST_ACTOR is no name."""
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
    """The name that a caller chose; with the agent's name in front where an agent chose a person's."""
    agent = agent_present(environ) if "@" in name.partition(":")[0] else None
    return name if agent is None else f"{agent}:{name}"[:ACTOR_MAX]


def is_person(actor: str) -> bool:
    """Whether this is the name of a person at a terminal: `user@host:tty`."""
    import re

    return re.fullmatch(_PERSON, actor) is not None


def checked(name: str, what: str, *, code: str = "configuration") -> str:
    """A name of one line, or InvalidInput that says what was wrong with it."""
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
    """The value, cut to what a name may hold; None if it is unset or says no."""
    value = "".join(c for c in environ.get(name, "") if c.isprintable() and not c.isspace())[:ACTOR_MAX]
    return None if value.lower() in ("", "0", "false", "no") else value
