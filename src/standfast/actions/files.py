"""Files: write a file whole. The probe compares its hash.

from standfast.actions import files

with standfast.session("release"):
    files.write("CHANGES.md", text)
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence

from standfast.actions.action import Action, Answer, CannotTell, Facts, Place, absent, arrived, unknown
from standfast.actions.command_lines import split
from standfast.ledger.effects.declared import effect

SIZE_MAX_BYTES = 256 << 20


def find_file(path: str, text: str) -> bool:
    """Whether the file has exactly this text."""
    return _hash(path) == hashlib.sha256(text.encode()).hexdigest()


@effect("files.write", by=("path", "text"), find=find_file, settle="0s")
def write(path: str, text: str) -> None:
    """Write the text to the file. A reader sees the old file or the new one, never a part."""
    beside = f"{path}.standfast-{os.getpid()}"
    with open(beside, "w", encoding="utf-8", newline="") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)


def _hash(path: str, size: int | None = None) -> str | None:
    """The SHA-256 of a file, or of its first `size` bytes; None if the file does not exist. Raises CannotTell."""
    try:
        if os.path.getsize(path) > SIZE_MAX_BYTES:
            raise CannotTell(f"{path} is larger than {SIZE_MAX_BYTES >> 20} MB")
        with open(path, "rb") as file:
            return hashlib.sha256(file.read(size)).hexdigest()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CannotTell(f"{path}: {error.strerror}") from None


# -- cp ----------------------------------------------------------------------------------------------------


def _parse_copy(args: Sequence[str]) -> Facts | None:
    words = split(args, flags="-f --force -p -v --verbose -T --no-target-directory")
    return {"source": words.rest[0], "target": words.rest[1]} if words is not None and len(words.rest) == 2 else None


def _before_copy(facts: Facts, place: Place) -> Facts:
    source, target = (os.path.join(place.cwd, facts[name]) for name in ("source", "target"))
    if os.path.isdir(target):
        target = os.path.join(target, os.path.basename(source))
    want = _hash(source)
    if want is None or os.path.abspath(source) == os.path.abspath(target):
        raise CannotTell(f"there is no file {source} to copy")
    was = _hash(target) if place.sent_us is None else None
    return {"source": source, "target": target, "want": want, "was": was}


def _find_copy(facts: Facts, place: Place) -> Answer:
    target, want = facts["target"], facts["want"]
    there = _hash(target)
    if there == want:
        return arrived(f"{target} has the content")
    if there is None:
        return absent(f"{target} is not there")
    if there == facts["was"]:
        return absent(f"{target} has its old content")
    size = os.path.getsize(target)
    if _hash(facts["source"]) == want and there == _hash(facts["source"], size):
        return absent(f"{target} has only the first {size} bytes")
    return unknown(f"{target} has another content")


ACTIONS = (
    Action(
        name="file written",
        commands=("cp",),
        tools=("files.write",),
        by="path and content",
        compensate="write the old content",
        cannot="who wrote the same content",
        settle="0s",
        settle_why="only the killed process itself writes the file",
        parse=_parse_copy,
        before=_before_copy,
        find=_find_copy,
        looks=lambda facts: f"sha256sum {facts['target']}",
    ),
)
