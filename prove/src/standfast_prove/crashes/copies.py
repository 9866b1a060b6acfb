"""Copies: after any kill each copy that has a manifest is complete, and each copy that was reported as taken is there.

The oracle is a file outside the store and outside the copies. It lists the reported copies, the copies to forget, and
the tasks that were acknowledged before each copy.
"""

from __future__ import annotations

import shutil

from standfast.admin.copies import check
from standfast.admin.copies.places import CopyPlace, opened
from standfast.admin.copies.resource import chosen, listed, read
from standfast.admin.copies.restore import restore
from standfast.config.target import Target
from standfast.core.progress import quiet
from standfast.crash import Schedule
from standfast_prove.crashes.world import World


class Copies(World):
    """Stores an artifact and a task and takes two copies. Then it forgets the older copy and restores the newer one."""

    @property
    def to(self) -> str:
        return str(self.now / "copies")

    def copies(self, store_id: str) -> CopyPlace:
        return opened(self.to).of(store_id)

    def live(self) -> None:
        with self.open() as sf:
            sf.artifacts.put(f"bytes of {self.name}".encode(), name=self.name)
            for n in range(2):
                task = sf.tasks.add(f"task {self.name} {n}")
                self.tell(f"task {task.id}")
                copy = sf.copies.take(to=self.to)
                self.tell(f"copy {copy.id}")
            plan = sf.copies.plan(rule="1h", place=self.to)
            for copy_id in plan.forget:
                self.tell(f"forget {copy_id}")
            sf.copies.forget(plan, place=self.to)
            place = self.copies(sf.engine.store_id)
        look = self.now / "look"
        if not (look / "standfast.db").exists():
            newest = chosen(listed(place), None, self.to)
            restore(read(place, newest.id), place, Target("sqlite", str(look)), quiet)
        self.tell("restored")

    def check(self, schedule: Schedule) -> None:
        lines = [line.split() for line in self.lines()]
        with self.open() as sf:
            store_id = sf.engine.store_id
        place = self.copies(store_id)
        found = listed(place)
        assert [copy.id for copy in found if copy.damage] == [], f"{schedule}: a manifest is damaged"
        kept = {words[1] for words in lines if words[0] == "copy"} - {
            words[1] for words in lines if words[0] == "forget"
        }
        assert kept <= {copy.id for copy in found}, f"{schedule}: a copy that was reported is not there"
        tasks: set[str] = set()
        acknowledged = {}  # the tasks that were acknowledged before each copy
        for words in lines:
            if words[0] == "task":
                tasks = tasks | {words[1]}
            elif words[0] == "copy":
                acknowledged[words[1]] = tasks
        for copy in found:
            manifest = read(place, copy.id)
            check.verify(manifest, place, quiet)
            look = self.now / "checked"
            restore(manifest, place, Target("sqlite", str(look)), quiet)
            assert acknowledged.get(copy.id, set()) <= _tasks(look), f"{schedule}: {copy.id} lacks an acknowledged row"
            shutil.rmtree(look)
        assert (self.now / "look" / "standfast.db").exists()
        assert _tasks(self.now / "look")
        self.sound()


def _tasks(directory: object) -> set[str]:
    """Reads a restored file with stock sqlite3. This process must not have the file open otherwise."""
    import apsw

    connection = apsw.Connection(f"{directory}/standfast.db", flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return {row[0] for row in connection.execute("SELECT id FROM task")}
    finally:
        connection.close()
