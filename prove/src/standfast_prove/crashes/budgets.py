"""Killed at every crash point while an agent reserves, calls and settles; and again in the recovery.

The oracle is the provider's bill, a file outside the store: one line per call that was made. The recovery settles each
hold in doubt by that bill. After every kill the spent amounts are exactly the calls on the bill, no hold is left, and
every acknowledged settlement is there.
"""

from __future__ import annotations

import standfast
from standfast.crash import Schedule
from standfast_prove.crashes.world import World

CALLS, MOST, USED = 3, 100, 20


class Calls(World):
    """An agent whose budget is inside the budget of its team, and a provider that bills by the id of the hold."""

    def live(self) -> None:
        """The program. Every process runs it from the top."""
        with self.open() as sf:
            self.settle_doubts(sf)
            self.acked("set", lambda: sf.budgets.set("team", tokens=1_000, per="month"))
            sf.budgets.set("agent:coder", tokens=900, within="team")
            for n in range(CALLS):
                self.call(sf, f"call:{n}")
            unsent = sf.budgets.reserve("agent:coder", tokens=MOST)
            sf.budgets.release(unsent)

    def call(self, sf: standfast.Standfast, key: str) -> None:
        hold = sf.budgets.reserve("agent:coder", tokens=MOST, key=key)
        if hold.state == "held":
            self.tell(f"billed {hold.id}")
            self.acked(f"settle {key}", lambda: sf.budgets.settle(hold, tokens=USED))

    def settle_doubts(self, sf: standfast.Standfast) -> None:
        """Settles holds as a person does, by the provider's bill."""
        billed = self.noted()
        for hold in sf.budgets.holds():
            assert hold.in_doubt, "its process is dead"
            if billed[f"billed {hold.id}"]:
                sf.budgets.settle(hold.id, tokens=USED, note="on the bill")
            else:
                sf.budgets.release(hold.id, note="not on the bill")

    def check(self, schedule: Schedule) -> None:
        noted = self.noted()
        with self.open() as sf:
            self.settle_doubts(sf)
            used = USED * sum(count for line, count in noted.items() if line.startswith("billed "))
            for name in ("team", "agent:coder"):
                budget = sf.budgets.get(name)
                assert (budget.spent.tokens, budget.held.tokens) == (used, 0), schedule
            for n in range(CALLS):
                assert noted[f"acked settle call:{n}"] <= 1
                assert sf.budgets.hold(f"call:{n}").state == "settled"
            for hold in sf.budgets.holds(ended=True):
                types = [event.type for event in sf.journal.about(hold.id)]
                assert types == ["hold.reserved", f"hold.{hold.state}"]
        self.sound()
