"""Files of a store are removed, moved, replaced, truncated and mounted over while four processes write.

Other acts change file modes, change the schema with a stock client, or fill the disk until the new process has looked.

Each act has a new store. Four processes write rows, send effects and renew leases, whose errors they ignore, as the
renewing thread does. A fifth writes to another store. In every second pass through the acts no effects are sent, so
the host's memory of its stores knows no sequence number. Then one act happens, and one more process starts to write.
Each process continues until it has got several answers. Then all are killed, and a new process opens the store,
repeats every effect and lists the rows.

The oracle is outside the store: each process appends every answer to a file, with fsync, and each effect
appends its key to a second file. What must hold:

- A row whose write began after the act and was acknowledged is in the store that the new process opens.
- If rows from before the act are gone, each process that wrote them gets an error before its next
  acknowledgement.
- No effect is sent twice, also by a process that starts after the act and finds the store without its newest rows, or
  another store in its place.
- Each acknowledged receipt verifies in the new process if and only if its row is there. Otherwise `verify` names the
  row as lost, or the store refuses to open with its reason.
- The fifth process gets no error and loses no row. Acts that change nothing for a writer (a fork, the directory
  mounted at a second path) cause no error.
- No process hangs. The file is sound, unless a process got an error.

In the control the processes open a new handle after every error, and the host does not remember its stores.

`ordinary` shows false alarms: the same writers run beside the normal work of a healthy machine. Another SQLite
checkpoints, vacuums and takes backups, a daemon runs, and processes start and exit. No call may raise an error.
"""

from __future__ import annotations

import ctypes
import faulthandler
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from standfast.db.contract import Tx
from standfast_prove.faults import Unavailable, mounts
from standfast_prove.faults.children import Nursery, die_with_parent
from standfast_prove.faults.rows import INSERT, Oracle, integrity, keys, noted, put
from standfast_prove.outcome import Outcome

SELF = "standfast_prove.campaigns.vandal"
WRITERS = 4
EFFECTS = 8
EFFECT_EVERY = 4
PATIENCE_S = 120.0
"""A write waits up to 30 s for its turn, and the first after `rm` takes a copy: a process silent for longer hangs."""
ANSWERS = 6
"""The number of answers that each process waits for after the act."""
PAUSE_S = 0.002


class Scene(NamedTuple):
    """The files and processes that an act works on."""

    place: Path
    directory: Path
    path: Path
    other: Path
    """A closed store with another id."""
    older: Path
    """The file as it was before the first write of this round."""
    writers: list[int]
    chance: random.Random
    undo: ExitStack
    """Changes to undo before the new process reads the store."""


Act = Callable[[Scene], None]


def _remove_all(scene: Scene) -> None:
    # Writers may create a file during the removal, as during any `rm -rf`.
    while scene.directory.exists():
        shutil.rmtree(scene.directory, ignore_errors=True)


def _unlink(suffix: str) -> Act:
    def act(scene: Scene) -> None:
        Path(f"{scene.path}{suffix}").unlink(missing_ok=True)

    return act


def _move_file(scene: Scene) -> None:
    scene.path.rename(scene.place / "moved.db")


def _move_directory(scene: Scene) -> None:
    scene.directory.rename(scene.place / "moved")


def _move_and_back(scene: Scene) -> None:
    scene.directory.rename(scene.place / "moved")
    time.sleep(scene.chance.choice((0.0, 0.001, 0.02)))
    if scene.directory.exists():  # a writer created the file again: the judge sees that later
        shutil.rmtree(scene.directory)
    (scene.place / "moved").rename(scene.directory)


def _copy_over(scene: Scene) -> None:
    """Overwrites the file as `cp other.db standfast.db` does: the inode stays, the bytes change."""
    shutil.copyfile(scene.other, scene.path)


def _copy_older(scene: Scene) -> None:
    shutil.copyfile(scene.older, scene.path)


def _replace(scene: Scene) -> None:
    """Replace the store, with all its files, by another store, as a careful person would."""
    shutil.copyfile(scene.other, scene.place / "new.db")
    os.replace(scene.place / "new.db", scene.path)
    for suffix in ("-wal", "-shm"):
        Path(f"{scene.path}{suffix}").unlink(missing_ok=True)


def _truncate(share: float, suffix: str = "") -> Act:
    def act(scene: Scene) -> None:
        path = f"{scene.path}{suffix}"
        os.truncate(path, int(os.stat(path).st_size * share))

    return act


