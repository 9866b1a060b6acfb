"""LangGraph's checkpointer on a standfast store: LangGraph's conformance suite, and faults of other savers."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import standfast
from standfast import modules, when
from standfast.core import removed

pytest.importorskip("langgraph.checkpoint.conformance", reason="pip install '.[dev]' brings LangGraph")

from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.types import Command, interrupt

from standfast.adapters.langgraph import Saver, strict
from standfast.db.sql import statement
from standfast_prove.graphs import Said, answering, at, checkpoint, growing, on

Url = str


@pytest.fixture
def saver(engine_url: Url) -> Any:
    with Saver.from_conn_string(engine_url) as opened:
        yield opened


def test_the_conformance_suite_of_langgraph_passes_whole(engine_url: Url) -> None:
    """All 81 tests of langgraph-checkpoint-conformance 0.0.2 are counted, because the suite's label ignores missing
    tests.
    """

    @checkpointer_test(name="standfast")
    async def made() -> AsyncIterator[Saver]:
        async with Saver.from_conn_string(engine_url) as opened:
            yield opened

    results = asyncio.run(validate(made)).to_dict()["results"]
    failures = [words for result in results.values() for words in result["failures"]]
    assert failures == []
    assert sum(result["tests_passed"] for result in results.values()) == 81
    assert sum(result["tests_skipped"] for result in results.values()) == 0


# -- stored rows ------------------------------------------------------------------------------------


def test_a_growing_thread_stores_what_changed_and_every_checkpoint_reads_back(saver: Saver) -> None:
    """002-13: a small update stores only the changed values, and every earlier checkpoint is unchanged."""
    made = list(growing(saver, 60, size=300, constant=2000))
    with Saver.from_conn_string(saver.sf.settings.target.location) as cold:
        for one in (made[-1], made[0], made[31]):
            assert cold.get_tuple(at("growing", one["id"])).checkpoint == one  # type: ignore[union-attr]
        listed = list(cold.list(at("growing")))
    assert [found.checkpoint for found in listed] == made[::-1]
    assert [len(found.pending_writes or ()) for found in listed] == [1] * 60
    (stored,) = saver.sf.rows("SELECT SUM(length(data)) AS n FROM thread_value")
    assert stored["n"] < 3 * 60 * 350 + 3 * 2000


THREADS = statement(
    "INSERT INTO thread (id, scope, key, life, created_us, updated_us)"
    " WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 3100)"
    " SELECT 'thr_' || CAST(n AS TEXT), CAST(:scope AS TEXT), 'k' || CAST(n AS TEXT), 1, n, n FROM n"
)


def test_among_thousands_of_threads_each_is_found_and_all_are_listed(saver: Saver) -> None:
    """000-7: the store has 3,100 threads."""
    sf = saver.sf
    sf._store.write(lambda tx: tx.run(THREADS, scope=sf.scope))
    made = checkpoint(1, {"v": "here"}, {"v": 1})
    saver.put(at("k1500"), made, {"source": "loop", "step": 1}, {"v": 1})
    found = saver.get_tuple(at("k1500"))
    assert found is not None
    assert found.checkpoint["channel_values"] == {"v": "here"}
    assert saver.get_tuple(at("k1501")) is None
    seen: list[str] = []
    before = None
    while page := sf.threads.threads(before=before, limit=1000):
        seen += [thread.key for thread in page]
        before = when.utc(page[-1].updated_us)
    assert seen == ["k1500"] + [f"k{n}" for n in range(3100, 0, -1) if n != 1500]


def test_a_fork_does_not_change_its_branch(saver: Saver) -> None:
    app = answering(lambda state: {"said": [f"answer {len(state['said'])}"]}, saver)
    app.invoke({"said": ["one"]}, on("t"))
    app.invoke({"said": ["two"]}, on("t"))
    history = list(app.get_state_history(on("t")))
    app.invoke({"said": ["other"]}, history[-1].config)
    app.update_state(history[2].config, {"said": ["corrected"]})
    for before in history:
        assert app.get_state(before.config).values == before.values
    assert app.get_state(on("t")).values["said"][-1] == "corrected"


def test_a_value_that_shrinks_turns_and_changes_in_the_middle_reads_back(saver: Saver) -> None:
    values: list[Any] = [
        ["a" * 500, "b" * 500],
        ["a" * 500],
        [],
        {"k": 1},
        {"k": 2, "z": "x" * 900},
        b"raw",
        None,
        "text",
    ]
    values += [[*map(str, range(n))] for n in (14, 15, 16, 17, 40, 3)] + [["a" * 500, "B" * 500, "c"]]
    config, ids = at("t"), []
    for step, value in enumerate(values):
        made = checkpoint(step, {"v": value}, {"v": step + 1})
        config = saver.put(config, made, {"source": "loop", "step": step}, {"v": step + 1})
        ids.append(made["id"])
    with Saver.from_conn_string(saver.sf.settings.target.location) as cold:
        read = [cold.get_tuple(at("t", id)).checkpoint["channel_values"]["v"] for id in ids]  # type: ignore[union-attr]
    assert read == values


def test_pruning_keeps_the_newest_and_gives_back_the_values(saver: Saver) -> None:
    made = list(growing(saver, 40, size=200))
    saver.prune(["growing"])
    (kept,) = saver.list(at("growing"))
    assert kept.checkpoint == made[-1]
    (rows,) = saver.sf.rows("SELECT COUNT(*) AS n FROM thread_write")
    assert rows["n"] == 1
    # The cache may still have pruned values. New values are not stored as differences from them.
    new = checkpoint(41, {"messages": [1], "constant": "c" * 20_000}, {"messages": 41, "constant": 1})
    saver.put(kept.config, new, {"source": "loop", "step": 41}, {"messages": 41})
    assert saver.get_tuple(at("growing")).checkpoint == new  # type: ignore[union-attr]


def test_the_space_of_a_deleted_thread_is_used_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A delete does not shrink the file, and later rows use the free space.

    Rows stay as before-images for `standfast undo`. Here these images end immediately.
    """
    for name, value in (("KEPT_US", 0), ("ALWAYS_US", 0), ("_PURGE_AT", "")):
        monkeypatch.setattr(removed, name, value)
    path, sizes = tmp_path / "standfast.db", []
    for _ in range(5):
        with Saver.from_conn_string(path) as saver:
            for _ in growing(saver, 40, size=20_000):
                pass
            saver.delete_thread("growing")
        sizes.append(path.stat().st_size)
    assert sizes[0] > 400_000
    assert sizes[-1] < 1.1 * sizes[1]  # the file grew by the journal and little else


