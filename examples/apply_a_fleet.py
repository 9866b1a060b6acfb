"""Apply a file: show the plan first, then commit it under a key. A second run does nothing twice."""

from pathlib import Path

import standfast

FILE = Path(__file__).parent / "fleet.toml"

with standfast.open() as sf:
    problems = sf.apply(FILE, mode="preflight").problems
    print(problems or "every check passes")

    applied = sf.apply(FILE, key="fleet-1", mode="commit")
    again = sf.apply(FILE, key="fleet-1", mode="commit")
    print(len(applied.refs), "entries;", "the same references" if again.refs == applied.refs else "other references")

    try:
        sf.apply({"tasks": []}, key="fleet-1", mode="commit")
    except standfast.KeyConflict:
        print("this key was used for another file")
    print([task.title for task in sf.tasks.next()])
