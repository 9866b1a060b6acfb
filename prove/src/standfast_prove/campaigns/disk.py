"""A disk is full, or fails, at the n-th operation, for every n that the program reaches.

The program opens a store and writes in every way there is (`writing.py`). One kind of operation (write, sync, open,
truncate, rename, remove, read) is refused at its n-th time, once or from then on. The program must get one of our
errors, or the answer that the outcome is unknown. When the disk works again, the same process can write, and so can
the next process, which also finishes the interrupted work. All acknowledged rows are there, nothing is half there,
nothing was sent twice, and the file is sound.

In the control the program counts refused operations as done.
"""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from standfast_prove.campaigns import writing
from standfast_prove.faults.children import Nursery
from standfast_prove.faults.limits import set_limit
from standfast_prove.faults.operations import Operations, counted, refuse
from standfast_prove.faults.rows import Oracle, noted
from standfast_prove.outcome import Outcome

SELF = "standfast_prove.campaigns.disk"
DATABASE = "standfast.db"
WRAP_EVERY_PAGES = (4, 12, 1000)


class Fault(NamedTuple):
    kinds: str
    error: int
    lasting: bool

    def __str__(self) -> str:
        return f"{errno.errorcode[self.error]} at {self.kinds}{', lasting' if self.lasting else ''}"


FAULTS = tuple(
    Fault(kinds, error, lasting)
    for kinds, errors in (
        ("w", (errno.ENOSPC, errno.EIO)),
        ("s", (errno.EIO,)),
        ("o", (errno.EIO, errno.EMFILE)),
        ("wtmoc", (errno.ENOSPC,)),
        ("t", (errno.EIO,)),
        ("rum", (errno.EIO,)),
        ("i", (errno.EIO,)),
    )
    for error in errors
    for lasting in (False, True)
)


def run(
    place: Path, *, seed: int = 0, faults: int = 60, believes: bool = False, kinds: tuple[str, ...] = ()
) -> Outcome:
    """Play one kind of fault at every n, or at a sample if there are more than `faults`.

    The seed chooses the kind and the order of the program's writes.
    """
    chance = random.Random(seed)
    of_interest = [fault for fault in FAULTS if not kinds or fault.kinds in kinds]
    fault, wrap = of_interest[seed % len(of_interest)], chance.choice(WRAP_EVERY_PAGES)
    operations, outcome = Operations(place, recorded=False), Outcome(f"disk: {fault}")
    _make(operations.directory, place / "made")
    with Nursery(env=operations.env, words=place / "words") as nursery:
        life = _Life(nursery, place, operations.directory, outcome, believes=believes)
        every = range(1, life.warm(fault, wrap, seed) + 1)
        for nth in every if len(every) <= faults else sorted(chance.sample(every, faults)):
            if not life.live(fault, nth, wrap, seed) or outcome.bad:
                break
    return outcome


def _make(directory: Path, kept: Path) -> None:
    import standfast

    with standfast.open(directory / DATABASE, data_dir=directory) as sf:
        sf._store.write(lambda tx: None)
    shutil.copytree(directory, kept)


class _Life:
    """Run one program on one failing disk, and check its files."""

    def __init__(self, nursery: Nursery, place: Path, directory: Path, outcome: Outcome, *, believes: bool) -> None:
        self._nursery, self._place, self._directory, self._outcome = nursery, place, directory, outcome
        self._believes = believes

    def warm(self, fault: Fault, wrap: int, seed: int) -> int:
        """Run without a fault. Returns the number of operations that can be refused. Later runs reuse the modules that
        this run loads.
        """
        answer = self._place / "warm.json"
        given = {"directory": str(self._directory), "answer": str(answer), "seed": seed, "wrap": wrap}
        pid = self._nursery.start(f"{SELF}:warm", kinds=fault.kinds, **given)
        assert self._nursery.wait(pid) == 0, (self._place / "words").read_text()[-1500:]
        seen = json.loads(answer.read_text())
        self._nursery.load(seen["modules"])
        times: int = seen["times"]
        return times

    def live(self, fault: Fault, nth: int, wrap: int, seed: int) -> bool:
        """Run with one fault. Returns whether an operation was refused."""
        for path in self._directory.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        shutil.copytree(self._place / "made", self._directory, dirs_exist_ok=True)
        acked, answer = self._place / "acked", self._place / "answer.json"
        acked.unlink(missing_ok=True)
        given = {"directory": str(self._directory), "acked": str(acked), "answer": str(answer), "seed": seed}
        for target, more in (
            ("work", {"wrap": wrap, "nth": nth, "believes": self._believes, **fault._asdict()}),
            ("recover", {}),
        ):
            answer.unlink(missing_ok=True)
            code = self._nursery.wait(self._nursery.start(f"{SELF}:{target}", **given, **more))
            if code != 0:
                words = (self._place / "words").read_text()[-1500:]
                self._outcome.bad.append(f"{fault}, n = {nth}: {target} ended with {code}: {words}")
                return True
            if target == "work" and not json.loads(answer.read_text())["refused"]:
                return False
        self._judge(f"{fault}, n = {nth}", noted(acked), json.loads(answer.read_text()))
        return True

    def _judge(self, fault: str, lines: list[str], found: dict[str, list[str]]) -> None:
        acked = Counter(line for line in lines if line[0] != "!")
        there = Counter(found["lines"])
        self._outcome.count("faults")
        self._outcome.count("refusals", sum(line[0] == "!" for line in lines))
        self._outcome.count("acknowledged", len(acked))
        self._outcome.refuse(sorted(set(acked) - set(there)), f"{fault}: acknowledged and not there")
        self._outcome.refuse(found["half"], f"{fault}: half of something is there")
        twice = [line for line, times in acked.items() if times > 1 and line.startswith("sent ")]
        self._outcome.refuse(twice, f"{fault}: sent twice")
        twice = [line for line, times in there.items() if times > 1 and line.startswith(("spooled ", "done "))]
        self._outcome.refuse(twice, f"{fault}: there twice")
        raw = [line for line in lines if line.startswith("!raw")]
        self._outcome.refuse(raw, f"{fault}: an error that is not one of ours")


