"""Every seeded bug by its name, and how a process gets one.

`standfast prove` starts children with STANDFAST_PROVE_MUTANT in their environment; `faults.children` reads it
there, and applies the patch before anything else is done. The product has no `if` for any of this.
"""

from __future__ import annotations

import os
from functools import cache
from importlib import import_module
from importlib.util import find_spec

from standfast.errors import InvalidInput
from standfast_prove.mutants.patching import Mutant, Patching

VARIABLE = "STANDFAST_PROVE_MUTANT"
MODULES = ("effects", "engine", "stores", "resources", "loops", "shells", "simulation", "views")


@cache
def every() -> dict[str, Mutant]:
    """In the order of the table: name, and the bug."""
    found: dict[str, Mutant] = {}
    for module in MODULES:
        place = f"{__package__}.{module}"
        if find_spec(place) is not None:
            found |= import_module(place).MUTANTS
    return found


def named(name: str) -> Mutant:
    if name not in every():
        raise InvalidInput(f"no seeded bug is named {name!r}", "standfast prove --mutants --list")
    return every()[name]


_applied: set[str] = set()


def become(name: str) -> None:
    """This process, and everything it starts from now on, has the bug. There is no way back."""
    os.environ[VARIABLE] = name
    if name not in _applied:
        _applied.add(name)
        named(name).patch(Patching())


def become_what_was_asked() -> None:
    """In a child: the bug its parent has, if any."""
    if name := os.environ.get(VARIABLE):
        become(name)
