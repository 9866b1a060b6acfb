"""Exceptions that hit a thread while it holds Python's import lock of a module."""

from __future__ import annotations

import contextlib
import dis
import os
import sys
import threading
from types import FrameType
from typing import Any

import standfast
from standfast_prove.faults.children import say

LOCKS = {"acquire", "release", "__enter__", "__exit__", "_get_module_lock", "_lock_unlock_module"}
LOOKS_FOR_EXCEPTIONS = {"CALL", "CALL_FUNCTION_EX", "RESUME", "JUMP_BACKWARD"}


class Hit(Exception):
    """The exception that a signal handler of the application raises."""


class RaiseInImport:
    """Raises Hit at the n-th access of this thread to an import lock, where the interpreter can raise."""

    def __init__(self, nth: int) -> None:
        self.left = nth

    def frame(self, frame: FrameType, event: str, _: Any) -> Any:
        code = frame.f_code
        if code.co_filename != "<frozen importlib._bootstrap>" or code.co_name not in LOCKS:
            return None
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        last = [-1]

        def at_instruction(frame: FrameType, event: str, _: Any) -> Any:
            if event == "opcode":
                before, last[0] = last[0], frame.f_lasti
                if before >= 0 and dis.opname[code.co_code[before]] in LOOKS_FOR_EXCEPTIONS:
                    self.left -= 1
                    if self.left == 0:
                        raise Hit
            return at_instruction

        return at_instruction


def first_access_under_fire(directory: str, resource: str, places: int) -> None:
    """For each point, in a fork: an exception hits the first access of the main thread, then another thread uses the
    resource.
    """
    hung = []
    with standfast.open(directory + "/standfast.db", data_dir=directory) as sf:
        sf.journal  # noqa: B018  loads what every resource needs
        for nth in range(1, places):
            pid = os.fork()
            if pid == 0:
                interrupt = RaiseInImport(nth)
                sys.settrace(interrupt.frame)
                with contextlib.suppress(Hit):
                    getattr(sf, resource)
                sys.settrace(None)
                thread = threading.Thread(target=getattr, args=(sf, resource), daemon=True)
                thread.start()
                thread.join(5.0)
                os._exit(1 if thread.is_alive() else 0)
            if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != 0:
                hung.append(nth)
                break
    say(hung)
