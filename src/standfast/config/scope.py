"""The repository around a directory, read from git's files without starting `git`, and its label.

A label is the real path of the common git directory and the remote `origin` as host/owner/name. Two labels belong to
one repository if either part matches. Worktrees share the directory; clones and colleagues share the origin. A remote
that is added later does not make another repository. A broken `.git` raises nothing. It counts as no repository, and
`doctor` reports it.

A scope is a name that the user chooses, to separate keys on purpose. It is never derived from a directory.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

from standfast.config import regular_files
from standfast.errors import InvalidInput
from standfast.models import Model

CONFIG_MAX_BYTES = 1 << 20
DEPTH_MAX = 256
"""The most directories that are searched upwards."""

# The names of hosts for SSH over port 443, and the usual names of the same hosts.
_SAME_HOST = {
    "ssh.github.com": "github.com",
    "altssh.gitlab.com": "gitlab.com",
    "altssh.bitbucket.org": "bitbucket.org",
}


SCOPE_MAX = 200
SCOPE_VARIABLE = "STANDFAST_SCOPE"
GIT_DIR_VARIABLE = "STANDFAST_GIT_DIR"
ORIGIN_VARIABLE = "STANDFAST_ORIGIN"


class Label(Model):
    """The repository of a program or a row; both None outside any."""

    git_dir: str | None = None
    """The real path of the common git directory."""
    origin: str | None = None
    """host/owner/name of the remote `origin`."""

    @property
    def outside(self) -> bool:
        return self.git_dir is None and self.origin is None

    @property
    def name(self) -> str:
        """The repository as people know it; empty outside any."""
        return self.origin or self.git_dir or ""

    @property
    def shown(self) -> str:
        """The scope and the repository of the label, for a message."""
        return " in ".join(part for part in (self.origin, self.git_dir) if part) or "no repository"

    def meets(self, other: Label) -> bool:
        """Whether both are one repository: either part matches."""
        return (self.git_dir is not None and self.git_dir == other.git_dir) or (
            self.origin is not None and self.origin == other.origin
        )


OUTSIDE = Label()


class Keyspace(NamedTuple):
    """The scope and the repository within which a task, a decision, a state value or a gate is unique."""

    scope: str = ""
    repository: str = ""
    """The id of the repository (core/repositories.py); empty outside any."""

    def within(self, wider: Keyspace) -> bool:
        """Whether a rule of the keyspace `wider` applies in this one. A rule without a repository applies to its whole
        scope; one without a scope applies everywhere."""
        return self == wider or (not wider.repository and wider.scope in ("", self.scope))


def carried(scope: str, label: Label) -> dict[str, str]:
    """Variables that give a child process the scope and the repository of its parent."""
    return {
        SCOPE_VARIABLE: scope,
        GIT_DIR_VARIABLE: label.git_dir or "",
        ORIGIN_VARIABLE: label.origin or "",
    }


def label_of(env: Mapping[str, str], found: Repository | None) -> Label:
    """The label that a parent process set in the environment, even if it is empty. Otherwise the label of the
    repository."""
    if GIT_DIR_VARIABLE in env or ORIGIN_VARIABLE in env:
        given = (_text(env.get(name, "")) or None for name in (GIT_DIR_VARIABLE, ORIGIN_VARIABLE))
        return Label(*given)
    return found.label if found else OUTSIDE


def checked_scope(text: str, where: str, *, code: str = "configuration") -> str:
    """A scope as it is stored. Raises InvalidInput naming the source."""
    text = text.strip()
    if len(text) > SCOPE_MAX or not text.isprintable():
        raise InvalidInput(
            f"{where} is one line of at most {SCOPE_MAX} characters",
            "choose a short name: STANDFAST_SCOPE=shop",
            code=code,
        )
    return text


class Repository(NamedTuple):
    """A git repository as its files describe it."""

    root: str
    """The directory with `.git`. For a worktree it is the directory of the worktree."""
    common_dir: str | None
    """The directory with git's configuration, shared by all worktrees. None if `.git` is broken."""
    origin: str | None
    """host/owner/name, or None without such a remote."""

    @property
    def label(self) -> Label:
        return Label(_text(self.common_dir) if self.common_dir else None, self.origin)


def upwards(start: str) -> list[str]:
    """`start` and the directories above it."""
    found = [start]
    while len(found) < DEPTH_MAX and (parent := os.path.dirname(found[-1])) != found[-1]:
        found.append(parent)
    return found


