"""Mutants with the test that must catch each: gaps that the first mutation run found, and reverted repairs.

A gap names its place by text, because `python.py` and `sql.py` do not find every place: some are SQL inside Python, and
some were rewritten since.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from standfast_prove.mutate import run, tree
from standfast_prove.mutate.mutants import PACKAGE

LIMIT_S = 300.0
"""The time limit for the test of one mutant. All tests together on unchanged code get three times as long."""
TESTS_FAILED = 1
"""pytest's exit code for failed tests. Any other code, such as that for a test that does not exist, proves nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """The first `text` after `within` in `file` becomes `becomes`; `test` must fail then."""

    group: int | str
    """A number in gaps.toml, a defect in repairs.toml."""
    what: str
    file: str
    within: str
    text: str
    becomes: str
    test: str

    def applied(self, source: str) -> str:
        """The file with the change applied. Raises ValueError if it no longer has the place."""
        at = source.index(self.text, source.index(self.within))
        return source[:at] + self.becomes + source[at + len(self.text) :]


def listed(file: str = "gaps.toml") -> list[Gap]:
    text = resources.files(__package__).joinpath(file).read_text()
    return [Gap(**entry) for entry in tomllib.loads(text)["gap"]]


def run_all(gaps: list[Gap], *, root: Path, place: Path, server: str, say: Callable[[str], None]) -> bool:
    """Whether every test passes on unchanged code and fails with its mutant. `server` is the URL of a PostgreSQL
    server.
    """
    copy = tree.make(root, place / "tree-gaps")
    code, failed = _tested(copy, [gap.test for gap in gaps], server)
    if code != 0:
        say(f"on unchanged code: {failed}")
        return False
    results = [_caught(gap, copy, server, say) for gap in gaps]
    say(f"{sum(results)} of {len(gaps)} mutants in {len({gap.group for gap in gaps})} groups caught")
    return all(results)


def _caught(gap: Gap, copy: Path, server: str, say: Callable[[str], None]) -> bool:
    path = copy / PACKAGE / gap.file
    source = path.read_text()
    tree.put(path, gap.applied(source).encode())
    try:
        code, failed = _tested(copy, [gap.test], server)
    finally:
        tree.put(path, source.encode())
    caught = code in (TESTS_FAILED, None)
    say(f"{'caught' if caught else 'SURVIVED':9}{gap.group:3}  {gap.what}  {failed or gap.test}")
    return caught


def _tested(copy: Path, tests: list[str], server: str) -> tuple[int | None, str]:
    """Run the tests. Returns pytest's exit code (None after the time limit) and the first test that failed."""
    limit_s = LIMIT_S if len(tests) == 1 else 3 * LIMIT_S
    code, output = run.pytest(copy, dict.fromkeys(tests), limit_s=limit_s, server=server)
    return code, run.failed(output) if code else ""
