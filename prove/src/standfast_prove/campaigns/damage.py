"""Files of a store are removed, moved, replaced, truncated or overwritten while processes use it.

Each act gets a new store. Four threads write, and then one file is damaged. From then on the engine may acknowledge
nothing: every write that begins later must raise. Other acts damage the files under an idle process, and a second
process opens the store. It must be refused, because two processes with two WAL indexes would damage the store. A
child process that is forked inside a transaction leaves it: nothing of the transaction may be stored.

Checkpoints, VACUUM and backups by another process run in between and must raise no error. The control writes without
the identity check, so that writes are acknowledged which are not in the store.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import standfast
from standfast_prove.faults import Unavailable
from standfast_prove.faults.children import Child, heard, say
from standfast_prove.faults.limits import set_limit
from standfast_prove.faults.mounts import bound
from standfast_prove.faults.rows import INSERT, inserting, integrity, keys, put
from standfast_prove.faults.threads import Task
from standfast_prove.outcome import Outcome

THREADS = 4
ORDINARY = ("checkpoint", "vacuum", "backup")

Damage = Callable[[Path], object]


def _replace(file: Path) -> None:
    shutil.copyfile(file, f"{file}.copy")
    os.replace(f"{file}.copy", file)


def _copy_over(file: Path) -> None:
    """Overwrite the file with an older copy, as `cp backup.db standfast.db` does: the inode stays the same."""
    subprocess.run(["cp", f"{file}.older", str(file)], check=True)


def _replace_directory(file: Path) -> None:
    """Rename the directory, and put a copy of its files at the old name."""
    moved = file.parent.with_name("moved")
    file.parent.rename(moved)
    shutil.copytree(moved, file.parent)


FILES = {"database": "", "WAL": "-wal", "shm": "-shm"}
LOSSES: dict[str, Damage] = {
    "rm": Path.unlink,
    "mv": lambda file: file.rename(f"{file}.moved"),
    "cp and mv over": _replace,
}
DAMAGES: dict[str, tuple[str, Damage]] = {
    f"{how} {name}": (suffix, act) for name, suffix in FILES.items() for how, act in LOSSES.items()
}
WRITING = DAMAGES | {
    "truncate database": ("", lambda file: os.truncate(file, 0)),
    "cut database": ("", lambda file: os.truncate(file, 8192)),
    "truncate WAL": ("-wal", lambda file: os.truncate(file, 0)),
    "cp over database": ("", _copy_over),
    "mv directory": ("", lambda file: file.parent.rename(file.parent.with_name("moved"))),
    "replace directory": ("", _replace_directory),
}


def run(place: Path, *, seed: int = 0, acts: int = 1000, checked: bool = True) -> Outcome:
    """Play `acts` acts, one after the other, in one child. `checked=False` is the control."""
    outcome = Outcome("damage" if checked else "damage without the identity check")
    with Child(
        "standfast_prove.campaigns.damage:play", place=str(place), seed=seed, acts=acts, checked=checked
    ) as child:
        while (line := child.hear(300)) != "end":
            what, _, sentence = line.partition("\t")
            outcome.count(what)
            outcome.refuse(sentence, what)
    _bind(outcome, place)
    return outcome


def _bind(outcome: Outcome, place: Path) -> None:
    """R5: a database file that is a mount point is refused, a mounted directory works."""
    one, two, directory = place / "one" / "standfast.db", place / "two" / "standfast.db", place / "mounted"
    for made in (two.parent, directory):
        made.mkdir()
    two.touch()
    with standfast.open(one, data_dir=place) as sf:
        put(sf, "k-before")
    try:
        with bound(one, two):
            try:
                standfast.open(two, data_dir=place).close()
                outcome.refuse("it was opened", "a database file that is a mount point")
            except standfast.UnsafeStorage:
                outcome.count("acts")
        with bound(one.parent, directory), standfast.open(directory / "standfast.db", data_dir=place) as sf:
            put(sf, "k-mounted")
            outcome.refuse(keys(sf) != ["k-before", "k-mounted"], "a mounted directory lacks rows")
            outcome.count("acts")
    except Unavailable as missing:
        outcome.count(f"not run (bind mounts): {missing}")


# -- in the child ----------------------------------------------------------------------------------------


def play(place: str, seed: int, acts: int, checked: bool) -> None:
    if not checked:
        from standfast.db.sqlite.wal import Files

        Files._check_names = lambda self: None  # type: ignore[method-assign]  # in this process only
        Files._check_contents = lambda self: None  # type: ignore[method-assign]
        Files.check_index = lambda self: None  # type: ignore[method-assign]
    chance = random.Random(seed)
    with Child("standfast_prove.campaigns.damage:visit") as visitor:
        for n in range(acts):
            directory = Path(place) / str(n) / "store"
            path = directory / "standfast.db"
            scene = chance.choices(("writing", "opening", "fork", "ordinary"), (12, 5, 1, 2))[0]
            if scene == "writing":
                what, sentence = _damage_under_writers(path, chance.choice(sorted(WRITING)))
            elif scene == "opening":
                what, sentence = _damage_before_an_opening(path, chance.choice(sorted(DAMAGES)), visitor)
            elif scene == "fork":
                what, sentence = _fork(path)
            else:
                what, sentence = _work(path, chance.choice(ORDINARY), visitor)
            say(f"acts\t{what}: {sentence}" if sentence else "acts")
            shutil.rmtree(directory.parent, ignore_errors=True)
    say("end")


def _prepared(path: Path) -> standfast.Standfast:
    """A store whose database file has pages, with an older copy beside it."""
    import apsw

    sf = standfast.open(path, data_dir=path.parent.parent)
    for name in ("k-first", "k-older"):
        put(sf, name, "x" * 5000, durable=False)
        with closing(apsw.Connection(str(path))) as other:
            other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        if name == "k-first":
            # The guard's locks survive this close. SQLite's own locks are not needed here.
            shutil.copyfile(path, f"{path}.older")
    put(sf, "k-begun")
    return sf


def _damage_under_writers(path: Path, damage: str) -> tuple[str, str]:
    sf = _prepared(path)
    engine, caller = sf.engine, sf._store.caller
    damaged, wrong = threading.Event(), []
    running = threading.Barrier(THREADS + 1)

    def write(n: int) -> None:
        for i in range(100_000):
            late = damaged.is_set()
            try:
                engine.write(inserting(f"k-{n}-{i}"), caller)
            except standfast.StandfastError:
                return
            if late:
                wrong.append(f"k-{n}-{i} was acknowledged afterwards")
                return
            if i == 1:
                running.wait()

    tasks = [Task(write, n) for n in range(THREADS)]
    running.wait()
    suffix, act = WRITING[damage]
    act(Path(f"{path}{suffix}"))
    damaged.set()
    wrong += [repr(error) for task in tasks if (error := task.done()) is not None]
    _let_go(sf)
    return damage, "; ".join(wrong[:2])


def _damage_before_an_opening(path: Path, damage: str, visitor: Child) -> tuple[str, str]:
    sf = _prepared(path)
    suffix, act = DAMAGES[damage]
    act(Path(f"{path}{suffix}"))
    visitor.tell(f"open {path}")
    answer = visitor.hear()
    _let_go(sf)
    return f"{damage}, then open", "" if answer == "files_replaced" else f"the second process: {answer}"


def _fork(path: Path) -> tuple[str, str]:
    """A child process leaves its inherited transaction, and the parent rolls back."""
    sf, status = _prepared(path), 0
    try:
        with sf.transaction():
            held = sf._store.held
            assert held is not None
            held.run(INSERT, key="k-parent", value="1")
            pid = os.fork()
            if pid:
                _, status = os.waitpid(pid, 0)
                raise ZeroDivisionError
            signal.alarm(10)
            with suppress(standfast.StorageError):
                held.run(INSERT, key="k-child", value="1")
                os._exit(3)
    except ZeroDivisionError:
        found = set(keys(sf)) & {"k-parent", "k-child"}
    except standfast.StorageError:  # the child: its commit is refused
        os._exit(0)
    else:
        os._exit(4)
    sf.close()
    damage = integrity(path)
    refused = not status and not found and damage == "ok"
    return "fork in a transaction", "" if refused else f"the child ended with {status}; {sorted(found)}, {damage}"


def _work(path: Path, what: str, visitor: Child) -> tuple[str, str]:
    """Acts that are allowed to other programs."""
    sf = _prepared(path)
    engine, stop = sf.engine, threading.Event()

    def write() -> None:
        n = 0
        while not stop.is_set():
            put(sf, f"k-{n}", "x" * 2000)
            n += 1

    task = Task(write)
    visitor.tell(f"{what} {path}")
    answer = visitor.hear()
    stop.set()
    error = task.done()
    same = sf.engine is engine
    sf.close()
    return what, "" if error is None and same and answer == "done" else f"a false alarm: {error!r} {answer}"


def _let_go(sf: standfast.Standfast) -> None:
    """Close a store that was removed or damaged. That may raise an error, but must not hang."""
    with suppress(standfast.StandfastError):
        sf.close()


def visit() -> None:
    """In another child: open stores, or work on them as other programs do."""
    import apsw

    from standfast.db.sqlite import migrate

    set_limit("REPLACED_S", 0.05)
    while order := heard():
        what, _, path = order.partition(" ")
        try:
            if what == "open":
                with standfast.open(path, data_dir=os.path.dirname(os.path.dirname(path))) as sf:
                    put(sf, "k-visitor")
                say("opened")
                continue
            with closing(apsw.Connection(path)) as connection:
                connection.set_busy_timeout(20_000)
                migrate.define_guard(connection)
                if what == "vacuum":
                    connection.execute("VACUUM")
                elif what == "backup":
                    with (
                        closing(apsw.Connection(f"{path}.backup")) as copy,
                        copy.backup("main", connection, "main") as b,
                    ):
                        b.step()
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            say("done")
        except standfast.StandfastError as error:
            say(error.code)
        except apsw.Error as error:
            say(f"{type(error).__name__}: {error}")
