"""Dead letters: what could not be delivered or handled, kept with the reason until a person settles it.

    buried ──▶ retried     the thing is handed out again, with its attempts counted from 0
       └─────▶ resolved    a person handled it in another way, and says how

Mail and webhooks share this table: each says what it gives up with `bury` and takes it back with
`settle`, in the transaction that changes the thing itself. A thing has one open dead letter at
most, however often it is buried. Nothing is ever deleted here: a thing that was retried and
dies again has two letters, and the first says who retried it.

These are functions of a transaction. A caller that moves one here starts the configured `notify` command with
`tell`, once the transaction is committed.
"""

from __future__ import annotations

from standfast import crash, serial
from standfast.clock import iso
from standfast.core import journal, naming, notices
from standfast.core.checks import page_size
from standfast.core.receipts import Receipt
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.db.store import Store
from standfast.errors import IllegalTransition, InvalidInput, NotFound
from standfast.ids import new_id, short
from standfast.models import Model

SQL = load(__name__)

SETTLEMENTS = ("retried", "resolved")
REASON_MAX = 2000
NOTE_MAX = 4000

_LAST = "ddl_z"  # sorts behind every id, in every collation: an id begins with 0 to 7


class DeadLetter(Model):
    """One thing that was abandoned, and what became of it."""

    id: str
    scope: str
    subject: str
    """The id of the thing: a mail, a webhook event."""
    kind: str
    """What it is: `mail`, `webhook`."""
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
    """Give it up, with the reason. A dead letter stays as it is: the answer has no receipt then.

    The caller holds the row of `subject` in this transaction.
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
        return _letter(tx.one(SQL.open_of, subject=subject))
    return _journal(tx, _letter(row), "dead_letter.buried", _sentence(row))


def settle(tx: Tx, subject: str, settlement: str, note: str | None = None) -> DeadLetter:
    """Close the open letter of `subject`: `retried` or `resolved`, by the caller, with a note.

    Raises NotFound if it was never buried, IllegalTransition if it was settled before: who, when and how.
    """
    if settlement not in SETTLEMENTS:
        raise InvalidInput(f"a dead letter is {' or '.join(SETTLEMENTS)}, not {serial.clean(str(settlement), 40)!r}")
    crash.point("dead_letter.before_settle")
    words = None if note is None else _words(note, NOTE_MAX)
    row = tx.maybe(
        SQL.settle, subject=subject, settlement=settlement, by=tx.caller.actor, note=words, now_us=tx.now_us()
    )
    if row is None:
        raise _settled_before(one(tx, subject))
    said = f"{row['kind']} {short(row['subject'])} {settlement}" + (f": {words}" if words else "")
    return _journal(tx, _letter(row), f"dead_letter.{settlement}", said)


def one(tx: Tx, which: str) -> DeadLetter:
    """As `find`. Raises NotFound."""
    found = find(tx, which)
    if found is None:
        raise NotFound(
            f"there is no dead letter {serial.clean(which, 60)!r}", "standfast webhook dead, standfast mail dead"
        )
    return found


def find(tx: Tx, which: str) -> DeadLetter | None:
    """By its id, the end of its id, or the id of what died: the open letter, else the latest of it."""
    row = naming.row_of(
        tx,
        which,
        by_id=SQL.by_id,
        by_key=lambda text: tx.maybe(SQL.open_of, subject=text) or tx.maybe(SQL.latest_of, subject=text),
        ends=SQL.by_suffix,
        prefix="ddl",
        noun="dead letter",
    )
    return None if row is None else _letter(row)


def page(
    tx: Tx,
    *,
    scope: str | None = None,
    kind: str | None = None,
    open_only: bool = True,
    limit: int = 50,
    after: str | None = None,
) -> list[DeadLetter]:
    """The newest first; `scope=None` is every scope, `after` the last id of the page before."""
    asked: Row = {
        "everywhere": int(scope is None),
        "scope": scope or "",
        "kind": kind or "",
        "after": after or _LAST,
        "limit": page_size(limit),
    }
    return [_letter(row) for row in tx.all(SQL.open_page if open_only else SQL.page, **asked)]


def tell(store: Store, letter: DeadLetter, hint: str, *, tx: Tx | None = None) -> None:
    """Run the `notify` command for a letter that was just buried; nothing for one that lay there already.

    Call it after the transaction; inside a caller's own, with its `tx` (`resource.tx`).
    """
    if letter.receipt is not None:
        notices.tell(store, f"{letter.kind}.dead", letter.subject, _sentence(letter.as_dict()), hint, tx=tx)


# -- small parts -------------------------------------------------------------------------------------


def _journal(tx: Tx, letter: DeadLetter, type: str, summary: str) -> DeadLetter:
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
    """A reason as it can be stored: cut rather than refused, so that nothing hinders a burial."""
    return serial.clean(str(text), limit)


def _letter(row: Row) -> DeadLetter:
    return DeadLetter(*(row[name] for name in DeadLetter.field_names()[:-1]))
