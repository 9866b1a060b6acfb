"""Dead letters: mail and webhook events that were given up, with the reason, until a person settles them.

    buried ──▶ retried     it is handed out again, with its attempts counted from 0
       └─────▶ resolved    a person handled it in another way, and says how

Mail and webhooks share this table. They call `bury` and `settle` in the transaction that changes the mail or the event
itself. One mail or event has at most one open dead letter. Rows are never deleted: a mail that was retried and is given
up again has two dead letters, and the first says who retried it.

These are functions of a transaction. After the commit, the caller of `bury` starts the configured `notify` command with
`tell`.
"""

from __future__ import annotations

from standfast import crash, serial
from standfast.clock import iso
from standfast.core import journal, lookup, notices
from standfast.core.checks import one_of, page_size
from standfast.core.receipts import Receipt
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.db.store import Store
from standfast.errors import IllegalTransition, NotFound
from standfast.ids import new_id, short
from standfast.models import Model

SQL = load(__name__)

SETTLEMENTS = ("retried", "resolved")
REASON_MAX = 2000
NOTE_MAX = 4000

_LAST = "ddl_z"  # greater than every id in every collation, because ids begin with 0 to 7


class DeadLetter(Model):
    """One mail or webhook event that was given up, and how it was settled."""

    id: str
    scope: str
    subject: str
    """The id of the mail or the webhook event."""
    kind: str
    """`mail` or `webhook`."""
    reason: str
    attempts: int
    created_us: int
    settled_us: int | None
    settlement: str | None
    settled_by: str | None
    note: str | None
    receipt: Receipt | None = None

    @property
    def open(self) -> bool:
        return self.settled_us is None


def bury(tx: Tx, *, scope: str, subject: str, kind: str, reason: str, attempts: int) -> DeadLetter:
    """Give `subject` up, with the reason. If it has an open dead letter, that is returned, without a receipt.

    The caller has locked the row of `subject` in this transaction.
    """
    crash.point("dead_letter.before_bury")
    row = tx.maybe(
        SQL.bury,
        id=new_id("ddl"),
        scope=scope,
        subject=subject,
        kind=kind,
        reason=_words(reason, REASON_MAX) or "no reason was given",
        attempts=attempts,
        now_us=tx.now_us(),
        **tx.caller.labelled(),
    )
    if row is None:
        return DeadLetter.from_row(tx.one(SQL.open_of, subject=subject))
    return _journal_change(tx, DeadLetter.from_row(row), "dead_letter.buried", _sentence(row))


def settle(tx: Tx, subject: str, settlement: str, note: str | None = None) -> DeadLetter:
    """Close the open dead letter of `subject` as `retried` or `resolved`, with a note.

    Raises NotFound if it was never buried, and IllegalTransition, which says who settled it and when, if it is closed.
    """
    one_of(settlement, SETTLEMENTS, "the settlement of a dead letter")
    crash.point("dead_letter.before_settle")
    words = None if note is None else _words(note, NOTE_MAX)
    row = tx.maybe(
        SQL.settle, subject=subject, settlement=settlement, by=tx.caller.actor, note=words, now_us=tx.now_us()
    )
    if row is None:
        raise _settled_before(one(tx, subject))
    said = f"{row['kind']} {short(row['subject'])} {settlement}" + (f": {words}" if words else "")
    return _journal_change(tx, DeadLetter.from_row(row), f"dead_letter.{settlement}", said)


def one(tx: Tx, which: str) -> DeadLetter:
    """The dead letter that `find` finds. Raises NotFound."""
    found = find(tx, which)
    if found is None:
        raise NotFound(
            f"there is no dead letter {serial.clean(which, 60)!r}",
            "to list them: standfast webhook dead; of mail: standfast mail dead",
        )
    return found


def find(tx: Tx, which: str) -> DeadLetter | None:
    """A dead letter by its id or the end of its id; by the id of a mail or event, its open or else its latest one."""

    def of_subject(id: str) -> Row | None:
        return tx.maybe(SQL.open_of, subject=id) or tx.maybe(SQL.latest_of, subject=id)

    row = lookup.row_of(tx, which, "ddl", by_key=of_subject)
    return None if row is None else DeadLetter.from_row(row)


def page(
    tx: Tx,
    *,
    scope: str | None = None,
    kind: str | None = None,
    open_only: bool = True,
    limit: int = 50,
    after: str | None = None,
) -> list[DeadLetter]:
    """A page of dead letters, the newest first. `scope=None` means all scopes; `after` is the last id of a page."""
    asked: Row = {
        "everywhere": int(scope is None),
        "scope": scope or "",
        "kind": kind or "",
        "after": after or _LAST,
        "limit": page_size(limit),
    }
    return [DeadLetter.from_row(row) for row in tx.all(SQL.open_page if open_only else SQL.page, **asked)]


def tell(store: Store, letter: DeadLetter, hint: str, *, tx: Tx | None = None) -> None:
    """Run the `notify` command for a new dead letter. Does nothing for one that was there before.

    Call it after the commit. Inside a caller's transaction give its `tx` (`resource.tx`): it runs after the commit.
    """
    if letter.receipt is not None:
        notices.tell(store, f"{letter.kind}.dead", letter.subject, _sentence(letter.as_dict()), hint, tx=tx)


# -- private functions -------------------------------------------------------------------------------


def _journal_change(tx: Tx, letter: DeadLetter, type: str, summary: str) -> DeadLetter:
    data = {"subject": letter.subject, "kind": letter.kind, "attempts": letter.attempts}
    receipt = journal.append(tx, type, letter.id, scope=letter.scope, summary=summary, data=data)
    return letter.replace(receipt=receipt)


def _settled_before(found: DeadLetter) -> IllegalTransition:
    return IllegalTransition(
        f"dead letter {short(found.id)} of {found.kind} {short(found.subject)} was {found.settlement} "
        f"by {found.settled_by} at {iso(found.settled_us or 0)}",
        f"standfast {found.kind} show {short(found.subject)}",
    )


def _sentence(row: Row) -> str:
    times = f"{row['attempts']} attempt{'s' * (row['attempts'] != 1)}"
    return f"{row['kind']} {short(row['subject'])} was given up after {times}: {row['reason']}"


def _words(text: str, limit: int) -> str:
    """A reason that can be stored. A long one is cut, not refused, so that a dead letter is always written."""
    return serial.clean(str(text), limit)
