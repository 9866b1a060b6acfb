"""Awaited calls that come at once go together: puts in one commit, and one read for all who ask the same.

A caller joins only a batch that has not begun, so that no caller gets an answer from before its question.
"""

from __future__ import annotations

import asyncio
import copy
import threading
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from standfast.adapters.langgraph.connect import Shared
from standfast.errors import InvalidInput
from standfast.record.items import Change

T = TypeVar("T")

CHANGES_MAX = 50
"""How many changes go into one commit: few enough that a starved process does not hold it for long."""


class Together:
    """The puts and the reads of one store that are waiting for a thread."""

    def __init__(self, shared: Shared, change: Callable[[Sequence[Change]], None]) -> None:
        self._shared = shared
        self._change = change
        self._mutex = threading.Lock()
        self._puts: deque[tuple[Sequence[Change], Future[None]]] = deque()
        self._putting = False
        self._reads: dict[Hashable, Future[Any]] = {}

    async def put(self, changes: Sequence[Change]) -> None:
        """Durable when it returns; with others' or alone, and refused for none but its own faults."""
        done: Future[None] = Future()
        with self._mutex:
            self._puts.append((changes, done))
            begin, self._putting = not self._putting, True
        if begin:
            self._begin(self._put_all)
        await asyncio.wrap_future(done)

    async def read(self, asked: Hashable, read: Callable[[], T]) -> T:
        """The result of a `read` that started after this call began. `asked` names the question."""
        with self._mutex:
            found = self._reads.get(asked)
            mine = found is None
            if found is None:
                found = self._reads[asked] = Future()
        if mine:
            self._begin(lambda: self._read(asked, found, read))
        told: T = await asyncio.shield(asyncio.wrap_future(found))
        return told if mine else copy.deepcopy(told)

    def _begin(self, act: Callable[[], None]) -> None:
        try:
            self._shared.started(act)
        except RuntimeError:  # the interpreter is ending and gives no thread: waiting callers still get an answer
            act()

    def _read(self, asked: Hashable, done: Future[T], read: Callable[[], T]) -> None:
        with self._mutex:
            del self._reads[asked]
        _settled(done, read)

    def _put_all(self) -> None:
        while taken := self._taken():
            # Cancelled before it began, it has not happened; from here on it will.
            live = [one for one in taken if one[1].set_running_or_notify_cancel()]
            everything = [change for changes, _ in live for change in changes]
            try:
                self._change(everything)
            except InvalidInput:
                for changes, done in live:  # the fault of one is not the others'
                    _settled(done, lambda changes=changes: self._change(changes))  # type: ignore[misc]
            except BaseException as error:  # noqa: BLE001 - it belongs to those who wait
                for _, done in live:
                    done.set_exception(error)
            else:
                for _, done in live:
                    done.set_result(None)

    def _taken(self) -> list[tuple[Sequence[Change], Future[None]]]:
        with self._mutex:
            taken: list[tuple[Sequence[Change], Future[None]]] = []
            count = 0
            while self._puts and count < CHANGES_MAX:
                taken.append(self._puts.popleft())
                count += len(taken[-1][0])
            self._putting = bool(taken)
            return taken


def _settled(done: Future[T], act: Callable[[], T]) -> None:
    try:
        told = act()
    except BaseException as error:  # noqa: BLE001 - it belongs to those who wait
        done.set_exception(error)
    else:
        done.set_result(told)
