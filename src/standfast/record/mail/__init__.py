"""Mail: from one agent to another, kept until it is done, or until a person reads why it is not.

            send          claim, follow          read, or going on          done
    (never) ───▶ sent ──────────────▶ leased ─────────────▶ read ─────────────▶ done
                  ▲  │                  │                     │
                  │  │ its time is over │ defer, release, its lease is over, its holder is gone
                  │  ▼                  ▼                     ▼
                  │ expired           back to sent, with the attempt and its reason written down;
                  │                   after `attempts_max` of them, or by `refuse`: dead
                  └────────────── retry ────────────── dead ── resolve ─▶ dead, settled

A mail is delivered at least once and done once: a reader that takes it gets a lease and a fence, and is
refused if another reader got it since. No mail is dropped: unread mail waits in
its box, one that cannot be handled becomes a dead letter with the reason, one that was refused by a
full box was never accepted.

    addresses.py   who a mail is for
    send.py        into the box, once per key, within the bound
    claims.py      out of the box: leased, read, done, given back, abandoned
    queries.py     pages, threads, receipts, boxes
    follow.py      mail as it comes
    envelope.py    a mail as text that an agent can be given
    resource.py    sf.mail
    models.py      what callers see
"""

from __future__ import annotations

from standfast.record.mail.envelope import rendered
from standfast.record.mail.models import Attempt, Delivery, Mail, Shown, Swept
from standfast.record.mail.resource import Mails

__all__ = ["Attempt", "Delivery", "Mail", "Mails", "Shown", "Swept", "rendered"]
