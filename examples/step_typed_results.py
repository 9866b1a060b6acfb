"""A step returns the type of its function, on the first run and on later runs.

python examples/step_typed_results.py
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import date
from functools import partial
from pathlib import PurePosixPath

import standfast


class Risk(enum.Enum):
    LOW = "low"
    HIGH = "high"


@dataclass(frozen=True)
class Finding:
    file: PurePosixPath
    risk: Risk
    since: date


class Client:
    """A client that cannot be stored, so it is bound and not passed."""

    def ask(self, question: str) -> str:
        return f"{question}: yes"


def scan(root: str, *, deep: bool = False) -> list[Finding]:
    return [Finding(PurePosixPath(root, "a.py"), Risk.HIGH, date(2026, 11, 15))]


def ask(client: Client, question: str) -> str:
    return client.ask(question)


def main() -> None:
    with standfast.open() as sf, sf.session("example:typed") as s:
        findings = s.step("scan", scan, "src", deep=True)
        print(findings[0].risk, findings[0].file.name, findings[0].since.year)
        print(s.step("ask", partial(ask, Client()), "is it safe"))
        print(s.step("untyped", lambda: {"n": 1}, returns=dict)["n"])


if __name__ == "__main__":
    main()
