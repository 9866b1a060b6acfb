"""The tests that execute a function or a statement, recorded once for each version of a test file."""

from __future__ import annotations

import json
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from standfast_prove.mutate import recorder, tree
from standfast_prove.mutate.mutants import Mutant

# These tests compare texts of the product or checksums, so they fail for any change, also for a harmless one.
TEXT_TESTS = ("test_prove", "test_project", "test_migrations", "test_bench", "test_evaluation", "test_readme")
SCHEMA_TESTS = "tests/db/test_schema_constraints.py"
FIRST_FILES, FIRST_TESTS = 2, 30
TRIGGER_CODE = "db/postgres/roles.py"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    test: str
    seconds: float

    @property
    def file(self) -> str:
        return self.test.partition("::")[0]


class CallMap:
    """The lines of the recorder in `.mutate/map`."""

    def __init__(self, root: Path, place: Path) -> None:
        self._root = root
        self._place = place
        self._by_name: dict[str, list[Recorded]] = defaultdict(list)
        self._by_file: dict[str, dict[str, Recorded]] = defaultdict(dict)

    def record(self, copy: Path, *options: str) -> None:
        """Run and record the tests that are new, or whose file changed since the last recording.

        `options` are pytest's: `--quick`, or the files to run. The default is every test that is not slow.
        """
        self._place.mkdir(parents=True, exist_ok=True)
        known = [f"{found['test']} {found['hash']}" for found in self._lines()]
        (self._place / "recorded.txt").write_text("\n".join(known))
        environment = tree.environment(**{recorder.MAP_VARIABLE: str(self._place)})
        command = [tree.python(copy), "-m", "pytest", "-n", "2", "-q", "-m", "not slow", "--tb=no", *options]
        plugins = ["-p", "standfast_prove.mutate.recorder", "-p", "no:cacheprovider"]
        files = [path.relative_to(self._root).as_posix() for path in self._test_files()]
        named = any(option.endswith(".py") for option in options)
        subprocess.run([*command, *plugins, *([] if named else files)], cwd=copy, env=environment)

    def _test_files(self) -> list[Path]:
        files = sorted((self._root / "tests").rglob("test_*.py"))
        return [path for path in files if not path.name.startswith(TEXT_TESTS)]

    def load(self) -> None:
        """Read every recording. A recording of an older version of a test still shows which tests to try."""
        for found in self._lines():
            recorded = Recorded(test=found["test"], seconds=found["seconds"])
            if found["passed"] and (self._root / recorded.file).exists():
                for name in found["names"]:
                    self._by_name[name].append(recorded)
                    self._by_file[name.partition(":")[0]][recorded.test] = recorded

    def _lines(self) -> Iterator[dict[str, Any]]:
        for path in sorted(self._place.glob("*.jsonl")):
            with open(path) as lines:
                yield from map(json.loads, lines)

    def rounds(self, mutant: Mutant, *, seconds: float) -> list[list[Recorded]]:
        """The tests that execute the mutant, about `seconds` of them, in two rounds.

        The first has the quickest tests of the two files that execute it most: it catches most mutants.
        """
        every = self._ordered(mutant, seconds=seconds)
        counts = Counter(recorded.file for recorded in every)
        likely = {file for file, _ in counts.most_common(FIRST_FILES)}
        first = [recorded for recorded in every if recorded.file in likely][:FIRST_TESTS]
        return [part for part in (first, [recorded for recorded in every if recorded not in first]) if part]

    def _ordered(self, mutant: Mutant, *, seconds: float) -> list[Recorded]:
        """SQLite before PostgreSQL, and the quickest of each file in turn."""
        found = {recorded.test: recorded for recorded in self._executing(mutant)}
        ranks: dict[tuple[str, bool], int] = defaultdict(int)
        ordered = []
        for recorded in sorted(found.values(), key=lambda r: (r.seconds, r.test)):
            slot = recorded.file, "postgres" in recorded.test
            ordered.append((slot[1], ranks[slot], recorded.seconds, recorded))
            ranks[slot] += 1
        chosen: list[Recorded] = []
        for *_, recorded in sorted(ordered, key=lambda entry: entry[:3]):
            if chosen and seconds < recorded.seconds:
                continue
            seconds -= recorded.seconds
            chosen.append(recorded)
        return chosen

    def _executing(self, mutant: Mutant) -> list[Recorded]:
        if "migrations/" in mutant.file and mutant.file.endswith(".sql"):
            constraints = [r for r in self._by_file["db/sql.py"].values() if r.file == SCHEMA_TESTS]
            return [*constraints, *self._by_file[TRIGGER_CODE].values()]
        named = self._by_name[f"{mutant.file}:{mutant.function.partition(' ')[0]}"]
        if mutant.file.endswith(".sql"):  # a module may look a statement up once, when it is imported
            return [*named, *self._by_file[mutant.file.removesuffix(".sql") + ".py"].values()]
        return named or list(self._by_file[mutant.file].values())
