"""The first access to a resource imports its module; an exception there must not stop other threads."""

from __future__ import annotations

import contextlib
import dis
import inspect
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import standfast
from standfast import handle, modules
from standfast_prove.faults.children import Child, say

LOCKS = {"acquire", "release", "__enter__", "__exit__", "_get_module_lock", "_lock_unlock_module"}
LOOKS_FOR_EXCEPTIONS = {"CALL", "CALL_FUNCTION_EX", "RESUME", "JUMP_BACKWARD"}


class Hit(Exception):
    """What a signal handler of the application raises."""


class RaiseInImport:
    """Raises Hit at the nth place of this thread's import locks where the interpreter would."""

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
    """For each place, in a fork: the main thread is hit at its first access, then another thread uses the resource."""
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


@pytest.mark.parametrize("resource", ["tasks", "effects"])
def test_an_interrupted_first_access_leaves_no_import_lock_held(tmp_path: Path, resource: str) -> None:
    """000-1, 002-11: the next thread that uses the resource gets it."""
    with Child(
        "tests.test_modules:first_access_under_fire", directory=str(tmp_path), resource=resource, places=40
    ) as child:
        assert child.end(120) == ["[]"]


def test_every_resource_is_loaded_by_a_thread_of_ours() -> None:
    """000-1: each function of the handle that imports a module has it loaded first."""
    careless = []
    for name, member in inspect.getmembers(handle.Rooms):
        function = member.fget if isinstance(member, property) else member
        if not inspect.isfunction(function) or name.startswith("__"):
            continue
        imported = [one.argval for one in dis.get_instructions(function) if one.opname == "IMPORT_NAME"]
        loaded = [value for value in function.__code__.co_consts if isinstance(value, str)]
        careless += [f"{name}: {module}" for module in imported if module not in loaded]
    assert careless == []


def test_a_module_that_cannot_be_imported_says_so_to_its_caller() -> None:
    modules.load("standfast.no_such_module")
    with pytest.raises(ModuleNotFoundError):
        import standfast.no_such_module  # type: ignore[import-not-found]  # noqa: F401


def test_a_caller_inside_an_import_is_not_locked_out(tmp_path: Path) -> None:
    """A module that uses a resource while it is imported waits for no thread that waits for it."""
    (tmp_path / "agent.py").write_text(
        "import standfast\nsf = standfast.open(':memory:')\nsf.tasks.add('x')\nprint(len(sf.tasks.list()))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", "import agent"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        timeout=60,
    )
    assert (done.stdout, done.stderr) == ("1\n", "")


def test_without_another_thread_the_caller_imports() -> None:
    """At the end of the interpreter, or at a limit of threads, a first access works as before."""
    code = (
        "import _thread, standfast\n"
        "sf = standfast.open(':memory:')\n"
        'def refused(*_): raise RuntimeError("can\'t start new thread")\n'
        "_thread.start_new_thread = refused\n"
        "print(type(sf.decisions).__name__)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("Decisions\n", "")
