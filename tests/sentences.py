"""Measure the English of README.md and docs/. `python -m tests.sentences` prints the figures of every page."""

from __future__ import annotations

import re
import statistics
from dataclasses import dataclass
from pathlib import Path

from tests import blocks

# Pages that are generated or are lists: requirements, results, tables of the schema.
LEFT_OUT = {
    "docs/internals/requirements.md",
    "docs/internals/evaluation.md",
    "docs/internals/benchmarks.md",
    "docs/reference/tables.md",
}
SUBJECTS = re.compile(r"^(?:whoever|nobody|somebody|what(?:ever)?)\b(?!.*\?$)", re.IGNORECASE)
PASSIVE = re.compile(r"\b(?:is|are|was|were|be|been|being)\s+(?:\w+ly\s+)?\w+(?:ed|wn|lt|nt|de|ut|pt)\b")


@dataclass(frozen=True)
class Page:
    words: int
    median: float
    ninth: float
    """Words of a sentence: 9 of 10 have at most this many."""
    subjects: float
    joined: float
    """Share of sentences with `;` or `: `."""
    passive: float
    you: float
    code: float
    """Per 1,000 words."""


def pages() -> list[Path]:
    return [page for page in blocks.pages() if str(page.relative_to(blocks.ROOT)) not in LEFT_OUT]


def measured(page: Path) -> Page:
    text = page.read_text()
    prose = _prose(text)
    sentences = _sentences(prose)
    words = len(prose.split())
    lengths = [len(sentence.split()) for sentence in sentences] or [0]
    many = max(len(sentences), 1)
    return Page(
        words=words,
        median=statistics.median(lengths),
        ninth=sorted(lengths)[int(len(lengths) * 0.9) - 1] if len(lengths) > 1 else lengths[0],
        subjects=sum(bool(SUBJECTS.match(one)) for one in sentences) / many,
        joined=sum(";" in one or ": " in one for one in sentences) / many,
        passive=sum(bool(PASSIVE.search(one)) for one in sentences) / many,
        you=len(re.findall(r"\b(?:you|your|yours|yourself)\b", prose, re.IGNORECASE)) * 1000 / max(words, 1),
        code=len(re.findall(r"^```\w", text, re.MULTILINE)) * 1000 / max(words, 1),
    )


def _prose(text: str) -> str:
    """Paragraphs and list items, without code, tables, headings, markup and links."""
    text = re.sub(r"^```.*?^```$|<!--.*?-->", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^(?:\||#|    ).*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)", "", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return re.sub(r"`[^`]*`", "CODE", text)


def _sentences(prose: str) -> list[str]:
    paragraphs = re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )", prose)
    flat = [re.sub(r"^\s*(?:[-*]|\d+\.) |\*", "", " ".join(part.split())) for part in paragraphs]
    found = [one.strip() for part in flat for one in re.split(r"(?<=[.!?])\s+(?=[A-Z*C])|:$", part)]
    return [one for one in found if len(one.split()) > 2]


def main() -> None:
    total = 0
    for page in pages():
        one = measured(page)
        total += one.words
        print(
            f"{page.relative_to(blocks.ROOT)!s:58} {one.words:5} words  p50 {one.median:4.0f}  p90 {one.ninth:3}  "
            f"subject {one.subjects:4.0%}  ;: {one.joined:4.0%}  passive {one.passive:4.0%}  "
            f"you {one.you:4.1f}  code {one.code:4.1f}"
        )
    print(f"{total} words")


if __name__ == "__main__":
    main()
