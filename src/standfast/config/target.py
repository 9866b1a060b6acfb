"""Which database a text means, and how to show that text without its secrets.

`parse_db_target` has three cases. An empty text is the default SQLite file. `postgres://` or `postgresql://` is
PostgreSQL. Everything else is the path of a SQLite file. A text that can only be a mistake is refused here:
`mysql://…`, a libpq keyword string, or a password that is not percent-encoded. A driver would quote it in its message,
with the password. `mask` hides credentials in any text and runs before every error is printed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Literal, NamedTuple

from standfast.errors import InvalidInput

Engine = Literal["sqlite", "postgres"]

MEMORY = ":memory:"
COPIES_VARIABLE = "STANDFAST_COPIES_DIR"
ACCEPTED = "accepted: a file path, sqlite:PATH, postgresql://USER@HOST/DATABASE or :memory:"


class Target(NamedTuple):
    """A database: the engine and where it is. Prints itself without its password."""

    engine: Engine
    location: str
    """The absolute path of a SQLite file, `:memory:`, or a PostgreSQL URL with its secrets."""

    @property
    def shown(self) -> str:
        return mask(self.location)

    @property
    def is_memory(self) -> bool:
        """A private temporary store, gone when it is closed."""
        return self.location == MEMORY

    def hide(self, text: str) -> str:
        """`text` without the password of this target, in any form that a driver may quote."""
        for secret in _secrets(self):
            text = text.replace(secret, "***")
        return mask(text)

    def __repr__(self) -> str:
        return f"Target({self.engine!r}, {self.shown!r})"


def flag(environ: Mapping[str, str], name: str, *, default: bool) -> bool:
    """A variable that is 1 or 0. Raises InvalidInput for any other value."""
    value = environ.get(name, "").strip().lower()
    if value not in ("", "0", "1", "true", "false", "yes", "no"):
        raise InvalidInput(f"{name} is neither 1 nor 0", code="configuration")
    return value in ("1", "true", "yes") if value else default


def state_dir(environ: Mapping[str, str]) -> str:
    """The directory of the memory of stores and of copies, outside the data directory."""
    state = environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(state):  # the specification: a relative path is ignored
        state = os.path.join(home(environ), ".local", "state")
    return os.path.join(state, "standfast")


def copies_dir(environ: Mapping[str, str]) -> str:
    """The directory of copies if the configuration names no place."""
    named = environ.get(COPIES_VARIABLE, "").strip()
    return expand_home(named, environ) if named else os.path.join(state_dir(environ), "copies")


def parse_db_target(
    text: str | None,
    *,
    default_path: str,
    relative_to: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> Target:
    """The database that `text` means. Every path is accepted. Raises InvalidInput for URLs of other databases."""
    value = (text or "").strip()
    scheme, _, rest = value.partition("://")
    if scheme.lower() in ("postgres", "postgresql") and value != scheme:
        return Target("postgres", f"{scheme.lower()}://{_checked_url(rest)}")
    path = _without_sqlite(value)
    if not path:
        return Target("sqlite", default_path)
    if path == MEMORY:
        return Target("sqlite", MEMORY)
    return Target("sqlite", _absolute(_plausible_path(path), relative_to, environ))


def mask(text: str) -> str:
    """Any text without the passwords in it: URLs, `password=…` in DSNs, queries and dictionaries.

    A password may contain any character, so this may hide more than the password.
    """
    if "://" not in text and "=" not in text and ":" not in text:
        return text
    import re

    text = re.sub(r"([A-Za-z][A-Za-z0-9+.-]*://[^\s:/?#@]*):\S*@", r"\1:***@", text)
    named = r"\b\w*(?:password|passwd|passphrase|secret|token)"
    value = r"""(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^\s&]+)"""
    text = re.sub(rf"(?i)({named}\s*=\s*){value}", r"\1***", text)
    return re.sub(rf"(?i)((['\"]){named}\2\s*:\s*){value}", r"\1***", text)


def expand_home(path: str, environ: Mapping[str, str] | None = None) -> str:
    """Replace `~` by HOME, which is read at each call so that a test or a wrapper can change it."""
    if path == "~" or path.startswith("~/"):
        return home(environ) + path[1:]
    return os.path.expanduser(path)


def home(environ: Mapping[str, str] | None = None) -> str:
    env = os.environ if environ is None else environ
    return env.get("HOME") or os.path.expanduser("~")


def _without_sqlite(value: str) -> str:
    if value[:7].lower() != "sqlite:":
        return value
    rest = value[7:].removeprefix("//").strip()
    # sqlite:////abs, as other tools write it, is the same absolute path.
    return "/" + rest.lstrip("/") if rest.startswith("//") else rest


def _plausible_path(path: str) -> str:
    scheme = path.partition("://")[0] if "://" in path else ""
    if scheme and all(c.isascii() and (c.isalnum() or c in "+.-") for c in scheme):
        fix = "; write postgresql:// without a driver" if scheme.lower().startswith("postgres") else ""
        raise InvalidInput(f"unsupported database URL: {scheme.lower()}://{fix}", ACCEPTED)
    words = [word.partition("=") for word in path.split()]
    if all(eq for _, eq, _ in words) and any(key in ("host", "dbname", "password", "user") for key, _, _ in words):
        raise InvalidInput("this is a libpq keyword string, not a path; write it as a URL", ACCEPTED)
    if any(ord(c) < 32 for c in path):
        raise InvalidInput("a path of a database cannot hold control characters", ACCEPTED)
    try:
        path.encode()
    except UnicodeEncodeError:
        raise InvalidInput("a path of a database holds a lone surrogate, which is not Unicode text", ACCEPTED) from None
    return path


def _checked_url(rest: str) -> str:
    """The part after `://`. Raises InvalidInput if libpq would take a part of the password for a host or port."""
    authority = rest
    for end in "/?":
        authority = authority.partition(end)[0]
    hosts = authority.rpartition("@")[2]
    clear = (
        not any(c.isspace() or ord(c) < 32 for c in rest)
        and authority.count("@") <= 1
        and ("@" in authority or "@" not in rest.partition("?")[0])
        and all(_port(host).isdigit() or not _port(host) for host in hosts.split(","))
    )
    if not clear:
        raise InvalidInput(
            "this PostgreSQL URL cannot be read without guessing",
            "percent-encode the user and password (@ is %40, / is %2F, : is %3A, a space is %20)",
        )
    return rest


def _port(host: str) -> str:
    if host.startswith("["):
        return host.rpartition("]")[2].removeprefix(":")
    return host.partition(":")[2]


def _absolute(path: str, relative_to: str | None, environ: Mapping[str, str] | None) -> str:
    expanded = expand_home(path, environ)
    try:
        return os.path.abspath(os.path.join(relative_to, expanded) if relative_to else expanded)
    except FileNotFoundError:
        raise InvalidInput("the current directory is gone, and the path starts from it", "name it from /") from None


def _secrets(target: Target) -> list[str]:
    """The password as written and as decoded. Passwords under 4 characters are left to `mask`, because hiding each `1`
    would make messages unreadable."""
    if target.engine != "postgres":
        return []
    from urllib.parse import parse_qsl, unquote, urlsplit

    parts = urlsplit(target.location)
    raw = parts.netloc.rpartition("@")[0].partition(":")[2]
    found = {raw, unquote(raw)} | {value for key, value in parse_qsl(parts.query) if "password" in key.lower()}
    return sorted((secret for secret in found if len(secret) >= 4), key=len, reverse=True)
