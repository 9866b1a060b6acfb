"""The core: writes, locks, migrations.

Each program writes every answer it gets to an oracle outside the store. In every schedule the acknowledged rows are
there, and rows of one transaction are there together or not at all. A lock never has two live holders. The parent of a
sweep never opens the store.
"""

from __future__ import annotations

import os
from typing import ClassVar

import apsw

import standfast
from standfast.crash import Schedule
from standfast.db.migrations import MIGRATIONS
from standfast.db.sqlite import migrate
from standfast_prove.campaigns.boot import LATER, open_once
from standfast_prove.crashes.world import World
from standfast_prove.faults.rows import keys, noted, put


class Writes(World):
    """Writes three rows, then two in one transaction. The next process writes one more."""

    def live(self) -> None:
        with self.open() as sf:
            for n in range(3):
                self._put(sf, f"{self.name}-{n}")
            with sf.transaction() as tx:
                for part in ("left", "right"):
                    tx.leases.acquire(f"{self.name}-{part}")
            self.tell("block")

    def recover(self) -> None:
        with self.open() as sf:
            self._put(sf, f"{self.name}-recovered-{len(self.there(sf))}")

    def there(self, sf: standfast.Standfast) -> list[str]:
        return keys(sf, f"{self.name}-")

    def _put(self, sf: standfast.Standfast, key: str) -> None:
        put(sf, key)
        self.tell(key)

    def check(self, schedule: Schedule) -> None:
        with self.open() as sf:
            acked, there = noted(self.oracle), self.there(sf)
            assert {line for line in acked if line != "block"} <= set(there)
            parts = [lease.name for lease in sf.leases.list(limit=1000) if lease.name.startswith(f"{self.name}-")]
            assert parts in ([], [f"{self.name}-left", f"{self.name}-right"]), "half a transaction"
            assert parts or "block" not in acked
        self.sound()


class TooEarly(Writes):
    """The control: a program that notes the acknowledgement before the commit."""

    def _put(self, sf: standfast.Standfast, key: str) -> None:
        self.tell(key)
        put(sf, key)


class Locks(World):
    """Two processes take one lock. The second must neither wait for a dead holder nor work beside a live one."""

    def live(self) -> None:
        with self.open() as sf:
            for _ in range(2):
                with sf.leases.hold(self.name) as lease:
                    self._alone(lease.fence)

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

    on_a_server: ClassVar[bool] = False

    def live(self) -> None:
        open_once(path=self.url, later=True)

    def warm(self) -> None:
        """Do nothing: a process that has loaded the future schema would keep it."""
        self.make()
        self._made()

    def check(self, schedule: Schedule) -> None:
        connection = apsw.Connection(self.url)
        versions = [version for (version,) in connection.execute("SELECT version FROM migration ORDER BY version")]
        assert versions == [migration.version for migration in MIGRATIONS + LATER]
        kept = "SELECT a FROM later_1 UNION ALL SELECT a FROM later_2 UNION ALL SELECT a FROM later_3"
        assert connection.execute(kept).fetchall() == [(1,), (2,), (3,)]
        assert migrate.unprotected(connection) == []
        connection.close()
        self.sound()
