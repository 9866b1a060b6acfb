"""Packages that standfast uses if they are installed, and how a module is loaded.

`load` imports a module on another thread, so that an exception in the caller cannot leave the import lock held.

Python's import lock of a module is taken and released by Python code. An exception that hits a thread in the middle of
a first import (a signal handler, `PyThreadState_SetAsyncExc`) can leave it held, and every other thread that imports
the module then waits forever. `load` imports it on a thread of our own, which gets no such exceptions. The caller waits
on a lock that is C code.
"""

from __future__ import annotations

import _thread
from importlib import import_module

PACKAGES = {
    "aws": ("boto3>=1.34,<2",),
    "postgres": ("psycopg[binary]>=3.2,<4",),
    "mcp": ("mcp>=2.3,<3",),
    "langgraph": ("langgraph-checkpoint>=4.2,<5",),
    "openai-agents": ("openai-agents>=0.22,<1",),
    "pydantic-ai": ("pydantic-ai-slim>=2.66,<3",),
    "s3": ("obstore>=0.12,<1",),
    "valkey": ("valkey>=6.1,<7",),
    "vectors": ("sqlite-vec>=0.1.9,<1",),
    "zstd": ("zstandard>=0.22,<1",),
}
"""The packages of each extra in pyproject.toml."""
UPGRADE = "upgrade standfast from where you got this one, then restart this process"

WAIT_MAX_S = 10.0
"""Afterwards the caller imports the module itself: it may hold the import lock of a module that this one needs."""

_loaded: set[str] = set()


def install(extra: str) -> str:
    """The command that installs the packages of an extra.

    It never names standfast, because the package index does not have that name yet and anyone could register it.
    """
    return " ".join(("pip install", *(f"'{package}'" for package in PACKAGES[extra])))


def load(name: str) -> None:
    """Return once `name` is imported, or its import has failed: the caller's own import then says why."""
    if name in _loaded:
        return
    done = _thread.allocate_lock()
    done.acquire()
    try:
        _thread.start_new_thread(_import, (name, done))
    except RuntimeError:
        return  # no more threads, or the interpreter ends: the caller imports it
    done.acquire(timeout=WAIT_MAX_S)


def _import(name: str, done: _thread.LockType) -> None:
    try:
        import_module(name)
        _loaded.add(name)
    except BaseException:  # noqa: BLE001  the caller imports it again and gets the error
        pass
    finally:
        done.release()
