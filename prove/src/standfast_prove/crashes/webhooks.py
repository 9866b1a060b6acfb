"""Killed at every crash point while events are delivered, handled, failed, abandoned and retried, and credits granted
for them; and again in the recovery.

The oracle is a file outside the store: every try and every acknowledgement. After every kill no acknowledged write is
missing and every change was tried. Each event is done once, each dead event has its dead letter, each payment is
credited once, and rows and journal agree.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress

import standfast
from standfast.crash import Schedule
from standfast.errors import IllegalTransition
from standfast.ledger.webhooks import WebhookEvent
from standfast_prove.crashes.world import World


class Payments(World):
    """A sender that delivers until it is acknowledged, a handler, and a person who resolves dead events."""

    def live(self) -> None:
        """The program. Every process runs it from the top."""
        with self.open() as sf:
            for n in range(2):
                self.acked(f"receive pay/{n}", lambda n=n: sf.webhooks.receive("pay", str(n), {"amount": 10 + n}))  # type: ignore[misc]
            sf.webhooks.handle("pay", lambda event: self.credit(sf, event))
            self.acked("receive now/1", lambda: sf.webhooks.receive("now", "1", {}, do=lambda event: "at once"))
            sf.webhooks.receive("bad", "1", {}, attempts_max=2)
            self.until_dead(sf)
            if self.count(sf, "bad/1", "webhook.retried") == 0 and sf.webhooks.get("bad/1").state == "dead":
                self.acked("retry", lambda: sf.webhooks.retry("bad/1", note="once more"))
            self.until_dead(sf)
            if sf.webhooks.get("bad/1").state == "dead":
                self.acked("resolve", lambda: sf.webhooks.resolve("bad/1", note="by hand"))
            self.acked("spend", lambda: sf.credits.spend("ada", 5, key="run:1"))
            self.acked("refund", lambda: sf.credits.refund("run:1"))

    def credit(self, sf: standfast.Standfast, event: WebhookEvent) -> int:
        self.tell(f"handled {event.name}")
        return sf.credits.grant("ada", event.payload["amount"], key=f"topup:{event.event_id}").amount

    def until_dead(self, sf: standfast.Standfast) -> None:
        """Every attempt fails. The attempt of a process that died counts too."""
        while sf.webhooks.get("bad/1").state == "received":
            with suppress(IllegalTransition):  # a dead process made the last attempt
                sf.webhooks.fail(sf.webhooks.claim("bad/1"), "always")

    def count(self, sf: standfast.Standfast, event: str, type: str) -> int:
        return sum(acked.type == type for acked in sf.webhooks.show(event).history)

    def check(self, schedule: Schedule) -> None:
        noted = self.noted()
        with self.open() as sf:
            events = {event.name: event for event in sf.webhooks.list()}
            assert {name: event.state for name, event in events.items()} == dict.fromkeys(
                ("pay/0", "pay/1", "now/1", "bad/1"), "done"
            )
            for name in ("pay/0", "pay/1", "now/1"):
                assert noted[f"acked receive {name}"] <= events[name].deliveries <= noted[f"tried receive {name}"]
            for event in events.values():
                self.check_story(sf, event)
            assert (events["pay/0"].result, events["pay/1"].result, events["now/1"].result) == (10, 11, "at once")
            assert all(noted[f"handled {name}"] >= 1 for name in ("pay/0", "pay/1"))
            self.check_letters(sf)
            entries = {entry.key: entry.amount for entry in sf.credits.list()}
            assert entries == {"topup:0": 10, "topup:1": 11, "run:1": -5, "refund:run:1": 5}, schedule
            assert sf.credits.balance("ada").balance == 21
        self.sound()

    def check_story(self, sf: standfast.Standfast, event: WebhookEvent) -> None:
        types = Counter(acked.type.removeprefix("webhook.") for acked in sf.webhooks.show(event).history)
        assert types["received"] == 1
        assert event.deliveries == 1 + types["redelivered"]
        assert types["done"] + types["resolved"] == 1
        gone = sum(acked.type == "webhook.died" for acked in sf.webhooks.show(event).history)
        assert types["claimed"] + types["taken_over"] <= event.fence <= types["claimed"] + types["taken_over"] + gone
        assert (event.holder, types["died"]) == (None, types["retried"] + types["resolved"])

    def check_letters(self, sf: standfast.Standfast) -> None:
        assert sf.webhooks.dead() == []
        letters = sf.webhooks.dead(settled=True)
        assert [letter.settlement for letter in letters] == ["resolved", "retried"]
        for letter in letters:
            acked = [event.type for event in sf.journal.about(letter.id)]
            assert acked == ["dead_letter.buried", f"dead_letter.{letter.settlement}"]
