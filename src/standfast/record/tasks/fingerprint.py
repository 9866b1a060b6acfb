"""Fingerprints: two reports with the same fingerprint are about the same problem.

    f1:  SHA-256 of the canonical JSON [source, kind, normalised title]

Normalised: case folded, runs of white space made one space, and parts that change from report to report replaced by a
word: a UUID, a time (2026-11-15T03:00:00Z, 03:00:00), and a long hexadecimal number (eight digits or more, letters and
figures mixed, such as a commit or an address). A date alone, a line number and a count stay, because they usually
distinguish two problems.

The rule is part of every stored row and never changes. A new rule would have the prefix `f2:`.
"""

from __future__ import annotations

import re

from standfast import serial

# Compiled on first use. The order matters: a UUID contains hexadecimal numbers, and a timestamp contains a time.
_ZONE = r"(?: ?(?:z|utc|[+-][0-9]{2}:?(?:[0-9]{2})?))?"
_SECONDS = r":[0-9]{2}(?:[.,][0-9]+)?"
_REPLACED = (
    (r"(?<![0-9a-z])[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}(?![0-9a-z])", "<uuid>"),
    (
        rf"(?<![0-9a-z])[0-9]{{4}}(?:-[0-9]{{2}}){{2}}[t ][0-9]{{2}}:[0-9]{{2}}(?:{_SECONDS})?{_ZONE}(?![0-9a-z])",
        "<time>",
    ),
    (rf"(?<![0-9a-z])[0-9]{{8}}t[0-9]{{4}}(?:[0-9]{{2}})?{_ZONE}(?![0-9a-z])", "<time>"),
    (rf"(?<![0-9a-z:.])[0-9]{{2}}:[0-9]{{2}}{_SECONDS}{_ZONE}(?![0-9a-z:])", "<time>"),
    (r"(?<![0-9a-z])(?=[a-fx]*[0-9])(?=(?:0x)?[0-9]*[a-f])(?:0x)?[0-9a-f]{8,}(?![0-9a-z])", "<hex>"),
)


def fingerprint(title: str, *, kind: str, source: str) -> str:
    """The identity of a task. Labels, body and priority do not count."""
    return "f1:" + serial.hash([source, kind, normalised(title)]).removeprefix("h1:")


def normalised(title: str) -> str:
    text = " ".join(title.casefold().split())
    for pattern, word in _REPLACED:
        text = re.sub(pattern, word, text)
    return text
