"""Programs to be killed at every crash point they pass, for the footings: writes, locks, migrations.

Each program tells an oracle outside the store what it was told itself. Whatever the schedule:
what was acknowledged is there, what belongs together is there together or not at all, and a lock
never has two live holders. The parent of a sweep never opens the store.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import apsw

import standfast
from standfast import crash
from standfast.crash import Schedule
from standfast.db.migrations import MIGRATIONS
from standfast.db.sqlite import migrate
from standfast.prove.campaigns.boot import LATER, open_once
from standfast.prove.faults.children import import_everything, say
from standfast.prove.faults.rows import Oracle, integrity, keys, noted, put


class World:
    """A store that lives through one schedule, and the oracle beside it."""

    def __init__(self, url: str, place: Path) -> None:
        self.url = url
        self.place = place
        self.oracle = place / "oracle"
        self._number = 0

    def reset(self) -> None:
        """A new schedule: the oracle is empty, the store fresh, or on a server its names are new."""
        self._number += 1
        self.oracle.unlink(missing_ok=True)
        if "://" not in self.url:
            shutil.rmtree(self.place / "store", ignore_errors=True)
            shutil.copytree(self._template(), self.place / "store")

    def _template(self) -> Path:
        """A store of today's schema, made once, in a child."""
        template = self.place / "template"
        if not template.exists():
            pid = os.fork()
            if pid == 0:
                open_once(path=str(template / "standfast.db"))
                os._exit(0)
            assert os.waitpid(pid, 0)[1] == 0
        return template

    @property
    def name(self) -> str:
        return f"k{self._number}"

    def open(self) -> standfast.Standfast:
        return standfast.open(self.url, data_dir=self.place / "data")

    def tell(self, line: str) -> None:
        told = Oracle(self.oracle)
        told.note(line)
        told.close()

    def sound(self) -> None:
        if "://" not in self.url:
            assert integrity(self.url) == "ok"


class Writes(World):
    """Three rows, then two in one transaction; afterwards one more."""

    def run(self) -> None:
        with self.open() as sf:
            for n in range(3):
                self._put(sf, f"{self.name}-{n}")
            with sf.transaction() as tx:
                for part in ("left", "right"):
                    tx.leases.acquire(f"{self.name}-{part}")
            self.tell("block")

    def recover(self) -> None:
        with self.open() as sf:
            self._put(sf, f"{self.name}-recovered-{len(keys(sf, self.name))}")

    def _put(self, sf: standfast.Standfast, key: str) -> None:
        put(sf, key)
        self.tell(key)

    def check(self, schedule: Schedule) -> None:
        with self.open() as sf:
            told, there = noted(self.oracle), keys(sf, self.name)
            assert {line for line in told if line != "block"} <= set(there)
            parts = [lease.name for lease in sf.leases.list(limit=1000) if lease.name.startswith(f"{self.name}-")]
            assert parts in ([], [f"{self.name}-left", f"{self.name}-right"]), "half a transaction"
            assert parts or "block" not in told
        self.sound()


class TooEarly(Writes):
    """The control: a program that says "acknowledged" before it was."""

    def _put(self, sf: standfast.Standfast, key: str) -> None:
        self.tell(key)
        put(sf, key)


class Locks(World):
    """A lock is held twice; whoever comes later must not wait for the dead, nor work beside the living."""

    def run(self) -> None:
        with self.open() as sf:
            for _ in range(2):
                with sf.leases.hold(self.name) as lease:
                    self._alone(lease.fence)

    recover = run

    def _alone(self, fence: int) -> None:
        for line in noted(self.oracle):
            pid, earlier, what = line.split()
            assert int(earlier) < fence or (int(earlier) == fence and int(pid) == os.getpid())
            ended = f"{pid} {earlier} end" in noted(self.oracle)
            assert what == "end" or ended or not os.path.exists(f"/proc/{pid}"), "two live holders"
        self.tell(f"{os.getpid()} {fence} begin")
        self.tell(f"{os.getpid()} {fence} end")

    def check(self, schedule: Schedule) -> None:
        begun = [int(line.split()[1]) for line in noted(self.oracle) if line.endswith("begin")]
        assert begun == sorted(set(begun)), "a fence came twice"
        with self.open() as sf:
            lease = sf.leases.get(self.name)
            assert lease.standing == "free", "the last run gave it back"
            events = sf.journal.about(f"lock:{self.name}", limit=1000)
            taken = [event.data["fence"] for event in events if event.type != "lease.released"]
            assert taken == list(range(1, lease.fence + 1)), "every taking is in the journal, once"
            assert set(begun) <= set(taken)
        self.sound()


class Migrations(World):
    """A store of an old schema is opened by a newer version, which is killed at each step."""

    def run(self) -> None:
        open_once(path=self.url, later=True)

    recover = run

    def check(self, schedule: Schedule) -> None:
        connection = apsw.Connection(self.url)
        versions = [version for (version,) in connection.execute("SELECT version FROM migration ORDER BY version")]
        assert versions == [migration.version for migration in MIGRATIONS + LATER]
        assert [connection.execute(f"SELECT a FROM later_{n}").fetchall() for n in (1, 2, 3)] == [
            [(1,)],
            [(2,)],
            [(3,)],
        ]
        assert migrate.unprotected(connection) == []
        connection.close()
        self.sound()


WORLDS: dict[str, Callable[[str, Path], World]] = {
    "writes": Writes,
    "too early": TooEarly,
    "locks": Locks,
    "migrations": Migrations,
}


def sweep(world: str, place: str, url: str | None = None, schedules: int = 60, seed: int = 0) -> None:
    """In a child: kill at every point, say how many schedules were played."""
    import_everything(postgres=url is not None)
    made = WORLDS[world](url or os.path.join(place, "store", "standfast.db"), Path(place))
    program: tuple[Callable[[], None], Callable[[], None], Callable[[Schedule], None]]
    program = (made.run, made.recover, made.check)  # type: ignore[attr-defined]
    say(crash.sweep(*program, reset=made.reset, max_schedules=schedules, seed=seed))
