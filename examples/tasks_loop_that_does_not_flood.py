"""A loop checks the same systems every 15 minutes. Each problem is one task, even if it is reported many times.

Run it: python examples/tasks_loop_that_does_not_flood.py
"""

from __future__ import annotations

import standfast

WORLD = [
    ["disk /var is 91% full", "certificate expires in 6 days"],
    ["disk /var is 91% full", "certificate expires in 6 days"],
    ["disk /var is 91% full"],  # here the certificate was renewed
    ["disk /var is 91% full"],
    ["certificate expires in 6 days"],  # and rolled back by mistake
]


def main() -> None:
    with standfast.open(":memory:") as sf:
        for seen in WORLD:
            swept = sf.tasks.sweep("watch", seen=seen, absent_max=2)
            print(f"look {swept.n}: {swept.seen} seen, {len(swept.opened)} opened, {len(swept.closed)} closed")
        for task in sf.tasks.list(state="any"):
            print(f"{task.title}: episode {task.episode}, seen {task.occurrences}×, {task.state}")


if __name__ == "__main__":
    main()
