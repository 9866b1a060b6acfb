"""Transcripts of coding agents, read as they lie on the disk and kept permanently.

    claude_code codex gemini_cli opencode     one reader per agent: records in, a neutral shape out
    files                                     files, in pieces: where each record begins and ends
    model                                     the shape all agents share, gathered into batches
    insert                                    one batch, one transaction

A reader knows one format in all its eras and nothing of the store; `insert` knows the store and no
format. Tolerant: an unknown record is kept raw and counted, never refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast.errors import InvalidInput

if TYPE_CHECKING:
    from standfast.interchange.transcripts.files import Importer

READERS = {
    "claude-code": "standfast.interchange.transcripts.claude_code:ClaudeCode",
    "codex": "standfast.interchange.transcripts.codex:Codex",
    "gemini-cli": "standfast.interchange.transcripts.gemini_cli:GeminiCli",
    "opencode": "standfast.interchange.transcripts.opencode:Opencode",
    "json": "standfast.interchange.json_session:JsonSession",
}
GROUP = "standfast.importers"
"""The entry points under which other packages bring importers of their own."""


def importer(agent: str) -> Importer:
    """The importer of this name: ours, or an installed package's. Raises InvalidInput if there is none."""
    place = READERS.get(agent) or _foreign().get(agent)
    if place is None:
        known = ", ".join([*READERS, *_foreign()])
        raise InvalidInput(f"no importer is called {agent!r}", f"one of: {known}")
    from importlib import import_module

    module, _, name = place.partition(":")
    made: Importer = getattr(import_module(module), name)()
    return made


def _foreign() -> dict[str, str]:
    from importlib.metadata import entry_points

    return {point.name: point.value for point in entry_points(group=GROUP)}
