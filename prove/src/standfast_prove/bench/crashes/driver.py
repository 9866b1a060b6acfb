"""Each schedule runs in processes forked from one that has imported the framework and opened nothing."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from importlib import import_module
from itertools import count
from pathlib import Path
from random import Random

from standfast_prove.bench.crashes.programs import EFFECTS, PROGRAMS, InDoubt, Program

LIVES_MAX = 4
PATIENCE_S = 60.0
DONE, DOUBT, ERROR = 0, 10, 11


class World:
    """Append-only files that record what reached the outside system. The frameworks do not know them."""

    def __init__(self, file: Path, dies: Callable[[str], None]) -> None:
        self._file, self._dies = file, dies

    def post(self, n: int) -> str:
        self._dies(f"before {n}")
        handle = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(handle, f"{n}\n".encode())
        os.close(handle)
        self._dies(f"after {n}")
        return "ok"

    def arrived(self) -> Counter[int]:
        return Counter(int(line) for line in self._file.read_text().split()) if self._file.exists() else Counter()


@dataclass
class Tally:
    """The counts of all schedules of one contestant."""

    schedules: int = 0
    kills: int = 0
    effects: int = 0
    lost: int = 0
    duplicated: int = 0
    in_doubt: int = 0
    """Requests reported as in doubt, then settled by a check of the outside system."""
    errors: int = 0
    """Recovering processes that ended with an error."""
    never_ended: int = 0
    recovery_s: list[float] = field(default_factory=list)
    words: list[str] = field(default_factory=list)


def main() -> None:
    """`python -m standfast_prove.bench.crashes.driver NAME PLACE URL|"" KILLS SEED`: the tally as JSON."""
    name, place, url, kills, seed = sys.argv[1:6]
    program = PROGRAMS[name]
    for module in program.modules:
        import_module(module)
    sys.stdout.flush()
    played = _Played(program, Path(place), url or None)
    print(json.dumps(asdict(played.all(int(kills), Random(int(seed))))), file=sys.__stdout__)


class _Played:
    def __init__(self, program: Program, place: Path, url: str | None) -> None:
        self._program, self._place, self._url = program, place, url
        self._number = 0
        self.tally = Tally()

    def all(self, kills: int, random: Random) -> Tally:
        self._schedule(None)
        self.tally = Tally()  # the first run was a warm-up that created the store
        length = self._length()
        for n in EFFECTS:
            self._schedule(f"before {n}")
            self._schedule(f"after {n}")
        for part in range(kills):
            self._schedule(random.randrange(part * length // kills, (part + 1) * length // kills) + 1)
        return self.tally

    def _length(self) -> int:
        self._number += 1
        code = self._life(0)
        assert code == DONE, f"it does not run at all: {(self._place / 'words').read_text(errors='replace')[-500:]}"
        return int((self._place / "length").read_text())

    def _schedule(self, where: str | int | None) -> None:
        self._number += 1
        self.tally.schedules += 1
        code = self._life(where)
        self.tally.kills += code == -signal.SIGKILL
        if code != DONE:
            self._recover()
        arrived = World(self._book(), lambda point: None).arrived()
        self.tally.effects += len(EFFECTS)
        self.tally.lost += sum(arrived[n] == 0 for n in EFFECTS)
        self.tally.duplicated += sum(arrived[n] > 1 for n in EFFECTS)

    def _recover(self) -> None:
        start = time.monotonic()
        for _ in range(LIVES_MAX):
            code = self._life(None)
            if code == DONE:
                self.tally.recovery_s.append(round(time.monotonic() - start, 3))
                return
            if code == DOUBT and self._program.settle is not None:
                self.tally.in_doubt += 1
                self._settled()
            else:
                self.tally.errors += 1
                self._note(code)
        self.tally.never_ended += 1

    def _settled(self) -> None:
        arrived = World(self._book(), lambda point: None).arrived()
        settle = self._program.settle
        assert settle is not None
        _forked(lambda: settle(self._place, self._url, self._name, lambda n: arrived[n] > 0), self._place / "words")

    def _note(self, code: int) -> None:
        lines = (self._place / "words").read_text(errors="replace").strip().splitlines()
        said = f"{code}: {lines[-1][:200] if lines else ''}"
        if said not in self.tally.words and len(self.tally.words) < 5:
            self.tally.words.append(said)

    @property
    def _name(self) -> str:
        return f"run-{self._number}"

    def _book(self) -> Path:
        return self._place / f"{self._name}.book"

    def _life(self, where: str | int | None) -> int:
        """Run one process and kill it at a named point or at its n-th call. With 0 it is not killed, and its calls
        are counted.
        """

        def live() -> None:
            calls = count(1)

            def passing(frame: object, event: str, argument: object) -> None:
                if next(calls) == where:
                    os.kill(os.getpid(), signal.SIGKILL)

            def point(name: str) -> None:
                if name == where:
                    os.kill(os.getpid(), signal.SIGKILL)

            if isinstance(where, int):
                threading.setprofile(passing)
                sys.setprofile(passing)
            self._program.live(self._place, self._url, self._name, World(self._book(), point).post)
            if where == 0:
                (self._place / "length").write_text(str(next(calls)))

        return _forked(live, self._place / "words")


def _forked(act: Callable[[], None], words: Path) -> int:
    """Run a forked process and return how it ended. A process that does not end is killed and counts as an error."""
    pid = os.fork()
    if pid == 0:
        code = ERROR
        try:
            said = os.open(words, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            os.dup2(said, 1)
            os.dup2(said, 2)
            act()
            code = DONE
        except InDoubt:
            code = DOUBT
        except BaseException:  # noqa: BLE001  every error is counted
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    watch = os.pidfd_open(pid)
    ended = select.select([watch], [], [], PATIENCE_S)[0]
    if not ended:
        os.kill(pid, signal.SIGTERM)
        time.sleep(0.2)
        os.kill(pid, signal.SIGKILL)
    os.close(watch)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return code if ended else ERROR


if __name__ == "__main__":
    main()
