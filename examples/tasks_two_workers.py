"""Two workers share a queue. Each task goes to one of them, and the tasks of a dead worker go to the other.

Run it: python examples/tasks_two_workers.py
"""

from __future__ import annotations

import os
import signal
import tempfile

import standfast


def worker(directory: str, name: str, *, dies: bool) -> None:
    with standfast.open(data_dir=directory, agent=name) as sf:
        while task := sf.tasks.claim():
            print(f"{name} works on {task.title!r} (fence {task.fence})", flush=True)
            if dies:
                os.kill(os.getpid(), signal.SIGKILL)  # while it holds the task
            sf.tasks.done(task, result=f"by {name}")


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        with standfast.open(data_dir=directory) as sf:
            schema = sf.tasks.add("write the schema", priority=1)
            sf.tasks.add("write the docs", needs=[schema])
            sf.tasks.add("fix the flaky test", priority=0)
        for name, dies in (("ann", True), ("bob", False)):
            if (pid := os.fork()) == 0:
                worker(directory, name, dies=dies)
                os._exit(0)
            os.waitpid(pid, 0)
        with standfast.open(data_dir=directory) as sf:
            for task in reversed(sf.tasks.list(state="any")):
                print(f"{task.title}: {task.state}, {task.result}, fence {task.fence}")


if __name__ == "__main__":
    main()
