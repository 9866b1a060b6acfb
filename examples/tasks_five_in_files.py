"""Five dependent tasks in plain files. Kill it anywhere and start it again: it continues with the right task.

`tasks_five_in_the_store.py` is the same workflow in the store. docs/guides/file-or-store.md compares them.
"""

from standfast import files

NEEDS = {"fetch": [], "parse": ["fetch"], "check": ["parse"], "build": ["parse"], "release": ["check", "build"]}


def work(name: str) -> None:
    """The real work goes here. It may run twice after a crash, and then gives the same result."""
    files.append("calls.tsv", {"task": name})
    with files.locked("made.json") as made:
        made[name] = " + ".join(made[need] for need in NEEDS[name]) + f" > {name}"


def ready(plan: dict[str, str]) -> str | None:
    return next((name for name in NEEDS if plan[name] == "open" and all(plan[n] == "done" for n in NEEDS[name])), None)


def main() -> None:
    if not files.read("plan.json"):
        files.write("plan.json", dict.fromkeys(NEEDS, "open"))
    while (name := ready(files.read("plan.json"))) is not None:
        work(name)
        with files.locked("plan.json") as plan:
            plan[name] = "done"
    print(f"{len(files.read('plan.json'))} tasks done, and the release is{files.read('made.json')['release']}")


if __name__ == "__main__":
    main()
