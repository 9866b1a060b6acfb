"""What goes wrong with the savers that come with LangGraph, each tried on them and on ours.

`official=True` is the control: there each of these must be found, or this campaign would prove nothing.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from standfast_prove.outcome import Outcome

CANCELLED = 60
OPENED = 15
CROWD = 8
CERTAIN = 5
"""How many of them the control finds each time."""


def run(place: Path, *, official: bool = False) -> Outcome:
    """Each fault once, or often enough to be seen."""
    outcome = Outcome("langgraph-control" if official else "langgraph")
    for fault in (repeated, killed, overtaken, cancelled, crowded, half_deleted, forged):
        there = place / fault.__name__
        there.mkdir()
        outcome.count("faults tried")
        outcome.refuse(fault(there, official), str(fault.__doc__).partition(":")[0])
    return outcome


def saver(place: Path, official: bool) -> Any:
    if official:
        from langgraph.checkpoint.sqlite import SqliteSaver

        return SqliteSaver.from_conn_string(str(place / "theirs.sqlite"))
    from standfast.adapters.langgraph import Saver

    return Saver.from_conn_string(place / "standfast.db")


def acting(place: Path, opened: Any, official: bool, then: Callable[[], Any]) -> Any:
    """A graph whose node writes a line into the outside file and continues with `then`."""
    from standfast_prove.graphs import answering

    world = place / "world"

    def act() -> str:
        with world.open("a") as file:
            file.write("acted\n")
        return "acted"

    def once() -> str:
        import standfast

        def found(_: Any) -> Any:
            return standfast.Applied("acted") if world.exists() else standfast.NotApplied()

        with opened.sf.session("act") as s:
            return str(s.effect("act", {}, do=lambda _: act(), probe=found, settle=0))

    return answering(lambda _: {"said": [act() if official else once(), then()]}, opened)


def lines(place: Path) -> int:
    return len((place / "world").read_text().splitlines())


def repeated(place: Path, official: bool) -> str | None:
    """A side effect before an interrupt is repeated when the graph is resumed: 2 times."""
    from langgraph.types import Command, interrupt

    from standfast_prove.graphs import on

    with saver(place, official) as opened:
        app = acting(place, opened, official, lambda: interrupt("well?"))
        app.invoke({"said": []}, on("t"))
        app.invoke(Command(resume="yes"), on("t"))
    return None if lines(place) == 1 else f"{lines(place)} times"


def killed(place: Path, official: bool) -> str | None:
    """A side effect is repeated by each run after a kill: 3 times."""
    from standfast_prove.graphs import on

    def live(*, die: bool) -> None:
        with saver(place, official) as opened:
            end = (lambda: os.kill(os.getpid(), 9)) if die else (lambda: "done")
            app = acting(place, opened, official, end)
            app.invoke(None if opened.get_tuple(on("t")) else {"said": []}, on("t"), durability="sync")

    for die in (True, True, False):
        _forked(lambda die=die: live(die=die))  # type: ignore[misc]
    return None if lines(place) == 1 else f"{lines(place)} times"


def _forked(life: Callable[[], object]) -> int:
    if (pid := os.fork()) == 0:
        try:
            life()
        except BaseException:  # noqa: BLE001 - the parent asks only how it ended
            os._exit(1)
        os._exit(0)
    return os.waitpid(pid, 0)[1]


def overtaken(place: Path, official: bool) -> str | None:
    """Of two runs on one thread a question and its answer are lost without a word: one of them."""
    from standfast_prove.graphs import answering, on

    both = threading.Barrier(2, timeout=30)

    def slow(state: Any) -> dict[str, list[str]]:
        both.wait()
        return {"said": ["to " + state["said"][-1]]}

    told: list[str] = []
    with saver(place, official) as opened:

        def ask(question: str) -> None:
            try:
                answering(slow, opened).invoke({"said": [question]}, on("t"), durability="exit")
            except Exception as error:  # noqa: BLE001 - any error counts as an answer
                told.append(str(error))

        runs = [threading.Thread(target=ask, args=(question,)) for question in ("Q1", "Q2")]
        for one in runs:
            one.start()
        for one in runs:
            one.join()
        said = answering(slow, opened).get_state(on("t")).values["said"]
    return None if told or len(said) == 4 else f"{said} is all that is left"


def cancelled(place: Path, official: bool) -> str | None:
    """A cancelled put leaves its transaction open: others find the database locked."""
    return asyncio.run(_cancelled(place, official))


async def _cancelled(place: Path, official: bool) -> str | None:
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

    from standfast_prove.graphs import at, checkpoint

    left = 0
    made = AsyncSqliteSaver.from_conn_string(str(place / "theirs.sqlite")) if official else saver(place, official)
    async with made as opened:
        await opened.aput(at("t"), checkpoint(0, {}, {}), {"source": "input"}, {})
        for n in range(CANCELLED):
            values = {"v": "x" * 5000}
            put = asyncio.ensure_future(opened.aput(at(f"t{n}"), checkpoint(n, values, {"v": 1}), {}, {"v": 1}))
            await asyncio.sleep(n * 0.00005)
            put.cancel()
            await asyncio.wait([put])
            await asyncio.sleep(0.005)
            if official:
                left += opened.conn.in_transaction
                if opened.conn.in_transaction:
                    await opened.conn.rollback()
            else:
                with saver(place, official) as other:
                    other.put(at("other"), checkpoint(n, {}, {}), {"source": "input"}, {})
    return f"{left} of {CANCELLED}" if left else None


def crowded(place: Path, official: bool) -> str | None:
    """Processes that begin together find the database locked while it is set up: some of them."""
    from standfast_prove.graphs import at, checkpoint

    failed = 0
    for n in range(OPENED):
        there = place / str(n)
        there.mkdir()
        reading, writing = os.pipe()
        pids = []
        for each in range(CROWD):
            if (pid := os.fork()) == 0:
                os.close(writing)
                os.read(reading, 1)  # until the parent lets all of them go at once
                with suppress(BaseException):
                    with saver(there, official) as opened:
                        opened.setup()
                        opened.put(at(f"t{each}"), checkpoint(0, {}, {}), {"source": "input"}, {})
                    os._exit(0)
                os._exit(1)
            pids.append(pid)
        os.close(reading)
        os.close(writing)
        failed += sum(os.waitpid(pid, 0)[1] != 0 for pid in pids)
    return f"{failed} of {OPENED * CROWD}" if failed else None


def half_deleted(place: Path, official: bool) -> str | None:
    """A delete that fails halfway has deleted half: the checkpoints are gone, the writes are there."""
    from standfast_prove.graphs import at, growing

    with saver(place, official) as opened:
        list(growing(opened, 3))
        if official:
            opened.conn.execute("CREATE TRIGGER no BEFORE DELETE ON writes BEGIN SELECT RAISE(ABORT, 'no'); END")
            with suppress(sqlite3.Error):
                opened.delete_thread("growing")
        else:
            from standfast import crash

            def fail(name: str) -> None:
                if name == "commit.before_commit":
                    raise RuntimeError("no")

            crash.arm(fail)
            with suppress(BaseException):
                opened.delete_thread("growing")
            crash.disarm()
    with saver(place, official) as opened:
        left = len(list(opened.list(at("growing"))))
    return None if left == 3 else f"{left} of 3 checkpoints left"


def forged(place: Path, official: bool) -> str | None:
    """An encrypting saver loads a plain row that was put there, and believes it."""
    from langgraph.checkpoint.serde.encrypted import EncryptedSerializer

    from standfast_prove.graphs import at, checkpoint
    from tests.adapters.test_langgraph import Turned

    with saver(place, official) as plain:
        plain.put(at("t"), checkpoint(0, {"v": "forged"}, {"v": 1}), {"source": "input"}, {"v": 1})
    with saver(place, official) as opened:
        opened.serde = EncryptedSerializer(Turned())
        with suppress(Exception):
            return f"read {opened.get_tuple(at('t')).checkpoint['channel_values']}"
    return None
