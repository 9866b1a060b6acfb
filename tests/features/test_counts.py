"""The counts that `standfast` without arguments shows, on both engines."""

from __future__ import annotations

import standfast
from standfast.admin.counts import counts
from standfast.cli.status import status


def test_what_a_store_holds_is_counted(sf: standfast.Standfast) -> None:
    before = sf.read(counts)
    sf.webhooks.receive("stripe", "evt_1", {})
    sf.webhooks.fail(sf.webhooks.claim("stripe/evt_1"), "no", dead=True)
    sf.credits.grant("ada", 1, key="k")
    after = sf.read(counts)
    grown = {table: n - before[table] for table, n in after.items() if n != before[table]}
    assert grown == {"webhook_event": 1, "dead_letter": 1, "credit_entry": 1, "event": 5}
    assert [need["kind"] for need in status(sf)["needs"]] == ["dead_letter"]