def test_a_thread_is_listed_while_it_is_pruned_and_written(saver: Saver) -> None:
    """The caller reads a page without holding a lock. Rows deleted meanwhile are skipped."""
    made = list(growing(saver, 30, size=200))
    with Saver.from_conn_string(saver.sf.settings.target.location) as other:
        listing = other.list(at("growing"))
        first = next(listing)
        saver.prune(["growing"])
        saver.put(first.config, checkpoint(31, {"v": 1}, {"v": 1}), {"source": "loop"}, {"v": 1})
        rest = list(listing)
    assert first.checkpoint == made[-1]
    assert [found.checkpoint for found in rest] == made[-2 : -len(rest) - 2 : -1]


def test_a_filter_is_compared_and_never_becomes_a_statement(saver: Saver) -> None:
    """CVE-2025-8709 and similar faults: a saver put the names in a filter into SQL."""
    saver.put(at("t"), checkpoint(0, {}, {}), {"source": "loop", "step": 0, "user": "a'b"}, {})  # type: ignore[typeddict-unknown-key]
    for name in ("x') OR 1=1 --", "user' OR '1'='1", "$.user", "%", ""):
        assert list(saver.list(None, filter={name: "a'b"})) == []
    assert len(list(saver.list(None, filter={"user": "a'b"}))) == 1


