"""Webhooks: what others deliver, recorded once, handled once, and never lost.

    received ──▶ done
       │ ▲
       │ └── fail: again after a while
       └───▶ dead ──▶ received (retry) or done (resolve)

An event is known by its source and the id its sender gave it. The first delivery is recorded; any
other is counted, and answered with what became of the first. Handled is no state in between: it is a
lease. One handler gets an event, with a fence; a dead process's event is handed out again at
once. Each hand-out is an attempt; past the last one the event is a dead letter, with the reason,
until a person retries or resolves it.

Whether a delivery is genuine (Stripe's and GitHub's signatures) is for the web server to check,
before it calls `receive`: that needs the raw body and a secret, and standfast keeps neither.
"""

from standfast.ledger.webhooks.models import Handled, WebhookEvent
from standfast.ledger.webhooks.resource import Webhooks

__all__ = ["Handled", "WebhookEvent", "Webhooks"]
