"""The store as a simulated process uses it: each transaction is a step, and a dead process makes no more steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, TypeVar

from standfast.core import leases
from standfast.db.contract import Caller, Done, Engine, Row, Tx, Watch

if TYPE_CHECKING:
    from standfast_prove.simulation.machine import Process

T = TypeVar("T")


class Killed(BaseException):
    """Raised in a killed process. Its memory is lost, and its pending writes are not made."""


class Boundary(Engine):
    """The engine as one process sees it."""

    def __init__(self, engine: Engine, process: Process) -> None:
        self._engine, self._process = engine, process
        self.name, self.identity, self.dead = engine.name, f"{engine.identity} of {process.pid}", None

    def write(self, body: Callable[[Tx], T], caller: Caller, *, durable: bool = True) -> T:
        self._process.stands("write")
        written = self._engine.write(body, caller, durable=durable)
        self._process.passes("written")
        return written

    def read(self, body: Callable[[Tx], T], caller: Caller) -> T:
        self._process.stands("read")
        return self._engine.read(body, caller)

    def transaction(self, caller: Caller) -> AbstractContextManager[Tx]:
        self._process.stands("transaction")
        return self._engine.transaction(caller)

    def sync(self) -> None:
        self._process.passes("sync")
        self._engine.sync()

    def submit(self, body: Callable[[Tx], T], caller: Caller, done: Done[T]) -> Callable[[], bool]:
        raise NotImplementedError("one thread at a time")

    def rows(self, text: str, params: dict[str, object] | None = None) -> Iterator[Row]:
        return self._engine.rows(text, params)

    def watch(self) -> Watch:
        raise NotImplementedError("a simulation never waits in real time")

    def schema_version(self) -> int:
        return self._engine.schema_version()

    def facts(self) -> dict[str, object]:
        return self._engine.facts()

    def retain(self) -> None:
        pass

    def release(self) -> None:
        pass


class Renewing(leases.Renewer):
    """Lease renewals by the virtual clock, without a thread."""

    started = False

    def start(self) -> None:
        self.started = True
        self._good_until_us = self._mono_us() + leases.PROCESS_US - leases.MARGIN_US

    def due(self, mono_us: int) -> bool:
        since_us = self._good_until_us - (leases.PROCESS_US - leases.MARGIN_US)
        return self.started and mono_us - since_us >= leases.RENEW_EVERY_S * 1_000_000