# -- faults of other savers ------------------------------------------------------------------------------


def test_of_two_runs_on_one_thread_the_second_is_refused(engine_url: Url) -> None:
    """001-22: with the official savers, one question and its answer are lost without an error."""
    reached, go_on = threading.Barrier(2, timeout=30), threading.Event()

    def slow(state: Said) -> dict[str, list[str]]:
        reached.wait()
        assert go_on.wait(30)
        return {"said": ["answer to " + state["said"][-1]]}

    told: list[BaseException] = []
    with Saver.from_conn_string(engine_url) as first, Saver.from_conn_string(engine_url) as second:
        answering(lambda _: {"said": ["hello"]}, first).invoke({"said": ["hi"]}, on("t"))

        def ask(saver: Saver, question: str, durability: str) -> None:
            try:
                answering(slow, saver).invoke({"said": [question]}, on("t"), durability=durability)
            except standfast.Conflict as error:
                told.append(error)

        runs = [threading.Thread(target=ask, args=(s, q, "exit")) for s, q in ((first, "Q1"), (second, "Q2"))]
        for run in runs:
            run.start()
        go_on.set()
        for run in runs:
            run.join(60)
        said = answering(slow, first).get_state(on("t")).values["said"]
    assert [error.code for error in told] == ["thread_overtaken"]  # type: ignore[attr-defined]
    assert said in (["hi", "hello", "Q1", "answer to Q1"], ["hi", "hello", "Q2", "answer to Q2"])


def test_a_late_write_to_a_deleted_thread_is_refused(saver: Saver) -> None:
    made = checkpoint(0, {"v": 1}, {"v": 1})
    config = saver.put(at("t"), made, {"source": "input", "step": -1}, {"v": 1})
    saver.delete_thread("t")
    with pytest.raises(standfast.Conflict, match="was deleted"):
        saver.put(config, checkpoint(1, {"v": 2}, {"v": 2}), {"source": "loop", "step": 0}, {"v": 2})
    with pytest.raises(standfast.Conflict, match="was deleted"):
        saver.put_writes(config, [("v", 3)], "task")
    tables = ("thread_checkpoint", "thread_value", "thread_write")
    counts = [row["n"] for table in tables for row in saver.sf.rows(f"SELECT COUNT(*) AS n FROM {table}")]
    assert counts == [0, 0, 0]
    # A thread that starts again after its deletion has no data of the deleted one.
    answering(lambda _: {"said": ["again"]}, saver).invoke({"said": ["hi"]}, on("t"))
    assert saver.get_tuple(on("t")).checkpoint["channel_values"]["said"] == ["hi", "again"]  # type: ignore[union-attr]


