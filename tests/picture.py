"""Draw docs/images/demo.svg from the output of `standfast demo`. `make picture` runs this program."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "images" / "demo.svg"
WIDTH, LINE, LEFT, TOP = 860, 20, 18, 52
COLOURS = {"server: 1": "#7ee787", "server: 2": "#ff7b72", "kill -9": "#ffa657"}


def printed() -> list[str]:
    """The first part of the output: both runs, without the journal. Process ids and ports are real."""
    with tempfile.TemporaryDirectory() as home:
        environment = {**os.environ, "STANDFAST_DATA_DIR": home, "NO_COLOR": "1", "COLUMNS": "90"}
        command = [sys.executable, "-m", "standfast", "demo"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.partition("\nWhat the journal")[0].rstrip().splitlines()


def drawn(lines: list[str]) -> str:
    height = TOP + LINE * (len(lines) + 1)
    rows = [_row(number, line) for number, line in enumerate(["$ standfast demo", *lines])]
    label, fonts = "What standfast demo prints", "ui-monospace, SFMono-Regular, Menlo, Consolas, monospace"
    dots = [(22, "#ff5f57"), (42, "#febc2e"), (62, "#28c840")]
    size = f'width="{WIDTH}" height="{height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{label}">',
        f'<rect {size} rx="8" fill="#0d1117"/>',
        *(f'<circle cx="{x}" cy="18" r="6" fill="{colour}"/>' for x, colour in dots),
        f'<g font-family="{fonts}" font-size="14" fill="#c9d1d9">',
        *rows,
        "</g>",
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def shape(lines: list[str]) -> list[str]:
    """The lines with process ids and ports removed."""
    return [re.sub(r"\d{3,}", "N", line) for line in lines]


def lines_of(picture: str) -> list[str]:
    from html import unescape

    texts = re.findall(r"<text[^>]*>(.*)</text>", picture)[1:]
    return [unescape(line).replace("\N{NO-BREAK SPACE}", " ") for line in texts]


def _row(number: int, line: str) -> str:
    colour = next((f' fill="{colour}"' for word, colour in COLOURS.items() if word in line), "")
    weight = ' font-weight="bold"' if line and not line.startswith(" ") else ""
    return f'<text x="{LEFT}" y="{TOP + LINE * number}"{colour}{weight}>{_spaced(line)}</text>'


def _spaced(line: str) -> str:
    """Replace leading spaces by no-break spaces: browsers drop leading spaces, even with xml:space."""
    text = line.lstrip(" ")
    return "\N{NO-BREAK SPACE}" * (len(line) - len(text)) + escape(text)


if __name__ == "__main__":
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(drawn(printed()))
