"""The text about a lock whose holder has died."""

from __future__ import annotations

from pathlib import Path

import standfast
from standfast.cli.lock import _for_people
from tests.others import Other

DIES = """
import os
sf.leases.acquire("deploy", for_="1h")
os._exit(0)
"""


def test_a_lock_of_a_dead_process_has_no_time_left(engine_url: str, tmp_path: Path) -> None:
    """The next caller takes the lock immediately, so the text shows no remaining time."""
    data = tmp_path / "data"
    with Other(engine_url, data, DIES) as other:
        other.end()
    with standfast.open(engine_url, data_dir=data) as sf:
        (found,) = sf.leases.list()
        assert found.standing != "live"
        assert _for_people(found)["left"] is None
        held = sf.leases.acquire("build", for_="1h")
        assert _for_people(held)["left"] is not None