def _mount(scene: Scene, source: Path, point: Path) -> None:
    subprocess.run(["mount", "--bind", str(source), str(point)], check=True, capture_output=True)
    scene.undo.callback(subprocess.run, ["umount", "-l", str(point)], capture_output=True)


def _mount_file(scene: Scene) -> None:
    """Mount the database file alone, without its WAL, at a second path. A process writes there."""
    second = scene.place / "second"
    second.mkdir()
    (second / scene.path.name).touch()
    _mount(scene, scene.path, second / scene.path.name)


def _mount_directory(scene: Scene) -> None:
    """Mount the whole directory at a second path. No process may notice it."""
    (scene.place / "second").mkdir()
    _mount(scene, scene.directory, scene.place / "second")


def _mount_over(scene: Scene) -> None:
    """Mount an empty directory over the store."""
    (scene.place / "empty").mkdir()
    _mount(scene, scene.place / "empty", scene.directory)


def _chmod(suffix: str) -> Act:
    """Remove the file's modes: no process that starts now can open it. Processes that have it open continue."""

    def act(scene: Scene) -> None:
        path = f"{scene.path}{suffix}"
        os.chmod(path, 0)
        scene.undo.callback(os.chmod, path, 0o600)

    return act


def _chmod_directory(scene: Scene) -> None:
    """Make the directory read-only: no process can create a file in it."""
    os.chmod(scene.directory, 0o500)
    scene.undo.callback(os.chmod, scene.directory, 0o700)


def _ddl(*statements: str) -> Act:
    """Change the schema with a stock client, which waits for SQLite's lock as usual."""

    def act(scene: Scene) -> None:
        code = (
            "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=20, isolation_level=None).execute(sys.argv[2])"
        )
        words = [sys.executable, "-P", "-c", code, str(scene.path), scene.chance.choice(statements)]
        subprocess.run(words, check=True, capture_output=True)

    return act


