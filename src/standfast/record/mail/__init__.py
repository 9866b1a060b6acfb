"""Mail: messages to an agent, a role or a session. A mail stays in its box until it is done or a dead letter.

            send          claim, follow          read, next mail            done
    (never) ───▶ sent ──────────────▶ leased ─────────────▶ read ─────────────▶ done
                  ▲  │                  │                     │
                  │  │ it expires       │ defer, release, its lease is over, its holder exits
                  │  ▼                  ▼                     ▼
                  │ expired           sent again, with a row for the attempt and its reason;
                  │                   after `attempts_max` attempts, or by `refuse`: dead
                  └────────────── retry ────────────── dead ── resolve ─▶ dead, settled

A mail is delivered at least once and is done once. A reader that claims it gets a lease and a fencing token, and is
refused once another reader has claimed it. No mail is dropped: unread mail waits in its box, mail that no reader can
handle becomes a dead letter with the reason, and a full box refuses a mail before it is accepted.

    addresses.py   the box of an address
    send.py        sending: once per key, within the bound of the box
    changes.py     the journal entry of each change
    claims.py      delivery: leased, read, done, returned, dead
    queries.py     pages, conversations, receipts
    readers.py     whether a live reader has the box
    follow.py      mail as it comes
    ask.py         a question and its answer
    envelope.py    a mail as text for an agent or a terminal
    resource.py    sf.mail
    models.py      what callers see
"""

from __future__ import annotations

from standfast.record.mail.envelope import rendered
from standfast.record.mail.models import Attempt, Delivery, Mail, Shown, Swept
from standfast.record.mail.resource import Mails

__all__ = ["Attempt", "Delivery", "Mail", "Mails", "Shown", "Swept", "rendered"]
