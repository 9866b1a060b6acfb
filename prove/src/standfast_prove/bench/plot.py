"""Ratios as bars on a logarithmic scale, as an SVG: one line each, a mark at what is to be reached."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from standfast_prove.bench.measure import Line, Table

WIDTH, LABEL, BAR, ROW = 960, 470, 400, 22
LEAST, MOST = 0.05, 200.0


def svg(tables: Sequence[Table]) -> str:
    """Every ratio of every table."""
    lines = [(table.title, line) for table in tables for line in table.lines if line.unit == "x"]
    height = ROW * (len(lines) + 2)
    rows = [_row(number, title, line) for number, (title, line) in enumerate(lines, 1)]
    ticks = [_tick(value, height) for value in (0.1, 1.0, 10.0, 100.0)]
    style = "text{font:12px sans-serif;fill:#333}.bar{fill:#4a7}.missed{fill:#c65}.mark{stroke:#222;stroke-width:2}"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}"><style>{style}</style>'
    return "\n".join([head, *ticks, *rows, "</svg>\n"])


def _x(value: float) -> float:
    share = math.log(min(MOST, max(LEAST, value)) / LEAST) / math.log(MOST / LEAST)
    return LABEL + BAR * share


def _row(number: int, title: str, line: Line) -> str:
    y = ROW * number
    one, end = _x(1.0), _x(line.median)
    kind = "missed" if line.verdict == "MISSED" else "bar"
    parts = [
        f'<text x="4" y="{y + 14}">{escape(f"{title}: {line.label}")[:78]}</text>',
        f'<rect class="{kind}" x="{min(one, end):.1f}" y="{y + 3}" width="{abs(end - one):.1f}" height="{ROW - 8}"/>',
        f'<text x="{LABEL + BAR + 8}" y="{y + 14}">{line.median:.2f}×</text>',
    ]
    if line.reach:
        x = _x(line.reach.bound)
        parts.append(f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="{y + 1}" y2="{y + ROW - 3}"/>')
    return "".join(parts)


def _tick(value: float, height: int) -> str:
    x = _x(value)
    return (
        f'<line stroke="#ddd" x1="{x:.1f}" x2="{x:.1f}" y1="{ROW - 4}" y2="{height}"/>'
        f'<text x="{x - 8:.1f}" y="14">{value:g}×</text>'
    )