def test_a_delete_happens_whole_or_not_at_all(saver: Saver, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the second of its two statements fails, the official saver still commits the first."""
    from standfast.record.threads import rows

    list(growing(saver, 3))
    broken = rows.SQL.drop_all_values
    monkeypatch.setattr(rows.SQL, "drop_all_writes", _failing(broken))
    with pytest.raises(standfast.StandfastError):
        saver.delete_thread("growing")
    monkeypatch.undo()
    assert len(list(saver.list(at("growing")))) == 3


def _failing(like: Any) -> Any:
    from standfast.db.sql import statement

    return statement("DELETE FROM thread_write WHERE no_such_column = :thread_seq", name=like.name)


def test_a_cancelled_put_leaves_nothing_open(engine_url: Url) -> None:
    """With the official saver, one in ten cancelled puts leaves a transaction open, which locks all other processes
    out.
    """

    async def storm() -> int:
        async with Saver.from_conn_string(engine_url) as opened:
            for n in range(20):
                put = asyncio.ensure_future(
                    opened.aput(at(f"t{n}"), checkpoint(n, {"v": "x" * 2000}, {"v": 1}), {"source": "input"}, {"v": 1})
                )
                for _ in range(n % 5):
                    await asyncio.sleep(0)
                put.cancel()
                await asyncio.wait([put])
            with Saver.from_conn_string(engine_url) as other:
                other.put(at("other"), checkpoint(0, {}, {}), {"source": "input"}, {})
                return len(list(other.list(at("other"))))

    assert asyncio.run(storm()) == 1


def test_eight_processes_open_a_fresh_store_at_once(engine_url: Url, tmp_path: Path) -> None:
    """003-18: with the official saver, some processes find the database locked while another one creates it."""
    code = (
        "import os, sys\nfrom standfast.adapters.langgraph import Saver\n"
        "from standfast_prove.graphs import at, checkpoint\n"
        "def one(n):\n"
        "    with Saver.from_conn_string(sys.argv[1]) as saver:\n"
        "        saver.setup()\n"
        "        saver.put(at(f't{n}'), checkpoint(0, {'v': 1}, {'v': 1}), {'source': 'input'}, {'v': 1})\n"
        "reading, writing = os.pipe()\n"
        "pids = []\n"
        "for n in range(8):\n"
        "    if (pid := os.fork()) == 0:\n"
        "        os.close(writing)\n"
        "        os.read(reading, 1)\n"  # until the parent starts all of them together
        "        one(n)\n"
        "        os._exit(0)\n"
        "    pids.append(pid)\n"
        "os.close(writing)\n"
        "print([os.waitpid(pid, 0)[1] for pid in pids])\n"
    )
    env = os.environ | {"STANDFAST_DATA_DIR": str(tmp_path / "data"), "PYTHONPATH": os.getcwd()}
    done = subprocess.run(
        [sys.executable, "-c", code, engine_url], env=env, capture_output=True, text=True, timeout=120
    )
    assert (done.stdout, done.stderr) == (f"{[0] * 8}\n", "")
    with Saver.from_conn_string(engine_url) as opened:
        assert len(list(opened.list(None))) == 8


def test_an_effect_before_an_interrupt_happens_once(engine_url: Url, tmp_path: Path) -> None:
    """002-11: a resumed node runs again from its first line, but its outside calls are not repeated."""
    world: list[str] = []

    def pay(invoice: str) -> str:
        world.append(invoice)
        return f"paid {invoice}"

    with Saver.from_conn_string(engine_url) as opened:

        def node(state: Said) -> dict[str, list[str]]:
            with opened.sf.session("invoice-7") as s:
                done = s.effect("bank.pay", {"invoice": "7"}, do=lambda call: pay(call.intent["invoice"]))
            return {"said": [done, interrupt("enough?")]}

        app = answering(node, opened)
        app.invoke({"said": ["pay 7"]}, on("t"))
        end = app.invoke(Command(resume="yes"), on("t"))
    assert end["said"] == ["pay 7", "paid 7", "yes"]
    assert world == ["7"]


# -- encodings -------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Secret:
    name: str


def test_nothing_is_made_again_that_is_not_on_the_list(engine_url: Url) -> None:
    """CVE-2026-28277: a stored value names a class. Loading the value imported and called that class."""
    with Saver.from_conn_string(engine_url) as opened:
        config = opened.put(at("t"), checkpoint(0, {"v": Secret("x")}, {"v": 1}), {"source": "input"}, {"v": 1})
        assert opened.get_tuple(config).checkpoint["channel_values"]["v"] == {"name": "x"}  # type: ignore[union-attr]
    with Saver.from_conn_string(engine_url, allow=[Secret]) as trusting:
        found = trusting.get_tuple(config)
        assert found is not None
        assert found.checkpoint["channel_values"]["v"] == Secret("x")
    with pytest.raises(NotImplementedError, match="pickle"):
        strict().loads_typed(("pickle", b"cos\nsystem\n(S'true'\ntR."))


class Turned:
    """A cipher without security, which shows whether a stored value was encrypted."""

    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        return "turned", b"turned" + plaintext[::-1]

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        if ciphername != "turned" or not ciphertext.startswith(b"turned"):
            raise ValueError("not mine")
        return ciphertext[6:][::-1]


def test_with_a_cipher_nothing_plain_is_stored_or_accepted(engine_url: Url) -> None:
    """The official encrypting serializer also loads plain rows, and does not encrypt metadata."""
    serde = EncryptedSerializer(Turned(), strict())
    with Saver.from_conn_string(engine_url, serde=serde) as opened:
        made = list(growing(opened, 12, size=200, constant=1000))
        metadata: Any = {"source": "input", "mail": "ada@example.org"}
        opened.put(at("t"), checkpoint(0, {"v": "a secret"}, {"v": 1}), metadata, {"v": 1})
        assert [found.checkpoint for found in opened.list(at("growing"))] == made[::-1]
        (row,) = opened.sf.rows("SELECT COUNT(*) AS n FROM thread_value WHERE n > 0")
        assert row["n"] > 5  # values are stored as differences, then encrypted
    with Saver.from_conn_string(engine_url) as plain:
        for table, column in (("thread_checkpoint", "metadata"), ("thread_value", "data"), ("thread_write", "data")):
            kept = b"".join(bytes(found[column]) for found in plain.sf.rows(f"SELECT {column} FROM {table}"))
            assert b"ada@" not in kept
            assert b"a secret" not in kept
        with pytest.raises(standfast.InvalidInput, match="is encrypted"):
            plain.get_tuple(at("t"))
        plain.put(at("forged"), checkpoint(0, {"v": "forged"}, {"v": 1}), {"source": "input"}, {"v": 1})
    with (
        Saver.from_conn_string(engine_url, serde=serde) as opened,
        pytest.raises(standfast.Corrupt, match="not encrypted"),
    ):
        opened.get_tuple(at("forged"))


# -- conventions -----------------------------------------------------------------------------------------


def test_a_shallow_copy_shares_the_store_and_has_its_own_serializer(saver: Saver) -> None:
    other = copy.copy(saver)
    other.serde = JsonPlusSerializer()
    saver.put(at("t"), checkpoint(0, {"v": 1}, {"v": 1}), {"source": "input"}, {"v": 1})
    assert other.get_tuple(at("t")) == saver.get_tuple(at("t"))
    assert isinstance(saver.with_allowlist({("tests", "X")}), Saver)


def test_versions_grow_and_continue_after_those_of_another_saver(saver: Saver) -> None:
    assert saver.get_next_version(None, None) == 1
    assert saver.get_next_version(1, None) == 2
    old = "00000000000000000000000000000007.0.3134927484237805"
    assert saver.get_next_version(old, None) > old


def test_setup_may_be_called_and_awaited(engine_url: Url) -> None:
    async def both() -> None:
        async with Saver.from_conn_string(engine_url) as opened:
            opened.setup()
            await opened.setup()

    asyncio.run(both())


def test_an_open_handle_is_shared_and_stays_open(sf: standfast.Standfast) -> None:
    saver = Saver(sf)
    saver.put(at("t"), checkpoint(0, {"v": 1}, {"v": 1}), {"source": "input"}, {"v": 1})
    saver.close()
    assert [thread.key for thread in sf.threads.threads()] == ["t"]
    assert [event.type for event in sf.journal.tail().events] == ["thread.saved"]


def test_importing_standfast_imports_no_framework_and_a_missing_extra_names_the_pip_command() -> None:
    code = (
        "import sys, standfast, standfast.handle\n"
        "assert not any(name.partition('.')[0] in ('langgraph', 'langchain_core') for name in sys.modules)\n"
        "sys.modules['langchain_core'] = None\n"
        "try:\n    import standfast.adapters.langgraph\n"
        "except standfast.InvalidInput as error:\n    print(error.hint)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"{modules.install('langgraph')}\n"
