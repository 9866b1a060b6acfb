"""`standfast install git-hooks`: the `pre-push` of one repository, which stops an agent's push that a gate holds.

Git runs it for every push, also inside a script or a Makefile; `git push --no-verify` skips it. standfast never changes
another `pre-push`: the error has the line to add to it.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from typing import NamedTuple

from standfast import hints
from standfast.config import regular_files
from standfast.config.people import for_people
from standfast.errors import Conflict, InvalidInput

NAME = "git-hooks"
MARK = "# standfast install git-hooks"
FILE_MAX_BYTES = 1 << 20
GIT_MAX_S = 10


class Hook(NamedTuple):
    """The `pre-push` of a repository."""

    path: str
    state: str
    """missing, current, stale (of another installation), or other (not ours)."""


def find(program: str, cwd: str) -> Hook:
    """The hook of the repository of `cwd`, where git looks for it. Raises InvalidInput outside a repository."""
    path = os.path.join(_directory(cwd), "pre-push")
    try:
        found = regular_files.read(path, FILE_MAX_BYTES).decode(errors="replace")
    except FileNotFoundError:
        return Hook(path, "missing")
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}", code="not_settings") from None
    if MARK not in found:
        return Hook(path, "other")
    return Hook(path, "current" if found == text(program) and os.access(path, os.X_OK) else "stale")


def text(program: str) -> str:
    """The text of the hook. If standfast was uninstalled, the hook refuses the push: it cannot read the gates."""
    word = shlex.quote(program)
    gone = shlex.quote(f"standfast: {program} is missing, so the push is refused. To remove this hook: rm")
    return (
        f'#!/bin/sh\n{MARK}\n[ -x {word} ] || {{ echo {gone} "$0" >&2; exit 1; }}\nexec {word} hook git-pre-push "$@"\n'
    )


def install(hook: Hook, program: str) -> None:
    """Write the hook. Raises Conflict if there is another one."""
    if hook.state == "other":
        raise Conflict(
            f"{hook.path} exists and is not standfast's, so it is left alone",
            f'add this line to it: {hints.word(program)} hook git-pre-push "$@" || exit 1',
            code="hook_exists",
        )
    os.makedirs(os.path.dirname(hook.path), exist_ok=True)
    temporary = f"{hook.path}.{os.urandom(4).hex()}.tmp"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o755)
    with os.fdopen(fd, "w", encoding="utf-8") as file:
        file.write(text(program))
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, hook.path)


@for_people("removes the installed hooks")
def remove(hook: Hook) -> None:
    if hook.state in ("current", "stale"):
        os.unlink(hook.path)


def _directory(cwd: str) -> str:
    """The directory in which git looks for hooks: `core.hooksPath`, else in the common git directory."""
    try:
        ran = subprocess.run(
            ["git", "rev-parse", "--path-format=absolute", "--git-path", "hooks"],
            cwd=cwd,
            capture_output=True,
            text=True,
            timeout=GIT_MAX_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InvalidInput(f"git does not run: {error}", "install git, then: standfast install git-hooks") from None
    if ran.returncode != 0:
        raise InvalidInput(f"{cwd} is in no git repository", "cd REPOSITORY && standfast install git-hooks")
    return ran.stdout.strip()