# -- in the children -----------------------------------------------------------------------------------


def work(
    *,
    directory: str,
    acked: str,
    answer: str,
    seed: int,
    wrap: int,
    kinds: str,
    nth: int,
    error: int,
    lasting: bool,
    believes: bool,
) -> None:
    """Run on a failing disk, then on the same disk after it works again."""
    set_limit("DEADLINE_S", 2.0)
    program = _Program(directory, Oracle(acked), random.Random(seed), believes=believes)
    refuse(kinds, nth, error, lasting=lasting)
    program.go("k", wrap=wrap)
    refused = counted() >= nth
    refuse("", 0)
    program.believes = False
    if refused:
        program.go("kk", must=True)
    Path(answer).write_text(json.dumps({"refused": refused}))


def warm(*, directory: str, answer: str, seed: int, wrap: int, kinds: str) -> None:
    """On a disk without faults."""
    program = _Program(directory, Oracle(os.devnull), random.Random(seed), believes=False)
    refuse(kinds, 0)
    program.go("k", wrap=wrap, must=True)
    Path(answer).write_text(json.dumps({"times": counted(), "modules": list(sys.modules)}))


def recover(*, directory: str, acked: str, answer: str, seed: int) -> None:
    """The next process: it finishes the work of the first process, or reports the effect as in doubt."""
    from standfast.interchange.hooks import spool

    program = _Program(directory, Oracle(acked), random.Random(seed), believes=False)
    program.go("k", must=True)
    sf = program.open()
    spool.drain(sf._store, [os.path.join(directory, "spool")], directory)
    lines, half = sf._store.write(lambda tx: writing.found(tx, checked=True))
    half += [
        f"{artifact.name} cannot be read" for artifact in sf.artifacts.list(limit=1000) if not _reads(sf, artifact)
    ]
    Path(answer).write_text(json.dumps({"lines": lines, "half": half}))


def _reads(sf: Any, artifact: Any) -> bool:
    import standfast

    try:
        return bool(len(sf.artifacts.read(artifact.id)) == artifact.size_bytes)
    except standfast.StandfastError:
        return False


class _Program:
    def __init__(self, directory: str, acked: Oracle, chance: random.Random, *, believes: bool) -> None:
        self._directory, self._told, self._chance, self.believes = directory, acked, chance, believes
        self._order = chance.sample(writing.KINDS, len(writing.KINDS))
        self._sf: Any = None

    def open(self) -> Any:
        import standfast

        if self._sf is None:
            self._sf = standfast.open(os.path.join(self._directory, DATABASE), data_dir=self._directory)
        return self._sf

    def go(self, name: str, *, wrap: int = 0, must: bool = False) -> None:
        """Call every method once and note refusals. With `must`, no call may be refused."""
        if wrap:
            set_limit("CHECKPOINT_FRAMES", wrap)
        for kind in self._order:
            self._try(lambda: self._write(kind, f"{name}-{kind}"), f"{kind} {name}-{kind}", must)  # noqa: B023

    def _write(self, kind: str, key: str) -> None:
        writer = writing.Writer(self.open(), self._told.note, self._chance, data_dir=self._directory)
        writer.write(kind, key)

    def _try(self, act: Callable[[], None], line: str, must: bool) -> None:
        import standfast

        try:
            act()
        except standfast.EffectInDoubt as known:
            # For the next process: a person has to check the outside system.
            self._told.note(f"!{known.code}")
        except standfast.StandfastError as refusal:
            if must:
                raise
            self._told.note(f"!{refusal.code}")
            if self.believes and line:
                self._told.note(line)
        except Exception as error:
            if must:
                raise
            self._told.note(f"!raw {type(error).__name__}: {error}")
