"""`sf_crash` kills the nightly job at every crash point that it passes. Run this file with pytest."""

import on_standfast
import world

from standfast.testing import Crash


def test_the_report_is_sent_once(sf_crash: Crash) -> None:
    for end in sf_crash(on_standfast.nightly):
        assert len(world.requests(end.directory)) == 1, end