def repository(start: str) -> Repository | None:
    """The repository around `start`, as git itself would find it."""
    for directory in upwards(start):
        dot_git = os.path.join(directory, ".git")
        if os.path.lexists(dot_git):
            git_dir = _git_dir(dot_git)
            if git_dir is None and os.path.isdir(dot_git):
                continue  # git ignores an invalid `.git` directory, and stops at an invalid `.git` file
            return _described(directory, git_dir)
        if _is_git_dir(directory) and os.path.isdir(os.path.join(directory, "refs")):
            return _described(directory, directory)  # the repository is bare, or the directory is inside `.git`
    return None


def normalised(url: str) -> str | None:
    """`host/owner/name` of a remote's URL. None for a local path, which is valid only on this machine."""
    url = url.strip()
    scheme, separator, rest = url.partition("://")
    if separator:
        if scheme.lower() == "file":
            return None
        authority, _, path = rest.partition("/")
    else:
        authority, colon, path = _scp_like(url)
        if not colon:
            return None
    host = _host(authority)
    path = _path(path)
    return f"{host}/{path}" if host and path and (host + path).isprintable() else None


def _scp_like(url: str) -> tuple[str, str, str]:
    """Split `git@host:owner/name`. A colon after the first slash is part of a path."""
    if url.startswith(("/", ".", "~")):
        return "", "", ""
    user, at, rest = url.partition("@")
    if not at or "/" in user or ":" in user:
        rest = url
    if rest.startswith("["):
        host, bracket, path = rest.partition("]")
        return host + bracket, ":" if path.startswith(":") else "", path.removeprefix(":")
    host, colon, path = rest.partition(":")
    return ("", "", "") if "/" in host else (host, colon, path)


def _host(authority: str) -> str:
    host = authority.rpartition("@")[2]
    if host.startswith("["):
        host = host.partition("]")[0] + "]"
    else:
        host = host.partition(":")[0]
    host = host.lower().rstrip(".")
    return _SAME_HOST.get(host, host)


def _path(path: str) -> str:
    path = path.partition("?")[0].partition("#")[0]
    parts = [part for part in path.split("/") if part not in ("", ".")]
    return "/".join(parts).removesuffix(".git").rstrip("/")


def _described(root: str, git_dir: str | None) -> Repository:
    if git_dir is None:
        return Repository(root, None, None)
    common = _common_dir(git_dir)
    if common is None:
        return Repository(root, None, None)
    url = origin_url(_read(os.path.join(common, "config")) or "")
    return Repository(root, os.path.realpath(common), normalised(url) if url else None)


def _git_dir(dot_git: str) -> str | None:
    """The directory `.git`, or the directory that the `.git` file of a worktree or submodule names."""
    if os.path.isdir(dot_git):
        return dot_git if _is_git_dir(dot_git) else None
    text = (_read(dot_git) or "").strip()
    if not text.startswith("gitdir:"):
        return None
    named = os.path.join(os.path.dirname(dot_git), text.removeprefix("gitdir:").strip())
    return named if _is_git_dir(named) else None


def _is_git_dir(path: str) -> bool:
    if not os.path.lexists(os.path.join(path, "HEAD")):
        return False
    return any(os.path.exists(os.path.join(path, name)) for name in ("objects", "commondir"))


def _common_dir(git_dir: str) -> str | None:
    text = (_read(os.path.join(git_dir, "commondir")) or "").strip()
    if not text:
        return git_dir
    common = os.path.join(git_dir, text)
    return common if os.path.isdir(common) else None


def origin_url(text: str) -> str | None:
    """The first `url` of `[remote "origin"]` in git's own dialect of INI."""
    inside = False
    for line in text.replace("\\\r\n", "").replace("\\\n", "").splitlines():
        line = line.strip()
        if line.startswith("["):
            header, _, line = line[1:].partition("]")
            header = header.strip()
            inside = header[:6].lower() == "remote" and header[6:].strip() in ('"origin"', ".origin")
        key, equals, value = line.partition("=")
        if inside and equals and key.strip().lower() == "url" and (found := _value(value)):
            return found
    return None


def _value(text: str) -> str:
    """A value without its quotes, escapes and comment."""
    out: list[str] = []
    quoted = False
    characters = iter(text.strip())
    for c in characters:
        if c == "\\":
            out.append(next(characters, ""))
        elif c == '"':
            quoted = not quoted
        elif c in "#;" and not quoted:
            break
        else:
            out.append(c)
    return "".join(out).strip()


def _read(path: str) -> str | None:
    try:
        return regular_files.read(path, CONFIG_MAX_BYTES).decode("utf-8", "replace")
    except OSError:
        return None


def _text(path: str) -> str:
    """A path as text a database can hold, even if its bytes are not UTF-8."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")
