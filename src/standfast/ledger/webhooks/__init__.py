"""Webhooks: events that senders deliver. Each is recorded once and handled once, and none is lost.

    received ──▶ done
       │ ▲
       │ └── fail: again after a while
       └───▶ dead ──▶ received (retry) or done (resolve)

The source and the id that its sender gave it identify an event. The first delivery is recorded. Later ones are counted,
and get the result of the first as their answer. A handler claims an event with a lease and a fencing token. If its
process dies, the event is handed out again at once. Each claim is an attempt. After the last one the event is a dead
letter, with the reason, until a person retries or resolves it.

The web server checks that a delivery is genuine (the signatures of Stripe and GitHub) before it calls `receive`. That
needs the raw body and a secret, and standfast stores neither.
"""

from standfast.ledger.webhooks.models import Handled, WebhookEvent
from standfast.ledger.webhooks.resource import Webhooks

__all__ = ["Handled", "WebhookEvent", "Webhooks"]
