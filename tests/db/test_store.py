"""The contract between the engines and the resources: the guarantees of a transaction on both engines."""

from __future__ import annotations

import inspect
import os
import threading
from pathlib import Path

import pytest

import standfast
from standfast.clock import ManualClock
from standfast.db.contract import Tx
from standfast.db.sql import statement
from standfast.db.store import Resource

PUT = statement("INSERT INTO meta (key, value) VALUES (:key, :value) RETURNING key, value")
PUT_ONCE = statement(
    "INSERT INTO meta (key, value) VALUES (:key, :value) ON CONFLICT (key) DO NOTHING RETURNING key, value"
)
GET = statement("SELECT value FROM meta WHERE key = :key")


def get(sf: standfast.Standfast, key: str) -> str | None:
    row = sf.read(lambda tx: tx.maybe(GET, key=key))
    return row["value"] if row else None


def test_what_a_body_returns_is_there_for_the_next_reader(sf: standfast.Standfast) -> None:
    assert sf._store.write(lambda tx: tx.one(PUT, key="a", value="1")) == {"key": "a", "value": "1"}
    assert get(sf, "a") == "1"


def test_a_raised_error_rolls_back_and_passes_unchanged(sf: standfast.Standfast) -> None:
    boom = RuntimeError("no")

    def body(tx: Tx) -> None:
        tx.run(PUT, key="a", value="1")
        raise boom

    with pytest.raises(RuntimeError) as caught:
        sf._store.write(body)
    assert caught.value is boom
    assert get(sf, "a") is None


def test_a_raised_refusal_is_raised_outside_by_write_and_read(sf: standfast.Standfast) -> None:
    """RULES §1: with and without a write before the error; the write is rolled back."""
    refusal = standfast.NotFound("there is none")

    def refuse(tx: Tx) -> None:
        raise refusal

    def refuse_late(tx: Tx) -> None:
        tx.run(PUT, key="a", value="1")
        raise refusal

    for call in (
        lambda: sf._store.write(refuse),
        lambda: sf._store.write(refuse_late),
        lambda: sf.read(refuse),
        lambda: sf.engine.write(refuse, sf._store.caller),
    ):
        with pytest.raises(standfast.NotFound) as caught:
            call()
        assert caught.value is refusal
    assert get(sf, "a") is None


def test_a_returned_refusal_commits_and_is_raised_outside(sf: standfast.Standfast) -> None:
    def body(tx: Tx) -> standfast.StandfastError:
        tx.run(PUT, key="asked", value="1")
        return standfast.ApprovalRequired("a person has to say yes")

    with pytest.raises(standfast.ApprovalRequired):
        sf._store.write(body)
    assert get(sf, "asked") == "1"


def test_a_failing_body_in_a_shared_batch_fails_alone(sf: standfast.Standfast) -> None:
    """000-1: one caller's bad write affects no other caller."""
    failures: list[int] = []
    start = threading.Barrier(24)

    def work(n: int) -> None:
        start.wait()
        for i in range(5):

            def body(tx: Tx, key: str = f"{n}-{i}") -> None:
                tx.run(PUT, key=key, value="1")
                if n % 6 == 0:
                    raise ValueError(key)

            try:
                sf._store.write(body)
            except ValueError:
                failures.append(n)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(failures) == 20
    kept = {row["key"] for row in sf.rows("SELECT key FROM meta WHERE key LIKE '%-%'")}
    assert kept == {f"{n}-{i}" for n in range(24) for i in range(5) if n % 6}


def test_the_moment_of_a_transaction_is_one_and_can_be_injected(engine_url: str, tmp_path: Path) -> None:
    """000-48: time comes from the clock that the caller passed."""
    clock = ManualClock()
    with standfast.open(engine_url, data_dir=tmp_path / "data", clock=clock) as sf:

        def body(tx: Tx) -> tuple[int, int]:
            first = tx.now_us()
            clock.advance("1s")
            return first, tx.now_us()

        first, second = sf._store.write(body)
        assert first == second
        assert sf._store.write(lambda tx: tx.now_us()) == first + 1_000_000


def test_a_block_commits_together_or_not_at_all(sf: standfast.Standfast) -> None:
    """001-8: a reader sees all of it or nothing."""
    with pytest.raises(ZeroDivisionError), sf.transaction() as tx:  # noqa: PT012  # the block is the subject
        tx.leases.acquire("one")
        raise ZeroDivisionError
    with pytest.raises(standfast.NotFound):
        sf.leases.get("one")
    with sf.transaction() as tx:
        one, two = tx.leases.acquire("one"), tx.leases.acquire("two")
    assert (sf.leases.get("one").fence, sf.leases.get("two").fence) == (1, 1)
    assert one.receipt is not None
    assert two.receipt is not None
    assert sf.journal.verify(str(two.receipt)).subject == "lock:two"


def test_writing_past_an_open_block_is_refused_in_its_thread(sf: standfast.Standfast) -> None:
    with sf.transaction(), pytest.raises(standfast.InvalidInput, match="a transaction is open in this thread"):
        sf.leases.acquire("a")


