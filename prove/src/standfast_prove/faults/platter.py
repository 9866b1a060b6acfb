"""The contents that a disk may have if the power is lost between two operations.

Writes that a sync found when it began are durable once that sync has ended. Each sector of a later write may be
written, not written or torn. A later truncation or a new length of a file may be applied or not. The name of a file is
durable only after a sync of its directory; before that the name may exist or not. Bytes of the same sector that were
not written stay unchanged. Drives promise this, and SQLite relies on it.

    platter = Platter(files, directories)  what was there before
    for operation in recording: platter.apply(operation)
    image = platter.image(chance)          a possible content, with a hash to recognise equal contents
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import NamedTuple

from standfast_prove.faults.operations import Operation

PAGE = 4096
SECTORS = (512, 512, 4096)
_WRITE, _TRUNCATE = "w", "t"


class Content(NamedTuple):
    data: bytearray
    """The bytes of the file. Read them before the next operation is applied."""
    sum: int
    """A hash of the bytes. Two different contents have the same hash with probability 2⁻⁶⁴."""


class Image(NamedTuple):
    files: dict[str, Content]
    directories: list[str]

    @property
    def sum(self) -> int:
        return hash((*sorted((name, content.sum) for name, content in self.files.items()), *self.directories))


class File:
    """The synced bytes, and the writes since the last sync."""

    def __init__(self, data: bytes = b"") -> None:
        self._sure = bytearray(data)
        self._sums = {page: _sum(self._sure, page) for page in range(-(-len(data) // PAGE))}
        self._sum = sum(self._sums.values())
        self._pending: list[tuple[int, Operation]] = []

    def change(self, order: int, operation: Operation) -> None:
        self._pending.append((order, operation))

    def sync(self, order: int) -> None:
        """All operations before `order` are now durable."""
        done = [operation for begun, operation in self._pending if begun < order]
        self._pending = [one for one in self._pending if one[0] >= order]
        touched: set[int] = set()
        for operation in done:
            _apply(self._sure, operation, touched)
        for page in touched:
            self._sum += (new := _sum(self._sure, page)) - self._sums.get(page, 0)
            self._sums[page] = new

    def content(self, choose: Choice, chance: random.Random) -> Content:
        if not self._pending:
            return Content(self._sure, hash((self._sum, len(self._sure))))
        data, touched = bytearray(self._sure), set[int]()
        for operation in choose(self._pending, chance):
            _apply(data, operation, touched)
        total = self._sum + sum(_sum(data, page) - self._sums.get(page, 0) for page in touched)
        return Content(data, hash((total, len(data))))


Choice = Callable[[list[tuple[int, Operation]], random.Random], list[Operation]]


class Platter:
    """The files below one directory while a recording is played."""

    def __init__(self, files: dict[str, bytes], directories: list[str]) -> None:
        """The durable state before the operation."""
        self._now: dict[str, File | None] = {name: File(data) for name, data in files.items()}
        self._now.update(dict.fromkeys(directories))  # None is a directory
        self._sure = dict(self._now)
        self._changes: list[tuple[int, str, bool, File | None]] = []  # order, name, created or removed, content
        self._begun: dict[tuple[str, int], int] = {}
        self._order = 0

    def apply(self, operation: Operation) -> None:
        self._order += 1
        kind, name = operation.kind, operation.name
        if kind == "c" and name not in self._now:
            self._name(name, File())
        elif kind == "m":
            self._name(name, None)
        elif kind == "u":
            self._unname(name)
        elif kind == "r" and name in self._now:
            target = operation.data.decode()
            self._name(target, self._now[name])
            self._unname(name)
        elif kind in (_WRITE, _TRUNCATE):
            if (file := self._now.get(name)) is not None:
                file.change(self._order, operation)
        elif kind == "b":
            self._begun[name, operation.at] = self._order
        elif kind == "s":
            self._sync(name, self._begun.pop((name, operation.at), 0))

    def _name(self, name: str, what: File | None) -> None:
        self._now[name] = what
        self._changes.append((self._order, name, True, what))

    def _unname(self, name: str) -> None:
        self._changes.append((self._order, name, False, self._now.pop(name, None)))

    def _sync(self, name: str, order: int) -> None:
        file = self._now.get(name) if name else None
        if file is not None:
            file.sync(order)
            return
        for change in [one for one in self._changes if one[0] < order and os.path.dirname(one[1]) == name]:
            _rename(self._sure, change)
            self._changes.remove(change)

    def image(self, chance: random.Random) -> Image:
        """One content that the disk may have after power loss now."""
        choose, names = chance.choice(_CHOICES), dict(self._sure)
        kept = chance.choice((0.0, 0.5, 1.0))
        for change in self._changes:
            if chance.random() < kept:
                _rename(names, change)
        there = {name: file for name, file in names.items() if _reachable(name, names)}
        return Image(
            {name: file.content(choose, chance) for name, file in there.items() if file is not None},
            sorted(name for name, file in there.items() if file is None),
        )


def _rename(names: dict[str, File | None], change: tuple[int, str, bool, File | None]) -> None:
    _, name, there, what = change
    if there:
        names[name] = what
    else:
        names.pop(name, None)


def _reachable(name: str, names: dict[str, File | None]) -> bool:
    if "/" not in name:
        return True
    parent = os.path.dirname(name)
    return parent in names and _reachable(parent, names)


def _apply(data: bytearray, operation: Operation, touched: set[int]) -> None:
    """Apply the operation and return the changed pages."""
    size, at = len(data), operation.at
    if operation.kind == _TRUNCATE:
        if at < size:
            del data[at:]
        else:
            data.extend(bytes(at - size))
        touched.update(range(min(at, size) // PAGE, -(-max(at, size) // PAGE)))
        return
    end = at + len(operation.data)
    if size < end:
        data.extend(bytes(end - size))
        touched.update(range(size // PAGE, -(-end // PAGE)))
    data[at:end] = operation.data
    touched.update(range(at // PAGE, -(-end // PAGE)))


def _sum(data: bytearray, page: int) -> int:
    part = bytes(data[page * PAGE : (page + 1) * PAGE])
    return hash((page, part)) if part else 0


# -- what came through ----------------------------------------------------------------------------------


def _nothing(pending: list[tuple[int, Operation]], chance: random.Random) -> list[Operation]:
    return []


def _everything(pending: list[tuple[int, Operation]], chance: random.Random) -> list[Operation]:
    return [operation for _, operation in pending]


def _the_first(pending: list[tuple[int, Operation]], chance: random.Random) -> list[Operation]:
    """The first operations, in order. The last of them is written in part."""
    done = [operation for _, operation in pending[: chance.randint(0, len(pending))]]
    if done and done[-1].kind == _WRITE and chance.random() < 0.5:
        last = done[-1]
        done[-1] = last._replace(data=last.data[: chance.randint(0, len(last.data))])
    return done


def _some(pending: list[tuple[int, Operation]], chance: random.Random) -> list[Operation]:
    """A random selection of complete operations."""
    kept = chance.choice((0.2, 0.5, 0.8, 0.95))
    return [operation for _, operation in pending if chance.random() < kept]


def _sectors(pending: list[tuple[int, Operation]], chance: random.Random) -> list[Operation]:
    """Each sector is independent: written, not written or torn. The file may get its new length before its bytes."""
    kept, torn, size = chance.choice((0.2, 0.5, 0.8, 0.95)), chance.choice((0.0, 0.0, 0.05)), chance.choice(SECTORS)
    long, done = chance.random() < 0.3, list[Operation]()
    for _, operation in pending:
        if operation.kind == _TRUNCATE:
            done += [operation] if chance.random() < kept else []
            continue
        end = operation.at + len(operation.data)
        if long:
            done.append(operation._replace(at=end, data=b""))
        at = operation.at
        while at < end:
            next_at = min(end, (at // size + 1) * size)
            luck, part = chance.random(), operation.data[at - operation.at : next_at - operation.at]
            if luck < kept:
                done.append(operation._replace(at=at, data=part))
            elif luck < kept + torn:
                done.append(operation._replace(at=at, data=chance.randbytes(len(part))))
            at = next_at
    return done


_CHOICES: tuple[Choice, ...] = (_nothing, _everything, *[_the_first] * 3, *[_some] * 3, *[_sectors] * 8)
"""The kinds of image. The first two kinds often give the same image."""
