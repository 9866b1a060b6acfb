"""Mutant: one changed place of one file. Its identity is file, function, original text and change: no line number."""

from __future__ import annotations

import random
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

PACKAGE = Path("src/standfast")
TEXT_MAX = 160


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """Bytes `start` to `end` of `file` become `replacement`."""

    file: str
    """Relative to src/standfast."""
    function: str
    """Qualified name of the function, name of the SQL statement or table; empty at module level."""
    original: str
    change: str
    start: int
    end: int
    replacement: str
    line: int

    @property
    def identity(self) -> tuple[str, str, str, str]:
        return self.file, self.function, self.original, self.change

    @property
    def name(self) -> str:
        return f"{self.file}:{self.line} {self.function}: {self.change}   in   {self.original}"

    def applied(self, source: bytes) -> bytes:
        return source[: self.start] + self.replacement.encode() + source[self.end :]


def one_line(text: str) -> str:
    """The text of a mutant on one shortened line, for people and for `equivalent.toml`."""
    return " ".join(text.split())[:TEXT_MAX]


def found(root: Path) -> list[Mutant]:
    """Every mutant of the product below `root`, in the order of files."""
    from standfast_prove.mutate import python, sql

    mutants: list[Mutant] = []
    package = root / PACKAGE
    for path in sorted([*package.rglob("*.py"), *package.rglob("*.sql")]):
        file = path.relative_to(package).as_posix()
        finder = python.mutants if path.suffix == ".py" else sql.schema if "migrations/" in file else sql.statements
        mutants += finder(file, path.read_bytes())
    return mutants


def sample(mutants: Iterable[Mutant], *, seed: int, count: int) -> list[Mutant]:
    """Choose `count` different mutants, all with the same probability."""
    distinct = list({mutant.identity: mutant for mutant in mutants}.values())
    return random.Random(seed).sample(distinct, min(count, len(distinct)))


def equivalent() -> dict[tuple[str, str, str, str], str]:
    """The mutants that no test can catch, with the reason of each."""
    text = resources.files(__package__).joinpath("equivalent.toml").read_text()
    listed = tomllib.loads(text).get("equivalent", [])
    return {(e["file"], e["function"], e["original"], e["change"]): e["reason"] for e in listed}
