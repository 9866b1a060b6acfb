"""Transcripts of coding agents: read them from the disk and store them.

    claude_code codex gemini_cli opencode     one reader per agent, for all versions of its format
    files                                     split files into pieces and records
    model                                     the common form of all agents, in batches
    insert                                    write one batch in one transaction

A reader knows one format and not the store. `insert` knows the store and no format. Unknown records are counted and
stored raw; none is refused.
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
"""The entry points of importers in other packages."""


def importer(agent: str) -> Importer:
    """The importer of this name, from standfast or an installed package. Raises InvalidInput if there is none."""
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
