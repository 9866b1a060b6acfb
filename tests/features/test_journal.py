"""The journal is written in the transaction of the change, followed without gaps, and checked by receipts."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import apsw
import pytest

import standfast
from standfast.core import journal, receipts
from standfast.core.receipts import Receipt, row_hash
from standfast.db.contract import Tx
from standfast.db.sqlite import migrate
from standfast_prove.campaigns.followers import follow_to_the_end
from standfast_prove.faults.children import Nursery
from standfast_prove.faults.rows import COUNT_UP, INSERT
from standfast_prove.faults.threads import Task


def append(sf: standfast.Standfast, subject: str, **fields: object) -> Receipt:
    return sf._store.write(lambda tx: journal.append(tx, "test.happened", subject, **fields))  # type: ignore[arg-type]


def subjects(page: journal.Page) -> list[str]:
    return [event.subject for event in page.events]


# -- writing ---------------------------------------------------------------------------------------------


def test_an_event_has_actor_time_and_type(sf: standfast.Standfast) -> None:
    receipt = append(sf, "thing-1", summary="it\nhappened", data={"n": [1, 2.5, None]}, state="done", occurred_us=7)
    (event,) = sf.journal.tail().events
    assert event.seq == receipt.seq
    assert (event.type, event.subject, event.state, event.source) == ("test.happened", "thing-1", "done", "seen")
    assert (event.agent, event.scope, event.holder) == (sf.agent, sf.scope, sf._store.caller.holder)
    assert event.data == {"n": [1, 2.5, None]}
    assert (event.occurred_us, event.time_us > 7) == (7, True)


def test_a_change_that_is_rolled_back_has_no_event(sf: standfast.Standfast) -> None:
    def body(tx: Tx) -> None:
        tx.run(INSERT, key="k1", value="1")
        journal.append(tx, "test.happened", "k1")
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        sf._store.write(body)
    assert sf.journal.tail().events == []


def test_a_summary_is_cut_to_its_bound(sf: standfast.Standfast) -> None:
    append(sf, "thing-1", summary="x" * 10_000)
    (event,) = sf.journal.tail().events
    assert len(event.summary or "") <= journal.SUMMARY_MAX


def test_events_of_one_subject_are_listed_in_the_order_of_writing(sf: standfast.Standfast) -> None:
    for n in range(6):
        append(sf, f"thing-{n % 2}", data=n)
    found = sf.journal.about("thing-1")
    assert [event.data for event in found] == [1, 3, 5]
    assert [event.data for event in sf.journal.about("thing-1", after=found[0].seq, limit=1)] == [3]


# -- following -------------------------------------------------------------------------------------------


def test_a_tail_continues_from_its_cursor_page_by_page(sf: standfast.Standfast) -> None:
    for n in range(7):
        append(sf, f"{n}")
    first = sf.journal.tail(limit=3)
    second = sf.journal.tail(first.cursor, limit=3)
    third = sf.journal.tail(second.cursor, limit=3)
    assert [subjects(page) for page in (first, second, third)] == [["0", "1", "2"], ["3", "4", "5"], ["6"]]
    empty = sf.journal.tail(third.cursor)
    assert (empty.events, empty.cursor) == ([], third.cursor)
    append(sf, "7")
    assert subjects(sf.journal.tail(empty.cursor)) == ["7"]


def test_a_cursor_of_now_is_behind_everything_and_before_what_comes(sf: standfast.Standfast) -> None:
    assert subjects(sf.journal.tail(sf.journal.now())) == []
    append(sf, "before")
    now = sf.journal.now()
    append(sf, "after")
    assert subjects(sf.journal.tail(now)) == ["after"]


@pytest.mark.parametrize(
    "cursor", ["", "7", "s:", "s:-1", "p:1", "x:1:2", "s:1 ", "s:1;DROP TABLE event", "s:" + "9" * 30]
)
def test_an_invalid_cursor_is_refused(sf: standfast.Standfast, cursor: str) -> None:
    with pytest.raises(standfast.InvalidInput, match="is not a cursor"):
        sf.journal.tail(cursor)


def test_a_tail_beside_writers_in_many_processes_neither_skips_nor_repeats(engine_url: str, tmp_path: Path) -> None:
    """Some transactions append early and commit late. On PostgreSQL, other transactions commit before them."""
    writers, events = 4, 60
    with standfast.open(engine_url, data_dir=tmp_path / "data") as sf, Nursery(words=tmp_path / "words") as nursery:
        starters: list[dict[str, object]] = [
            {"url": engine_url, "place": str(tmp_path), "name": f"w{n}", "events": events} for n in range(writers)
        ]
        pids = nursery.race("standfast_prove.campaigns.followers:write_events", starters)
        seen = follow_to_the_end(sf, writers * events)
        assert [nursery.wait(pid) for pid in pids] == [0] * writers, (tmp_path / "words").read_text()[-2000:]
        assert subjects(sf.journal.tail(sf.journal.now())) == []
    assert sorted(seen) == sorted(f"w{n}-{i:03}" for n in range(writers) for i in range(events))
    for n in range(writers):
        own = [subject for subject in seen if subject.startswith(f"w{n}-")]
        assert own == sorted(own), "one writer's events come in its order"


def test_an_event_that_is_committed_late_is_not_skipped_on_postgresql(pg_database: str, tmp_path: Path) -> None:
    """A cursor that holds only the sequence number would skip this event."""
    with (
        standfast.open(pg_database, data_dir=tmp_path / "data") as sf,
        standfast.open(pg_database, data_dir=tmp_path / "data") as other,
    ):
        with other._store.transaction() as tx:
            receipt = journal.append(tx, "test.happened", "early number, late commit")
            tx.maybe(journal.SQL.by_seq, seq=0)
            assert Task(append, sf, "late number, early commit").done() is None
            before = sf.journal.tail()
        after = sf.journal.tail(before.cursor)
        seen = sf.journal.about("late number, early commit")
        assert receipt.seq is not None
        assert receipt.seq < seen[0].seq, "the numbers are as this test means them"
        assert sorted(subjects(before) + subjects(after)) == ["early number, late commit", "late number, early commit"]


# -- receipts ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["text", "json", "with spaces"])
def test_a_receipt_proves_what_was_written(sf: standfast.Standfast, form: str) -> None:
    receipt = append(sf, "thing-1", summary="ünïcode ✓", data={"a": 1})
    text = {
        "text": str(receipt),
        "json": json.dumps(receipt.as_json()),
        "with spaces": f"  {receipt}\n",
    }[form]
    assert sf.journal.verify(text).subject == "thing-1"


def test_every_event_of_a_transaction_has_its_own_receipt_once_it_is_committed(sf: standfast.Standfast) -> None:
    with sf._store.transaction() as tx:
        tx.run(COUNT_UP, key="k1")
        receipts = [journal.append(tx, "test.happened", f"{n}") for n in range(5)]
    assert [sf.journal.verify(str(receipt)).subject for receipt in receipts] == ["0", "1", "2", "3", "4"]


@pytest.mark.parametrize("text", ["", "nonsense", "1", "1:h1:", "1:h1:" + "0" * 63, "-1:h1:" + "0" * 64, "{}", "[1]"])
def test_an_invalid_receipt_is_refused(sf: standfast.Standfast, text: str) -> None:
    with pytest.raises(standfast.InvalidInput):
        sf.journal.verify(text)


def test_a_receipt_for_a_row_that_is_not_there_is_not_found(sf: standfast.Standfast) -> None:
    receipt = append(sf, "thing-1")
    with pytest.raises(standfast.NotFound, match="has no row"):
        sf.journal.verify(f"{(receipt.seq or 0) + 100}:{receipt.hash}")


def test_a_receipt_of_another_row_does_not_prove_this_one(sf: standfast.Standfast) -> None:
    first, second = append(sf, "thing-1"), append(sf, "thing-2")
    with pytest.raises(standfast.Corrupt) as caught:
        sf.journal.verify(f"{first.seq}:{second.hash}")
    assert caught.value.code == "receipt_mismatch"


CHANGES = {
    "time_us": "time_us + 1",
    "occurred_us": "occurred_us - 1",
    "scope": "'elsewhere'",
    "actor": "'mallory'",
    "holder": "'p:other'",
    "source": "'said'",
    "type": "'test.never'",
    "subject": "'thing-2'",
    "session_id": "'ses_1'",
    "state": "NULL",
    "summary": "''",
    "data": """'{"amount": 1000000}'""",
}


@pytest.mark.parametrize("column", CHANGES)
def test_a_row_that_was_changed_is_found_out(tmp_path: Path, column: str) -> None:
    """A receipt detects a changed row also if the change got past the guard triggers."""
    path = tmp_path / "standfast.db"
    with standfast.open(path, data_dir=tmp_path) as sf:
        receipt = append(sf, "thing-1", state="done", data={"amount": 1})
        other = append(sf, "thing-1", state="done", data={"amount": 1})
        with closing(apsw.Connection(str(path))) as mallory:
            migrate.define_guard(mallory)
            mallory.execute(f"UPDATE event SET {column} = {CHANGES[column]} WHERE seq = {receipt.seq}")
        with pytest.raises(standfast.Corrupt, match="differs from the receipt"):
            sf.journal.verify(str(receipt))
        assert sf.journal.verify(str(other)).data == {"amount": 1}


def test_a_row_that_was_changed_on_postgresql_is_found_out(pg_database: str, tmp_path: Path) -> None:
    """R33: a trigger refuses the change. If the owner of the table turns the trigger off, a receipt detects the
    change.
    """
    import psycopg

    with standfast.open(pg_database, data_dir=tmp_path) as sf:
        receipt = append(sf, "thing-1", data={"amount": 1})
        with psycopg.connect(pg_database, autocommit=True) as mallory:
            forged = """UPDATE standfast.event SET data = '{"amount": 2}'"""
            for change in (forged, "DELETE FROM standfast.event", "TRUNCATE standfast.event CASCADE"):
                with pytest.raises(psycopg.errors.InsufficientPrivilege, match="only added to"):
                    mallory.execute(change)
            mallory.execute("ALTER TABLE standfast.event DISABLE TRIGGER event_guard")
            mallory.execute(forged)
        with pytest.raises(standfast.Corrupt, match="differs from the receipt"):
            sf.journal.verify(str(receipt))


def test_the_hash_distinguishes_null_from_an_empty_text_and_one_field_from_the_next() -> None:
    row: dict[str, object] = dict.fromkeys((*receipts._SALTED, "salt"))
    row |= {"time_us": 1, "occurred_us": 1, "subject": "a", "state": None, "summary": "b"}
    variants = [
        row,
        row | {"state": ""},
        row | {"summary": None},
        row | {"summary": ""},
        row | {"state": "b", "summary": None},
        row | {"subject": "a=", "summary": "b"},
        row | {"time_us": 11},
    ]
    assert len({row_hash(variant) for variant in variants}) == len(variants)
    salted = [{**row, "salt": b"s"}, {**row, "salt": b"t"}, {**row, "salt": b"s", "origin": "o"}]
    assert len({row_hash(variant) for variant in (*variants, *salted)}) == len(variants) + 3
