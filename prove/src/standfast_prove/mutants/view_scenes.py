"""Short scenes for the text that people see. Each raises AssertionError if its bug is there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import standfast
from standfast.db.contract import Row, Tx
from standfast.db.sql import statement
from standfast.views import recovery
from standfast_prove.raising import raising
from standfast_prove.scenes import gone
from standfast_prove.transcripts import codex, meta, rollout, write

HOLD_SESSION = statement("UPDATE session SET holder = :holder, updated_us = :at_us WHERE key = :key RETURNING id")
THREAD = "0199812e-64f0-7f73-91fc-095dda01c36e"


def check_shown_crash(sf: standfast.Standfast) -> None:
    """One session crashed. Before and after it there are more live sessions than a report lists."""
    live = [sf.session(f"live-{n}").__enter__() for n in range(recovery.EACH_MAX + 1)]
    sf.session("gone").__enter__()
    for at_us in (0, 2**60):
        sf._store.write(_killed_at(gone(sf), at_us))
        report = sf.recovery.report()
        assert [item.kind for item in report.items] == ["session_crashed"], f"{len(live)} live sessions hide a crash"
        assert "'gone' crashed" in sf.brief().markdown


def _killed_at(holder: str, at_us: int) -> Callable[[Tx], Row]:
    return lambda tx: tx.one(HOLD_SESSION, holder=holder, at_us=at_us, key="gone")


def check_shown_reason(sf: standfast.Standfast) -> None:
    """A request was denied, so the session that asked no longer waits for an approval."""
    asked = standfast.ApprovalRequired("")
    with raising(standfast.ApprovalRequired), sf.session("ship") as s:
        try:
            s.effect("deploy", {}, approve=True, do=lambda call: None)
        except standfast.ApprovalRequired as error:
            asked = error
            raise
    sf.approvals.deny(str(asked.approval_id), approver="bob", rationale="not on Friday")
    (item,) = sf.recovery.report().of("session_waiting")
    assert item.what == "session 'ship' waits: deploy was denied by bob: \"not on Friday\"", item.what


def check_shown_tokens(sf: standfast.Standfast) -> None:
    """A resumed session counts its tokens from 0. The tokens of both counters are paid for."""
    totals = [
        codex("event_msg", {"type": "token_count", "info": {"total_token_usage": {"input_tokens": tokens}}})
        for tokens in (1000, 5000, 300)
    ]
    path = write(rollout(Path(sf.settings.data_dir), THREAD), meta(THREAD), *totals)
    sf.imports.run("codex", path)
    (found,) = sf.rows("SELECT input_tokens FROM usage")
    assert found["input_tokens"] == 5300, f"1000, 5000, 300 were counted as {found['input_tokens']}"


SCENES: dict[str, Callable[[standfast.Standfast], None]] = {
    name.removeprefix("check_"): scene for name, scene in list(globals().items()) if name.startswith("check_")
}
