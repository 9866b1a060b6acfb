"""Counts the words that plain English avoids in docs, docstrings, comments and messages.

`words.toml` holds the words, the exceptions and the current counts. A count may only go down: a test compares the file
with the tree. `make words` (`python -m tests.words`) writes the counts of the tree into the file.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import tokenize
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FILE = Path(__file__).with_name("words.toml")


def recorded() -> dict[str, int]:
    counts: dict[str, int] = tomllib.loads(FILE.read_text())["counts"]
    return counts


def counted() -> dict[str, int]:
    """Each word (a pattern) with its count in all tracked files."""
    text = " ".join("\n".join(_texts()).lower().split())
    for phrase in tomllib.loads(FILE.read_text())["exceptions"]:
        text = text.replace(phrase.lower(), "")
    return {word: len(re.findall(rf"\b(?:{word})\b", text)) for word in recorded()}


def line(word: str, count: int) -> str:
    return f'"{word}" = {count}'


def _texts() -> Iterator[str]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    for path in (ROOT / name for name in listed.stdout.split("\0") if name):
        if path.suffix in _READ and path.is_file():
            yield from _READ[path.suffix](path.read_text())


def _python(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string.lstrip("#")


def _sql(source: str) -> Iterator[str]:
    return (found.strip() for found in re.findall(r"--(.*)", source))


_READ = {".md": lambda text: [text], ".py": _python, ".sql": _sql}


def main() -> None:
    text, now = FILE.read_text(), counted()
    for word, count in recorded().items():
        text = text.replace(f"\n{line(word, count)}\n", f"\n{line(word, now[word])}\n")
    FILE.write_text(text)


if __name__ == "__main__":
    main()
