"""The first access to a resource imports its module. An exception in the import must not block other threads."""

from __future__ import annotations

import dis
import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest

from standfast import handle, modules
from standfast_prove.faults.children import Child


@pytest.mark.parametrize("resource", ["tasks", "effects"])
def test_an_interrupted_first_access_leaves_no_import_lock_held(tmp_path: Path, resource: str) -> None:
    """000-1, 002-11: the next thread can use the resource."""
    with Child(
        "standfast_prove.faults.imports:first_access_under_fire", directory=str(tmp_path), resource=resource, places=40
    ) as child:
        assert child.end(120) == ["[]"]


def test_every_resource_is_loaded_by_a_thread_of_ours() -> None:
    """000-1: each function of the handle that imports a module first loads it in standfast's own thread."""
    careless = []
    for name, member in inspect.getmembers(handle.Resources):
        function = member.fget if isinstance(member, property) else member
        if not inspect.isfunction(function) or name.startswith("__"):
            continue
        imported = [one.argval for one in dis.get_instructions(function) if one.opname == "IMPORT_NAME"]
        loaded = [value for value in function.__code__.co_consts if isinstance(value, str)]
        careless += [f"{name}: {module}" for module in imported if module not in loaded]
    assert careless == []


def test_a_module_that_cannot_be_imported_raises_in_its_caller() -> None:
    modules.load("standfast.no_such_module")
    with pytest.raises(ModuleNotFoundError):
        import standfast.no_such_module  # type: ignore[import-not-found]  # noqa: F401


def test_a_caller_inside_an_import_is_not_locked_out(tmp_path: Path) -> None:
    """A module may use a resource while it is being imported. No deadlock with the loading thread occurs."""
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
    """At interpreter shutdown, or if no thread can be started, the first access imports in the calling thread."""
    code = (
        "import _thread, standfast\n"
        "sf = standfast.open(':memory:')\n"
        'def refused(*_): raise RuntimeError("can\'t start new thread")\n'
        "_thread.start_new_thread = refused\n"
        "print(type(sf.decisions).__name__)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("Decisions\n", "")
