"""Whose keys these are: the repository one stands in, read from git's files without running git.

A scope is `host/owner/name` of the remote `origin`, so that clones, worktrees and colleagues
on one PostgreSQL share it; without a remote it is the real path of the common git directory;
outside a repository it is empty. Nothing here raises: a broken `.git` is no repository, and
`doctor` says so.
"""

from __future__ import annotations

import os
from typing import NamedTuple

CONFIG_MAX_BYTES = 1 << 20
DEPTH_MAX = 256
"""Directories looked at on the way up; a path deeper than this is not searched further."""

# The same repositories under the names their hosts use for SSH over port 443.
_SAME_HOST = {
    "ssh.github.com": "github.com",
    "altssh.gitlab.com": "gitlab.com",
    "altssh.bitbucket.org": "bitbucket.org",
}


class Repository(NamedTuple):
    """A git repository as its files describe it."""

    root: str
    """The directory that holds `.git`: a worktree's own, not its main repository's."""
    common_dir: str | None
    """Where the configuration is, shared by all worktrees; None if `.git` leads nowhere."""
    origin: str | None
    """host/owner/name, or None without such a remote."""

    @property
    def scope(self) -> str:
        if self.origin:
            return self.origin
        return _text(self.common_dir) if self.common_dir else ""


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
                continue  # git walks past a `.git` directory that is not one, and stops at a broken file
            return _described(directory, git_dir)
        if _is_git_dir(directory) and os.path.isdir(os.path.join(directory, "refs")):
            return _described(directory, directory)  # bare, or inside `.git` itself
    return None


def normalised(url: str) -> str | None:
    """`host/owner/name` of a remote's URL; None for a local path, which means nothing elsewhere."""
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
    """`git@host:owner/name` in its parts; a colon after the first slash belongs to a path."""
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
    """The directory `.git` is, or the one a worktree's or submodule's `.git` file names."""
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
        with open(path, "rb") as file:
            return file.read(CONFIG_MAX_BYTES).decode("utf-8", "replace")
    except OSError:
        return None


def _text(path: str) -> str:
    """A path as text a database can hold, even if its bytes are not UTF-8."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")
