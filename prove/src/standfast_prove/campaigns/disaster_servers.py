"""A whole PostgreSQL server goes back in time: point-in-time recovery, or failover to a standby that lags.

Each disaster has its own servers. `disasters.py` has the agents and the checks.
"""

from __future__ import annotations

import random
import shutil
import time
from contextlib import ExitStack
from pathlib import Path

from standfast_prove.campaigns.disasters import Disaster
from standfast_prove.campaigns.warm import warmed
from standfast_prove.faults.children import Nursery
from standfast_prove.faults.proxy import CuttableLine
from standfast_prove.outcome import Outcome
from standfast_prove.postgres import TemporaryPostgres

TOOLS = ("PITR", "failover")
PROMOTED_S = 30.0


def run(
    place: Path,
    *,
    seed: int = 0,
    url: str | None = None,
    disasters: int = 4,
    tools: tuple[str, ...] = TOOLS,
    forgetful: bool = False,
) -> Outcome:
    """Play `disasters` disasters. `url` is the server of other campaigns, so this campaign does not touch it."""
    outcome, chance = Outcome("disasters of servers"), random.Random(f"servers {seed}")
    with Nursery(words=place / "words") as nursery:
        warmed(nursery, postgres=True)
        for number in range(disasters):
            own = place / f"disaster-{number}"
            own.mkdir()
            tool = tools[number % len(tools)]
            with ExitStack() as stack:
                store = Recovered(stack) if tool == "PITR" else Lagging(stack)
                Disaster(outcome, nursery, own, store, chance, forgetful).play(tool)
            if outcome.bad:
                break
    return outcome


class Server(TemporaryPostgres):
    """A server whose data directory can be copied and replaced while it is down."""

    @property
    def data(self) -> Path:
        return self._data

    def stop_quickly(self) -> None:
        self._shut_down()

    def start_with(self, conf: str, signal: str) -> None:
        """Start the server on existing data, as a standby or for a recovery."""
        with (self._data / "postgresql.conf").open("a") as file:
            file.write(conf)
        (self._data / signal).touch()
        self._launcher.give(self._root)
        self._start()

    def run(self, text: str) -> object:
        import psycopg

        with psycopg.connect(self.url, autocommit=True) as connection:
            row = connection.execute(text.encode()).fetchone()
            return row[0] if row else None

    def until(self, text: str) -> None:
        end = time.monotonic() + PROMOTED_S
        while not self.run(text):
            assert time.monotonic() < end, f"still not: {text}"
            time.sleep(0.02)


class Recovered:
    """PITR: a base backup is put back, and the WAL is replayed up to a named restore point."""

    def __init__(self, stack: ExitStack) -> None:
        self._server = stack.enter_context(Server("wal_level = replica"))
        self.url = self._server.url
        self._server.stop_quickly()
        self._base = self._server.data.parent / "base"
        shutil.copytree(self._server.data, self._base)
        self._server.restart()

    def save(self) -> None:
        self._server.run("SELECT pg_create_restore_point('saved')")

    def put_back(self) -> None:
        self._server.run("SELECT pg_switch_wal()")
        self._server.kill()
        data = self._server.data
        lost = data.rename(data.with_name("lost"))
        (lost / "postmaster.pid").unlink(missing_ok=True)
        self._base.rename(data)
        recovery = f"restore_command = 'cp {lost}/pg_wal/%f %p'\nrecovery_target_name = 'saved'\n"
        self._server.start_with(f"{recovery}recovery_target_action = 'promote'\n", "recovery.signal")
        self._server.until("SELECT NOT pg_is_in_recovery()")

    def lose(self) -> None:
        raise NotImplementedError("a server is recovered by its own tools")


class Lagging:
    """Asynchronous failover: the standby loses its primary, the primary continues and dies, the standby is promoted."""

    def __init__(self, stack: ExitStack) -> None:
        self._primary = stack.enter_context(Server("wal_level = replica"))
        self._standby = stack.enter_context(Server("hot_standby = on"))
        self._line = stack.enter_context(CuttableLine(self._primary.port))
        hosts = f"127.0.0.1:{self._primary.port},127.0.0.1:{self._standby.port}"
        self.url = f"postgresql://postgres@{hosts}/postgres?target_session_attrs=read-write"
        self._primary.stop_quickly()
        self._standby.stop_quickly()
        shutil.rmtree(self._standby.data)
        shutil.copytree(self._primary.data, self._standby.data)
        self._primary.restart()
        way = f"primary_conninfo = 'host=127.0.0.1 port={self._line.port} user=postgres'\n"
        self._standby.start_with(way, "standby.signal")

    def save(self) -> None:
        """Wait until the standby has everything that the primary has, then disconnect it."""
        there = self._primary.run("SELECT pg_current_wal_lsn()")
        self._standby.until(f"SELECT pg_last_wal_replay_lsn() >= '{there}'")
        self._line.break_off()

    def put_back(self) -> None:
        self._primary.kill()
        self._standby.run("SELECT pg_promote(true, 30)")
        self._standby.until("SELECT NOT pg_is_in_recovery()")

    def lose(self) -> None:
        raise NotImplementedError("a server is recovered by its own tools")