def _fill(scene: Scene) -> None:
    """Fill the disk until not one more byte fits."""
    full = scene.directory / "full"
    with open(full, "wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(4096)):
            pass
    scene.undo.callback(full.unlink)


def _fork(scene: Scene) -> None:
    for pid in scene.writers:
        os.kill(pid, signal.SIGUSR1)


ACTS: dict[str, Act] = {
    "rm": _remove_all,
    "unlink db": _unlink(""),
    "unlink wal": _unlink("-wal"),
    "unlink shm": _unlink("-shm"),
    "unlink lock": _unlink(".lock"),
    "unlink bell": _unlink(".bell"),
    "mv db": _move_file,
    "mv directory": _move_directory,
    "mv and back": _move_and_back,
    "cp over": _copy_over,
    "cp older": _copy_older,
    "replace": _replace,
    "truncate": _truncate(0.0),
    "truncate half": _truncate(0.5),
    "truncate wal": _truncate(0.0, "-wal"),
    "chmod db": _chmod(""),
    "chmod wal": _chmod("-wal"),
    "chmod directory": _chmod_directory,
    "drop table": _ddl(*(f"DROP TABLE {table}" for table in ("event", "effect", "session", "meta", "task"))),
    "alter table": _ddl(
        "ALTER TABLE effect ADD COLUMN extra TEXT",
        "ALTER TABLE event RENAME COLUMN summary TO said",
        "ALTER TABLE session RENAME TO sessions",
        "DROP INDEX effect_unresolved",
        "CREATE TABLE foreign_rows (id INTEGER)",
    ),
    "fork": _fork,
}
FULL = "full disk"
MOUNTS: dict[str, Act] = {
    "mount file": _mount_file,
    "mount directory": _mount_directory,
    "mount over": _mount_over,
    FULL: _fill,
}
DISK_SIZE = "24m"
"""The size of the file system that is filled."""
HARMLESS = frozenset({"fork", "mount directory", "unlink bell"})


def run(place: Path, *, seed: int = 0, acts: int = 60, kinds: tuple[str, ...] = (), careless: bool = False) -> Outcome:
    """Play `acts` acts, each on its own store. The seed chooses their order and times."""
    chance, outcome = random.Random(seed), Outcome("vandal, unpinned" if careless else "vandal")
    known = {**ACTS, **(MOUNTS if _can_mount(place, outcome) else {})}
    names = [name for name in known if not kinds or name in kinds]
    if not names:
        raise Unavailable(f"{', '.join(kinds)}: mounting needs root")
    chance.shuffle(names)
    with Nursery(words=place / "words") as nursery:
        made = _made(nursery, place)
        for n in range(acts):
            directory = place / f"act{n}"
            directory.mkdir()
            effects = n // len(names) % 2 == 0
            _Round(nursery, directory, made, names[n % len(names)], chance, outcome, careless, effects).play(known)
            shutil.rmtree(directory, ignore_errors=True)
            if outcome.bad and not kinds:
                break
    return outcome


class _Made(NamedTuple):
    """Closed stores with one row and an empty WAL. Each round uses copies of them."""

    store: Path
    beside: Path
    other: Path


def _made(nursery: Nursery, place: Path) -> _Made:
    made = _Made(*(place / name / "standfast.db" for name in _Made._fields))
    given = {"home": str(place / "home"), "outbox": str(place / "made.box"), "careless": True}
    for path in made:
        assert nursery.wait(nursery.start(f"{SELF}:prepare", path=str(path), **given)) == 0
    # Modules that the first process loads are shared with its forks.
    answer, copy = place / "warm.json", place / "warm" / "standfast.db"
    copy.parent.mkdir()
    shutil.copyfile(made.store, copy)
    assert nursery.wait(nursery.start(f"{SELF}:look", path=str(copy), answer=str(answer), **given)) == 0
    nursery.load(json.loads(answer.read_text())["modules"])
    return made


def _can_mount(place: Path, outcome: Outcome) -> bool:
    """Whether this process can mount. If not (an unprivileged container), the outcome reports that."""
    source, point = place / "mount-source", place / "mount-point"
    source.mkdir()
    point.mkdir()
    done = subprocess.run(["mount", "--bind", str(source), str(point)], capture_output=True, text=True)
    if done.returncode == 0:
        subprocess.run(["umount", str(point)], check=True)
        return True
    outcome.count("ACTS WITH MOUNTS NOT SHOWN: they need root")
    return False


class _Round:
    """One store, one act, and the check of the result."""

    def __init__(
        self,
        nursery: Nursery,
        place: Path,
        made: _Made,
        name: str,
        chance: random.Random,
        outcome: Outcome,
        careless: bool,
        effects: bool,
    ) -> None:
        self._nursery, self._place, self._made, self._name = nursery, place, made, name
        self._chance, self._outcome, self._careless = chance, outcome, careless
        self._effects = effects
        self._directory = place / "store"
        self._path = self._directory / "standfast.db"
        self._beside = place / "beside" / "standfast.db"
        self._given = {"home": str(place / "home"), "outbox": str(place / "outbox"), "careless": careless}

    def play(self, known: dict[str, Act]) -> None:
        with ExitStack() as stack:
            self._play(known, stack)

    def _play(self, known: dict[str, Act], stack: ExitStack) -> None:
        (self._place / "home").mkdir()
        for made, path in ((self._made.store, self._path), (self._made.beside, self._beside)):
            path.parent.mkdir()
            if self._name == FULL and path == self._path:
                stack.enter_context(mounts.memory(path.parent, size=DISK_SIZE))
            shutil.copyfile(made, path)
        writers = [self._start(f"w{n}", self._path) for n in range(WRITERS)]
        beside = self._start("beside", self._beside)
        names = [f"w{n}" for n in range(WRITERS)] + ["beside"]
        with ExitStack() as undo:
            if not self._hear(names, {name: self._chance.randint(2, 10) for name in names}, "before the act"):
                return
            scene = Scene(
                self._place,
                self._directory,
                self._path,
                self._made.other,
                self._made.store,
                writers,
                self._chance,
                undo,
            )
            began_ns = time.monotonic_ns()
            known[self._name](scene)
            ended_ns = time.monotonic_ns()
            second = self._place / "second" / self._path.name
            writers.append(self._start("late", second if second.exists() else self._path))
            names.append("late")
            self._outcome.count("acts")
            self._hear(names, {name: len(self._lines(name)) + ANSWERS for name in names}, "after the act")
            if self._name == FULL:
                # Until the database must grow, writes fit into the frames of the WAL that were checkpointed.
                self._wait(lambda: [] if self._failed(names[:WRITERS]) else names, "without an error on a full disk")
            for pid in [*writers, beside]:
                self._nursery.kill(pid)
        self._judge(names, began_ns, ended_ns)

    def _start(self, name: str, path: Path) -> int:
        return self._nursery.start(
            f"{SELF}:write",
            path=str(path),
            oracle=str(self._place / f"answers.{name}"),
            name=name,
            effects=self._effects and name != "beside",
            **self._given,
        )

    def _lines(self, name: str) -> list[str]:
        """The answers that callers got. Errors of renewals are left out, because no caller gets them."""
        return [line for line in noted(self._place / f"answers.{name}") if not line.startswith("beat")]

    def _hear(self, names: list[str], wanted: dict[str, int], when: str) -> bool:
        """Wait until each process has got this number of answers."""
        return self._wait(lambda: [name for name in names if len(self._lines(name)) < wanted[name]], when)

    def _failed(self, names: list[str]) -> bool:
        return any(line.startswith("err") for name in names for line in self._lines(name))

    def _wait(self, missing: Callable[[], list[str]], when: str) -> bool:
        end = time.monotonic() + PATIENCE_S
        while silent := missing():
            if time.monotonic() > end:
                self._refuse(silent, f"hung {when}: {(self._place.parent / 'words').read_text()[-400:]}")
                return False
            time.sleep(0.005)
        return True

    def _judge(self, names: list[str], began_ns: int, ended_ns: int) -> None:
        answers = {name: _whole(self._lines(name)) for name in names}
        before = noted(self._place / "outbox")
        ours = [line for name in names if name != "beside" for line in answers[name]]
        receipts = {line.what: line.receipt for line in ours if line.kind == "ack"}
        (self._place / "receipts").write_text(json.dumps(receipts))
        left = self._look(self._path)
        there = set(left["keys"])
        self._judge_receipts(set(receipts), there, left)
        errors = lost = 0
        for name in [name for name in names if name != "beside"]:
            after = [line for line in answers[name] if int(line.began_ns) > ended_ns]
            acknowledged = [line.what for line in answers[name] if line.kind == "ack"]
            failed = [line for line in answers[name] if line.kind == "err" and int(line.ended_ns) > began_ns]
            errors += len(failed)
            missing = [line.what for line in after if line.kind == "ack" and line.what not in there]
            self._refuse(missing, f"{len(missing)} rows were acknowledged after the act and are gone ({name})")
            gone = set(acknowledged) - there - set(missing)
            until = answers[name].index(after[0]) + 1 if after else 0
            warned = any(line in failed for line in answers[name][:until])
            quiet = bool(gone) and bool(after) and not warned
            self._refuse(quiet and len(gone), f"rows from before the act are gone, and {name} got no error")
            lost += len(missing) + (len(gone) if quiet else 0)
            if self._name in HARMLESS:
                self._refuse([line.what for line in failed], f"a false alarm ({name})")
        lasting = Counter(line.partition(" ")[0] for line in before if not line.endswith((" late", " new")))
        everything = Counter(line.partition(" ")[0] for line in noted(self._place / "outbox"))
        twice = {key: n for key, n in lasting.items() if n > 1}
        self._refuse(twice, "effects were sent twice")
        again = {key: n for key, n in everything.items() if n > 1 and key not in twice}
        self._refuse(again, f"effects were sent twice, by a new process (it opened {left['opened']})")
        self._refuse(left["state"] not in ("ok", "") and not errors, f"damaged without an error: {left['state']}")
        self._judge_beside(answers["beside"])
        self._outcome.count(
            "rows acknowledged", sum(line.kind == "ack" for lines in answers.values() for line in lines)
        )
        self._outcome.count("errors", errors)
        self._outcome.count("effects sent", len(before))
        self._outcome.count("acknowledged rows lost without an error", lost)
        self._outcome.count("effects sent twice", len(twice) + len(again))

    def _judge_receipts(self, acknowledged: set[str], there: set[str], left: dict[str, Any]) -> None:
        """A row and its receipt are written in one transaction. `verify` must name each missing row, or the store must
        refuse to open.
        """
        verified, named = set(left["verified"]), left["lost"]
        self._refuse(sorted(verified - there)[:5], "receipts verify although their rows are gone")
        self._refuse(sorted(there & set(named))[:5], "rows are there, and their receipts do not verify")
        unnamed = acknowledged - verified - set(named)
        self._refuse(not left["refused"] and sorted(unnamed)[:5], "receipts that neither verify nor are named as lost")
        self._outcome.count("receipts verified", len(verified))
        self._outcome.count("receipts named as lost", len(named))
        self._outcome.count("receipts of a store that refused to open", len(unnamed))

    def _judge_beside(self, lines: list[_Line]) -> None:
        there = set(self._look(self._beside)["keys"])
        missing = [line.what for line in lines if line.kind == "ack" and line.what not in there]
        failed = [line.what for line in lines if line.kind == "err"]
        self._refuse(missing, "the other store lost rows")
        self._refuse(failed, "the process on the other store got an error")
        self._outcome.count("unaffected callers hurt", bool(missing) + bool(failed))

    def _look(self, path: Path) -> dict[str, Any]:
        """The rows and errors that a new process finds."""
        answer = self._place / "answer.json"
        answer.unlink(missing_ok=True)
        pid = self._nursery.start(f"{SELF}:look", path=str(path), answer=str(answer), **self._given)
        code = self._nursery.wait(pid, PATIENCE_S)
        if code != 0:
            words = (self._place.parent / "words").read_text()[-600:]
            self._refuse(True, f"the new process ended with {code}: {words}")
            return NOTHING
        found: dict[str, Any] = json.loads(answer.read_text())
        return found

    def _refuse(self, wrong: object, sentence: str) -> None:
        self._outcome.refuse(wrong, f"{self._name}: {sentence}")


class _Line(NamedTuple):
    """One answer, and when its call began and ended.

    `ack KEY` for a row, `eff KEY` for an effect, `err CODE` for an error, `beat CODE` for the error of a renewal.
    """

    kind: str
    what: str
    began_ns: str
    ended_ns: str
    receipt: str = ""


_WHOLE = re.compile(r"(ack|eff|err|beat) (\S+) (\d+) (\d+)(?: (\S+:\S+))?")


def _whole(lines: list[str]) -> list[_Line]:
    """The lines without those that a kill cut."""
    found = [_WHOLE.fullmatch(line) for line in lines]
    return [_Line(*(one[n] or "" for n in range(1, 6))) for one in found if one and int(one[3]) <= int(one[4])]


NOTHING: dict[str, Any] = {"keys": [], "state": "", "opened": "", "refused": "", "verified": [], "lost": {}}
"""The findings of `look` for a store that does not open."""


# -- in the children -----------------------------------------------------------------------------------


class _Synced(Oracle):
    """An oracle that syncs each line before the next call, so that it never has less than the store."""

    def note(self, line: str) -> None:
        super().note(f"\n{line}")  # a fork of a killed writer must not add to a line that the kill cut
        os.fsync(self._fd)


def _settle_in(home: str, *, careless: bool) -> None:
    """Let the host remember these stores, although the campaign runs in a temporary directory."""
    from standfast.db import store_memory

    _obey_modes()
    os.environ["HOME"] = home
    for name in ("STANDFAST_REMEMBER", "XDG_STATE_HOME", "TMPDIR"):
        os.environ.pop(name, None)
    store_memory.TEMPORARY = ()  # in this process only: the product has no such switch
    if careless:
        os.environ["STANDFAST_REMEMBER"] = "0"


def _obey_modes() -> None:
    """The mode of a file counts for this process, as for any ordinary account: root gives up CAP_DAC_OVERRIDE."""
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # _LINUX_CAPABILITY_VERSION_3, this process
    sets = (ctypes.c_uint32 * 6)()
    if os.geteuid() == 0 and libc.capget(header, sets) == 0:
        for n in range(3):  # effective, permitted and inheritable: bits 1 and 2 are DAC_OVERRIDE, DAC_READ_SEARCH
            sets[n] &= ~0b110
        assert libc.capset(header, sets) == 0, os.strerror(ctypes.get_errno())


def prepare(*, path: str, home: str, outbox: str, careless: bool) -> None:
    """Make a store with one row, which is in the database file and not in the WAL."""
    import standfast
    from standfast_prove.faults.rows import checkpoint

    _settle_in(home, careless=careless)
    with standfast.open(path, data_dir=os.path.dirname(path)) as sf:
        put(sf, "k-first")
    checkpoint(path)


def write(*, path: str, oracle: str, name: str, home: str, outbox: str, careless: bool, effects: bool = True) -> None:
    """Write rows and send effects, and note every answer."""
    import standfast
    from standfast.core import leases

    _settle_in(home, careless=careless)
    answers, box = _Synced(oracle), _Synced(outbox)
    forks: list[int] = []
    signal.signal(signal.SIGUSR1, lambda *_: forks.append(1))

    def opened() -> standfast.Standfast:
        """Open the store, with retries: a process that starts after the act may be refused."""
        while True:
            try:
                return standfast.open(path, data_dir=os.path.dirname(path))
            except standfast.StorageError as error:
                answers.note(f"err {error.code} {time.monotonic_ns()} {time.monotonic_ns()}")
                time.sleep(PAUSE_S)

    sf = opened()

    def attempt(kind: str, what: str, call: Callable[[], object]) -> None:
        nonlocal sf
        began_ns = time.monotonic_ns()
        try:
            receipt = call()
            answers.note(f"{kind} {what} {began_ns} {time.monotonic_ns()} {receipt or ''}".rstrip())
        except standfast.StorageError as error:
            answers.note(f"err {error.code} {began_ns} {time.monotonic_ns()}")
            time.sleep(PAUSE_S)
            if careless:
                sf = opened()
        except standfast.StandfastError:
            pass  # another process is at this effect, or it is in doubt

    for own in count(1):
        key, n = f"k-{name}-{os.getpid()}-{own}", own // EFFECT_EVERY % EFFECTS
        try:
            leases.renewer(sf._store).renew()
        except standfast.StorageError as error:
            answers.note(f"beat {error.code} {time.monotonic_ns()} {time.monotonic_ns()}")
        attempt("ack", key, partial(record, sf, key))
        if effects and own % EFFECT_EVERY == 0:
            attempt("eff", f"e{n}", partial(send, sf, name, n, box))
        if forks:
            forks.clear()
            _fork_here()
        time.sleep(PAUSE_S / 4)


def _fork_here() -> None:
    """Fork. Both processes continue with the same handle. The child ends with its parent."""
    parent = os.getpid()
    if os.fork() == 0:
        die_with_parent()
        if os.getppid() != parent:  # the process was killed before this line
            os._exit(0)


def record(sf: Any, key: str) -> str:
    """Write one row with its journal row, as every method does. Returns the receipt."""
    from standfast.core import journal

    def body(tx: Tx) -> Any:
        tx.run(INSERT, key=key, value="1")
        return journal.append(tx, "row.put", key)

    receipt = sf._store.write(body)
    return f"{receipt.seq}:{receipt.hash}"


def send(sf: Any, name: str, n: int, box: Oracle) -> None:
    """Every process sends the same effects, so one of them sends each."""
    with sf.session(f"{name}-{os.getpid()}") as session:
        session.effect("send", {"n": n}, key=f"e{n}", do=lambda call: box.note(f"e{n} {name}"))


def look(*, path: str, answer: str, home: str, outbox: str, careless: bool) -> None:
    """In a new process: list the rows, check the file, and call every effect again."""
    import standfast

    _settle_in(home, careless=careless)
    faulthandler.dump_traceback_later(PATIENCE_S - 5)  # a hang is reported with its stack
    found = {**NOTHING, "verified": [], "lost": {}}
    try:
        with standfast.open(path, data_dir=os.path.dirname(path)) as sf:
            found["opened"] = sf.engine.store_id
            found["keys"] = keys(sf)
            if "beside" not in path:
                _verify(sf, Path(answer).with_name("receipts"), found)
                for n in range(EFFECTS):
                    with suppress(standfast.StandfastError):
                        send(sf, "new", n, _Synced(outbox))
        found["state"] = integrity(path)
    except standfast.StandfastError as error:
        found["opened"] = found["refused"] = error.code
    except Exception as error:  # noqa: BLE001  a damaged file is judged by the answers of the others
        found["state"] = f"{type(error).__name__}: {error}"
    Path(answer).write_text(json.dumps({**found, "modules": sorted(sys.modules)}))


def _verify(sf: Any, receipts: Path, found: dict[str, Any]) -> None:
    """Verify each receipt that a writer got. Otherwise the error must name the lost row."""
    import standfast

    for key, receipt in json.loads(receipts.read_text()).items() if receipts.exists() else ():
        try:
            sf.journal.verify(receipt)
            found["verified"].append(key)
        except standfast.NotFound as error:
            if f"no row {receipt.partition(':')[0]}" in error.message:
                found["lost"][key] = error.code
        except standfast.Corrupt as error:
            if error.code != "receipt_mismatch":
                raise
            found["lost"][key] = error.code


# -- ordinary work ---------------------------------------------------------------------------------------

VISITS = {
    "checkpoint": "c.execute('PRAGMA wal_checkpoint(TRUNCATE)').fetchall()",
    "passive checkpoint": "c.execute('PRAGMA wal_checkpoint(PASSIVE)').fetchall()",
    "backup": "b = sqlite3.connect(sys.argv[2]); c.backup(b); b.close()",
    "vacuum": "c.execute('VACUUM')",
    "read": "c.execute('SELECT count(*) FROM event').fetchall()",
}
"""Run in its own process: ordinary work of another program on the file, with another SQLite."""


def ordinary(place: Path, *, seed: int = 0, seconds: float = 60) -> Outcome:
    """Writers run beside the normal work of a healthy machine, and every error is a false alarm."""
    chance, outcome = random.Random(seed), Outcome("vandal, ordinary work")
    path = place / "store" / "standfast.db"
    given = {"home": str(place / "home"), "outbox": str(place / "outbox"), "careless": False}
    (place / "home").mkdir()
    with Nursery(words=place / "words") as nursery, ExitStack() as stack:
        code = nursery.wait(nursery.start(f"{SELF}:prepare", path=str(path), **given))
        assert code == 0, (place / "words").read_text()[-600:]
        stack.enter_context(_daemon(path, place))
        names = [f"w{n}" for n in range(WRITERS)]
        alive = {
            name: nursery.start(f"{SELF}:write", path=str(path), oracle=str(place / name), name=name, **given)
            for name in names
        }
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            what = chance.choice([*VISITS, "come and go", "fork"])
            outcome.count(what)
            if what == "fork":
                os.kill(alive[chance.choice(names)], signal.SIGUSR1)
            elif what == "come and go":
                name = chance.choice(names)
                nursery.kill(alive[name])
                alive[name] = nursery.start(
                    f"{SELF}:write", path=str(path), oracle=str(place / name), name=name, **given
                )
            else:
                _visit(path, place / "copy.db", what, outcome)
            time.sleep(chance.uniform(0, 0.1))
        for pid in alive.values():
            nursery.kill(pid)
    _judge_ordinary(outcome, place, path, names, given)
    return outcome


def _visit(path: Path, copy: Path, what: str, outcome: Outcome) -> None:
    copy.unlink(missing_ok=True)
    code = f"import sqlite3, sys; c = sqlite3.connect(sys.argv[1], timeout=20, isolation_level=None); {VISITS[what]}"
    done = subprocess.run([sys.executable, "-P", "-c", code, str(path), str(copy)], capture_output=True, text=True)
    if done.returncode:
        outcome.count(f"{what} was refused: {done.stderr.strip().splitlines()[-1][:80]}")


@contextmanager
def _daemon(path: Path, place: Path) -> Iterator[None]:
    environment = {**os.environ, "STANDFAST_DATA_DIR": str(path.parent), "HOME": str(place / "home")}
    with open(place / "daemon.log", "ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "standfast", "daemon", "run"], env=environment, stdout=log, stderr=log
        )
        try:
            yield
            assert process.poll() is None, f"the daemon ended: {(place / 'daemon.log').read_text()[-600:]}"
        finally:
            process.kill()
            process.wait()


def _judge_ordinary(outcome: Outcome, place: Path, path: Path, names: list[str], given: dict[str, Any]) -> None:
    answer = place / "answer.json"
    with Nursery(words=place / "words") as nursery:
        code = nursery.wait(nursery.start(f"{SELF}:look", path=str(path), answer=str(answer), **given), PATIENCE_S)
    assert code == 0, (place / "words").read_text()[-1000:]
    left = json.loads(answer.read_text())
    answers = [line for name in names for line in _whole(noted(place / name))]
    missing = {line.what for line in answers if line.kind == "ack"} - set(left["keys"])
    alarms = Counter(line.what for line in answers if line.kind in ("err", "beat"))
    outcome.count("rows acknowledged", sum(line.kind == "ack" for line in answers))
    outcome.count("false alarms", sum(alarms.values()))
    outcome.refuse(sorted(missing)[:20], f"{len(missing)} acknowledged rows are gone")
    outcome.refuse(dict(alarms), "false alarms")
    outcome.refuse(left["state"] != "ok", f"integrity: {left['state']} {left['opened']}")
    sent = Counter(line.partition(" ")[0] for line in noted(place / "outbox"))
    twice = {key: n for key, n in sent.items() if n > 1}
    outcome.refuse(twice, "effects were sent twice")
