"""A consumer is killed in the middle of its work, and still packs every order exactly once.

Its writes and its cursor are one transaction: both are stored, or neither.

Run it: python examples/events_consumer_that_dies.py
"""

from __future__ import annotations

import os
import signal
import tempfile

import standfast


def pack(directory: str, *, dies_at: int | None) -> None:
    with standfast.open(data_dir=directory, agent="packer") as sf:
        while batch := sf.events.poll("packer", "orders", limit=2):
            with sf.transaction() as tx:
                for event in batch.events:
                    tx.tasks.add(f"pack order {event.data['id']}")
                    if event.version == dies_at:
                        # killed here: the task is written, but nothing is committed
                        os.kill(os.getpid(), signal.SIGKILL)
                tx.events.commit(batch)
            print(f"packed up to version {batch.events[-1].version}", flush=True)


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        with standfast.open(data_dir=directory) as sf:
            for n in range(1, 6):
                sf.events.append("orders", "placed", {"id": n}, key=f"order-{n}")
        for dies_at in (3, None):
            if (pid := os.fork()) == 0:
                pack(directory, dies_at=dies_at)
                os._exit(0)
            os.waitpid(pid, 0)
        with standfast.open(data_dir=directory) as sf:
            for task in sf.tasks.list():
                print(f"{task.title}: seen {task.occurrences}×")


if __name__ == "__main__":
    main()
