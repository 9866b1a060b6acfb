"""A payment is delivered three times and credited once; one event cannot be handled, and waits for a person.

One transaction records the event and its credits. So the store never has one without the other.

python examples/webhooks_pay_for_credits.py
"""

from __future__ import annotations

import tempfile

import standfast
from standfast.ledger.webhooks import WebhookEvent

PAID = {"type": "payment.succeeded", "customer": "ada", "amount": 500, "pending_webhooks": 2}


def on_payment(sf: standfast.Standfast) -> None:
    """A worker: take the ready events one by one until none is left."""
    while event := sf.webhooks.claim(source="stripe"):
        with sf.transaction() as tx:
            entry = tx.credits.grant(event.payload["customer"], event.payload["amount"], key=f"topup:{event.event_id}")
            tx.webhooks.done(event, {"granted": entry.amount})


def on_push(event: WebhookEvent) -> str:
    raise LookupError(f"no repository {event.payload['repository']}")


def main() -> None:
    with tempfile.TemporaryDirectory() as directory, standfast.open(data_dir=directory) as sf:
        # The endpoint: verify the signature, record, answer 200. Fields that the sender changes do not count.
        for pending in (2, 1, 0):
            event = sf.webhooks.receive(
                "stripe", "evt_1", PAID | {"pending_webhooks": pending}, ignore=("pending_webhooks",)
            )
            on_payment(sf)
            print(f"delivery {event.deliveries}: {event.state}, result {event.result}")
        print("balance:", sf.credits.balance("ada").balance)

        # The top-up and its refund are each requested twice and booked once.
        for _ in range(2):
            sf.credits.spend("ada", 20, key="run:fix-42")
            sf.credits.refund("run:fix-42")
        print("balance:", sf.credits.balance("ada").balance)

        sf.webhooks.receive("github", "push-7", {"repository": "a/b"}, attempts_max=1)
        print(sf.webhooks.handle("github", on_push))
        for letter in sf.webhooks.dead():
            print("dead letter:", letter.reason)
            sf.webhooks.resolve(letter.subject, note="the repository was archived")
        print("left:", sf.webhooks.dead())


if __name__ == "__main__":
    main()
