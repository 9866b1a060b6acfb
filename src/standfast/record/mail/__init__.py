"""Mail: from one agent to another, kept until it is done, or until somebody knows why it is not.

            send          claim, follow          read, or going on          done
    (never) ───▶ sent ──────────────▶ leased ─────────────▶ read ─────────────▶ done
                  ▲  │                  │                     │
                  │  │ its time is over │ defer, release, its lease is over, its holder is gone
                  │  ▼                  ▼                     ▼
                  │ expired           back to sent, with the attempt and its reason written down;
                  │                   after `attempts_max` of them, or by `refuse`: dead
                  └────────────── retry ────────────── dead ── resolve ─▶ dead, settled

A mail is delivered at least once and done once: whoever takes it gets a lease and a fence, and is
refused if somebody else got it since. Nothing is ever dropped: a mail that nobody reads waits in
its box, one that cannot be handled becomes a dead letter with the reason, one that was refused by a
full box was never accepted.

    addresses.py   who a mail is for
    sending.py     into the box, once per key, within the bound
    delivery.py    out of the box: leased, read, done, given back, given up
    looking.py     pages, threads, receipts, boxes
    following.py   mail as it comes
    rendering.py   a mail as text that an agent can be given
    room.py        sf.mail
    nouns.py       what callers see
"""

from __future__ import annotations

from standfast.record.mail.nouns import Attempt, Box, Delivery, Mail, Shown, Swept
from standfast.record.mail.rendering import rendered
from standfast.record.mail.room import Mails

__all__ = ["Attempt", "Box", "Delivery", "Mail", "Mails", "Shown", "Swept", "rendered"]
