"""Copies for people and other programs: what comes in from elsewhere, and what goes out.

    from standfast.interchange import Imports, Report        # the resource behind `sf.imports`

Nothing here is the record itself: an import writes into the record, and what it read stays where it was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from standfast.interchange.imports import Imported, Imports, Report, Source

__all__ = ["Imported", "Imports", "Report", "Source"]


def __getattr__(name: str) -> object:
    if name in __all__:
        from standfast.interchange import imports

        return getattr(imports, name)
    raise AttributeError(name)
