"""Five dependent tasks in the store. Kill it anywhere and start it again: it continues with the right task.

`tasks_five_in_files.py` is the same workflow in plain files. docs/guides/file-or-store.md compares them.
"""

import standfast
from standfast import files

NEEDS = {"fetch": [], "parse": ["fetch"], "check": ["parse"], "build": ["parse"], "release": ["check", "build"]}


def work(name: str) -> None:
    """The real work goes here. It may run twice after a crash, and then gives the same result."""
    files.append("calls.tsv", {"task": name})
    with files.locked("made.json") as made:
        made[name] = " + ".join(made[need] for need in NEEDS[name]) + f" > {name}"


def plan(sf: standfast.Standfast) -> None:
    """All five tasks, or none: they are one transaction."""
    with sf.transaction() as tx:
        ids: dict[str, str] = {}
        for name, needs in NEEDS.items():
            made = tx.tasks.add(name, fingerprint=f"five:{name}", labels=["five"], needs=[ids[need] for need in needs])
            ids[name] = made.id


def main() -> None:
    with standfast.open(scope="five-tasks") as sf:
        if not sf.tasks.list(label="five", state="any"):
            plan(sf)
        while (task := sf.tasks.claim(label="five")) is not None:
            work(task.title)
            sf.tasks.done(task)
        done = sf.tasks.list(label="five", state="closed")
        print(f"{len(done)} tasks done, and the release is{files.read('made.json')['release']}")


if __name__ == "__main__":
    main()
