"""Dead letters: abandoned once, listed, explained, retried, resolved; shared by mail and webhooks."""

from __future__ import annotations

import pytest

import standfast
from standfast.errors import IllegalTransition, InvalidInput, NotFound
from standfast.ids import new_id
from standfast.ledger import dead_letters
from standfast.ledger.dead_letters import DeadLetter


def bury(sf: standfast.Standfast, subject: str, *, kind: str = "mail", reason: str = "box is full") -> DeadLetter:
    return sf._store.write(
        lambda tx: dead_letters.bury(tx, scope=sf.scope, subject=subject, kind=kind, reason=reason, attempts=5)
    )


def settle(sf: standfast.Standfast, subject: str, how: str, note: str | None = None) -> DeadLetter:
    return sf._store.write(lambda tx: dead_letters.settle(tx, subject, how, note))


def one(sf: standfast.Standfast, which: str) -> DeadLetter:
    return sf._store.read(lambda tx: dead_letters.one(tx, which))


def page(sf: standfast.Standfast, **asked: object) -> list[DeadLetter]:
    return sf._store.read(lambda tx: dead_letters.page(tx, **asked))  # type: ignore[arg-type]


def test_an_item_has_one_open_dead_letter(sf: standfast.Standfast) -> None:
    """000-40: a mail past its attempts is a dead letter with the reason."""
    subject = new_id("mal")
    first, again = bury(sf, subject), bury(sf, subject, reason="another reason")
    assert first.receipt is not None
    assert again == first.replace(receipt=None)
    assert (first.reason, first.attempts, first.open) == ("box is full", 5, True)
    assert page(sf, scope=sf.scope) == [again]


def test_it_is_found_by_its_id_by_the_end_of_it_and_by_what_died(sf: standfast.Standfast) -> None:
    subject = new_id("whk")
    letter = bury(sf, subject, kind="webhook").replace(receipt=None)
    assert [one(sf, name) for name in (letter.id, letter.id[-6:], subject)] == [letter] * 3
    with pytest.raises(NotFound, match="webhook dead"):
        one(sf, new_id("ddl"))
    with pytest.raises(NotFound):
        one(sf, "")


@pytest.mark.parametrize("how", dead_letters.SETTLEMENTS)
def test_a_dead_letter_is_settled_once_with_name_and_reason_and_a_new_one_can_follow(
    sf: standfast.Standfast, how: str
) -> None:
    """001-57: what went wrong, and what was done about it."""
    subject = new_id("mal")
    bury(sf, subject)
    settled = settle(sf, subject, how, "the box was emptied")
    assert (settled.settlement, settled.settled_by, settled.note) == (how, sf.agent, "the box was emptied")
    with pytest.raises(IllegalTransition, match=f"was {how} by"):
        settle(sf, subject, how)
    assert page(sf, scope=sf.scope) == []
    assert one(sf, subject).settlement == how

    second = bury(sf, subject)
    assert second.id != settled.id
    assert one(sf, subject).id == second.id, "the open one comes before what was settled"
    assert [letter.id for letter in page(sf, scope=sf.scope, open_only=False)] == [second.id, settled.id]


def test_every_change_of_a_dead_letter_is_in_the_journal(sf: standfast.Standfast) -> None:
    subject = new_id("mal")
    letter = bury(sf, subject)
    settle(sf, subject, "resolved", "called them")
    told = sf.journal.about(letter.id)
    assert [event.type for event in told] == ["dead_letter.buried", "dead_letter.resolved"]
    assert told[0].data == {"subject": subject, "kind": "mail", "attempts": 5}
    assert told[0].summary == f"mail {subject[-6:]} was given up after 5 attempts: box is full"


def test_what_was_never_buried_cannot_be_settled_and_a_settlement_has_two_names(sf: standfast.Standfast) -> None:
    with pytest.raises(NotFound):
        settle(sf, new_id("mal"), "retried")
    with pytest.raises(InvalidInput, match="is one of retried, resolved, not"):
        settle(sf, new_id("mal"), "deleted")


def test_pages_by_scope_and_kind_the_newest_first(sf: standfast.Standfast) -> None:
    letters = [bury(sf, new_id("mal")) for _ in range(3)] + [bury(sf, new_id("whk"), kind="webhook")]
    ids = [letter.id for letter in letters]
    assert [letter.id for letter in page(sf)] == ids[::-1]
    assert [letter.id for letter in page(sf, kind="mail", limit=2)] == [ids[2], ids[1]]
    assert [letter.id for letter in page(sf, kind="mail", limit=2, after=ids[1])] == [ids[0]]
    assert page(sf, scope="elsewhere") == []
    assert page(sf, scope="elsewhere", open_only=False) == []


def test_no_reason_hinders_a_burial(sf: standfast.Standfast) -> None:
    """The reason may be any text: it is truncated and cleaned, never refused."""
    for reason in ("", "x" * 10_000, "a\x00b\x1b[2J\ud800", "line\nline"):
        letter = bury(sf, new_id("whk"), reason=reason)
        assert 0 < len(letter.reason) <= dead_letters.REASON_MAX
        assert letter.reason.isprintable()
