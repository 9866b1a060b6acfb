"""`standfast hook git-pre-push REMOTE URL`: what the `pre-push` of `standfast install git-hooks` runs.

A push by a person passes without opening the store, because gates are for agents; environment variables identify an
agent. A push by an agent is judged by the gates (`pushes`). Exit 1 stops the push, and the agent reads the reason. If
the store cannot be read, `gates.json` decides.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from standfast.interchange.hooks.payloads import Asked

PROBLEM = "standfast: the push is refused: {}"


def main(words: list[str]) -> int:
    from standfast.config.actor import agent_sign

    lines = sys.stdin.read().splitlines()
    if agent_sign() is None or not lines:  # a person, or a push that sends nothing
        return 0
    remote, url = (*words, "", "")[:2]
    refused = _refused(remote, url, lines)
    if refused:
        from standfast.cli.render import printed

        sys.stderr.write(printed(PROBLEM.format(refused)) + "\n")
    return 1 if refused else 0


def _refused(remote: str, url: str, lines: list[str]) -> str:
    from standfast.config import load
    from standfast.errors import StandfastError
    from standfast.interchange.hooks import judge, pushes

    # Git sets GIT_DIR for the hook, so the repository is looked up from the current directory.
    cwd = os.getcwd()
    asked = pushes.asked(remote, url, lines, cwd)
    try:
        settings = load(quiet=True)
    except StandfastError as error:
        return error.message
    try:
        return _judged(asked)
    except (StandfastError, OSError) as error:
        try:
            judge.judge_blindly(settings.data_dir, asked, settings.keyspaces)
        except judge.Refusal as refusal:
            return f"{refusal} ({error})"
    return ""


def _judged(asked: Asked) -> str:
    from standfast.cli.open_store import NoStore, agent_session, opened
    from standfast.interchange.hooks import judge, pushes

    try:
        with opened(create=False) as sf:
            pushes.judge_push(sf._store, sf.gates.check(asked.command), asked, agent_session(sf))
    except NoStore:
        return ""
    except judge.Refusal as refusal:
        return str(refusal)
    return ""
