"""A short sample of the partitions: the connection to the server is cut, hangs, or loses answers."""

from __future__ import annotations

from pathlib import Path

from standfast_prove.campaigns import partitions


def test_agents_behind_a_broken_line_do_everything_once(tmp_path: Path, pg_database: str) -> None:
    """000-1: after CommitUnknown the agents call again with the same key."""
    outcome = partitions.run(tmp_path, url=pg_database, partitions=12, seed=1)
    assert outcome.bad == []
    assert outcome.seen["partitions"] == 12
    assert outcome.seen["acknowledged"] > 0
