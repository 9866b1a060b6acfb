"""Every seeded bug by its name, and the functions that patch a process with one.

`standfast prove` starts children with STANDFAST_PROVE_MUTANT in their environment. `faults.children` reads this
variable and applies the patch before it does anything else. The product has no switch for seeded bugs.
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
    """All bugs by name, in the order of the table."""
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
    """Patch this process with the bug, and every process that it starts later. The patch cannot be removed."""
    os.environ[VARIABLE] = name
    if name not in _applied:
        _applied.add(name)
        named(name).patch(Patching())


def become_what_was_asked() -> None:
    """In a child: apply the bug of the parent, if it has one."""
    if name := os.environ.get(VARIABLE):
        become(name)
