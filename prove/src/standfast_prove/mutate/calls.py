"""Records which functions and statements of the product this process executes. A trace function sees each call once.

A child process appends each name to the file that STANDFAST_TEST_SEEN names. The environment of a copied tree
(`tree.py`) loads this module in every child, so it imports nothing heavy.
"""

from __future__ import annotations

import os
import sys
import threading
from types import FrameType
from typing import Any

SEEN_VARIABLE = "STANDFAST_TEST_SEEN"
INSIDE = f"{os.sep}src{os.sep}standfast{os.sep}"


class Recorder:
    def __init__(self) -> None:
        self.known: set[int] = set()
        self.foreign: set[int] = set()
        self.names: set[str] = set()
        self.is_child = False
        self._files: dict[int, str] = {}

    def start(self) -> None:
        for name, module in list(sys.modules.items()):
            if name.startswith("standfast.") and type(found := vars(module).get("SQL")).__name__ == "Queries":
                self._register(found, name)
        threading.settrace(self.call)
        sys.settrace(self.call)

    def begin(self) -> None:
        self.known = set(self.foreign)
        self.names = set()

    def call(self, frame: FrameType, event: str, arg: object) -> None:
        code = frame.f_code
        if id(code) in self.known:
            return
        inside, _, file = code.co_filename.rpartition(INSIDE)
        if not inside:
            self.foreign.add(id(code))
        elif code.co_qualname == "Queries.__init__":
            self._queries(frame)
            return
        else:
            self.add(f"{file}:{code.co_qualname}")
        self.known.add(id(code))

    def add(self, name: str) -> None:
        if name in self.names:
            return
        self.names.add(name)
        if self.is_child and (path := os.environ.get(SEEN_VARIABLE)):
            with open(path, "a") as seen:
                seen.write(f"{name}\n")

    def _queries(self, frame: FrameType) -> None:
        """Called when a file of statements is loaded. From now on each name that is looked up is recorded."""
        loader = frame.f_back
        module = loader.f_locals.get("module") if loader else None
        if isinstance(module, str):
            self._register(frame.f_locals["self"], module)

    def _register(self, statements: object, module: str) -> None:
        self._files[id(statements)] = module.removeprefix("standfast.").replace(".", "/") + ".sql"
        type(statements).__getattribute__ = _looked_up  # type: ignore[method-assign]

    def looked_up(self, statements: object, name: str) -> None:
        if not name.startswith("_") and (file := self._files.get(id(statements))):
            self.add(f"{file}:{name}")

    def after_fork(self) -> None:
        self.is_child = True
        self.begin()


RECORDER = Recorder()


def _looked_up(self: object, name: str) -> Any:
    RECORDER.looked_up(self, name)
    return object.__getattribute__(self, name)


os.register_at_fork(after_in_child=RECORDER.after_fork)
if SEEN_VARIABLE in os.environ:
    RECORDER.is_child = True
    RECORDER.start()