def test_what_waits_or_calls_out_is_refused_inside_a_block(sf: standfast.Standfast) -> None:
    with (
        sf.transaction() as tx,
        pytest.raises(standfast.InvalidInput, match="cannot run inside a transaction"),
        tx.leases.hold("a"),
    ):
        pass


def test_a_block_that_takes_too_long_is_ended_for_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """001-67: SQLite only, where a block delays every writer; PostgreSQL's server ends such a block itself."""
    monkeypatch.setattr("standfast.db.sqlite.operations.TRANSACTION_MAX_S", 0.2)
    ended = threading.Event()
    with standfast.open(tmp_path / "standfast.db", data_dir=tmp_path) as sf:
        with pytest.raises(standfast.StorageError, match="open for more"), sf.transaction() as tx:  # noqa: PT012  # as above
            tx.leases.acquire("mine")
            threading.Thread(target=lambda: (sf.leases.acquire("theirs"), ended.set())).start()
            assert ended.wait(10)
            tx.leases.acquire("late")
        with pytest.raises(standfast.NotFound):
            sf.leases.get("mine")
        assert sf.leases.get("theirs").fence == 1


def test_a_persons_query_reads_and_never_writes(sf: standfast.Standfast) -> None:
    """000-27: no query can change a row without a method."""
    assert list(sf.rows("SELECT 1 AS one")) == [{"one": 1}]
    for bad in ("DELETE FROM meta", "INSERT INTO meta VALUES ('a', 'b')", "DROP TABLE meta", "nonsense"):
        with pytest.raises(standfast.InvalidInput):
            list(sf.rows(bad))


def test_a_child_after_fork_opens_its_own(sf: standfast.Standfast) -> None:
    sf.leases.acquire("parent")
    pid = os.fork()
    if pid == 0:
        try:
            lease = sf.leases.acquire("child")
            os._exit(0 if f":{os.getpid()}:" in str(lease.holder) else 3)
        finally:
            os._exit(4)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert sf.leases.get("child").holder != sf.leases.get("parent").holder
    assert sf.leases.acquire("again").fence == 1


def test_a_closed_store_raises(sf: standfast.Standfast) -> None:
    sf.close()
    with pytest.raises(standfast.InvalidInput, match="closed"):
        sf.leases.acquire("a")
    sf.close()


def test_two_handles_share_a_store_and_the_first_may_go(engine_url: str, tmp_path: Path) -> None:
    one = standfast.open(engine_url, data_dir=tmp_path / "data")
    two = standfast.open(engine_url, data_dir=tmp_path / "data")
    one.leases.acquire("a")
    one.close()
    assert two.leases.get("a").fence == 1
    two.close()


def test_memory_is_a_private_store_that_ends_at_close(tmp_path: Path) -> None:
    """001-27: persistence is a choice. 003-20: one call makes a whole store for a test."""
    with standfast.open(":memory:", data_dir=tmp_path) as sf:
        sf.leases.acquire("a")
        path = sf.engine.facts()["path"]
        assert isinstance(path, str)
        assert os.path.exists(path)
    assert not os.path.exists(path)


def test_a_waiting_reader_is_woken_by_a_commit(sf: standfast.Standfast) -> None:
    """001-49: a commit notifies readers in this process and in others."""
    with sf._store.watch() as watch:
        watch.wait(0)
        writer = threading.Timer(0.1, lambda: sf.leases.acquire("a"))
        writer.start()
        assert watch.wait(10)
        writer.join()


def test_a_row_that_must_be_there_and_is_not_is_damage_by_name(sf: standfast.Standfast) -> None:
    """For example an index disagrees with its table: the error is a message, not a failed assertion."""
    nothing = statement("SELECT 1 AS n WHERE 1 = 0")
    with pytest.raises(standfast.Corrupt, match="contradicts itself"):
        sf._store.read(lambda tx: tx.one(nothing))
    with pytest.raises(standfast.Corrupt, match="contradicts itself"):
        sf._store.write(lambda tx: tx.defer(nothing, lambda row: None))
    assert sf.tasks.add("goes on").state == "open"


def test_the_signature_of_a_method_shows_what_callers_pass(sf: standfast.Standfast) -> None:
    """R51: `help()` and `inspect.signature` show the public parameters, and no transaction."""
    public = [getattr(sf, name) for name in dir(sf) if not name.startswith("_")]
    resources = [one for one in public if isinstance(one, Resource)]
    methods = [
        getattr(resource, name) for resource in resources for name in vars(type(resource)) if not name.startswith("_")
    ]
    shown = {one.__qualname__: list(inspect.signature(one).parameters) for one in methods if inspect.ismethod(one)}
    assert len(shown) > 100
    assert [name for name, parameters in shown.items() if {"tx", "self"} & set(parameters)] == []


def test_a_method_keeps_its_source_and_its_docstring(sf: standfast.Standfast) -> None:
    """R51: the tools that unwrap a method find its body."""
    assert list(inspect.signature(sf.tasks.snooze).parameters) == ["which", "until", "for_"]
    assert "def snooze(" in inspect.getsource(sf.tasks.snooze)
    assert "Hide a task from `next`" in (inspect.getdoc(sf.tasks.snooze) or "")
