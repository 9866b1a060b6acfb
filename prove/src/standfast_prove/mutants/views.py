"""Bugs of the text that people see: rows that are left out before they are ranked, outdated sentences, wrong totals.

check …    a short scene of `view_scenes`
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from standfast.interchange.transcripts import codex
from standfast.views import recovery
from standfast_prove.mutants.patching import Mutant, swapped


def first_page_only(_: Any) -> Any:
    """A limited number of rows is read, and only those are ranked."""

    def patched(tx: Any, statement: Any, **asked: Any) -> Iterator[Any]:
        yield from tx.all(statement, at_us=-1, id="", limit=recovery.EACH_MAX, **asked)

    return patched


def stored_reason(_: Any) -> Any:
    """The page shows the text that was stored when the session began to wait."""

    def patched(tx: Any, item: Any) -> Any:
        if item.kind != "session_waiting":
            return item
        reason = tx.all(recovery.SQL.waits_for, id=item.id, limit=1)[0]["reason"]
        return item.replace(what=f"{item.what}: {reason}")

    return patched


MUTANTS: dict[str, Mutant] = {
    "sessions are cut before they are ranked": Mutant(
        "live sessions hide a crashed one", "check shown_crash", swapped(recovery, "_pages", first_page_only)
    ),
    "an old reason is shown": Mutant(
        "a denied request is shown as waiting", "check shown_reason", swapped(recovery, "_explained", stored_reason)
    ),
    "only the last counter is used": Mutant(
        "a token counter that was reset counts too little",
        "check shown_tokens",
        swapped(codex, "_fell", lambda _: lambda *_: False),
    ),
}
