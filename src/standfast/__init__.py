"""standfast: the durable state under coding agents. Agents crash; the state stands fast.

    import standfast

    with standfast.open() as sf:
        ...

Names are loaded on first use, because agents start this program hundreds of times an hour.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as type checkers read it; importing `typing` for it would cost 15 ms

if TYPE_CHECKING:
    from standfast.aio import AsyncStandfast
    from standfast.errors import (
        ApprovalRequired,
        Busy,
        CommitUnknown,
        Conflict,
        Corrupt,
        EffectInDoubt,
        IllegalTransition,
        InProgress,
        InvalidInput,
        KeyConflict,
        LeaseLost,
        NotFound,
        SchemaTooNew,
        StandfastError,
        StorageError,
        UnsafeStorage,
        VersionConflict,
    )
    from standfast.handle import Standfast, aopen, open
    from standfast.ledger.effects.call import Applied, Call, NotApplied, RepeatedEffect, Unknown
    from standfast.ledger.effects.declared import effect
    from standfast.record.live import Session

__version__ = "0.2.0.dev0"

_HOMES = {
    "standfast.aio": ("AsyncStandfast",),
    "standfast.handle": ("Standfast", "aopen", "open"),
    "standfast.ledger.effects.call": ("Applied", "Call", "NotApplied", "RepeatedEffect", "Unknown"),
    "standfast.ledger.effects.declared": ("effect",),
    "standfast.record.live": ("Session",),
    "standfast.errors": (
        "ApprovalRequired",
        "Busy",
        "CommitUnknown",
        "Conflict",
        "Corrupt",
        "EffectInDoubt",
        "IllegalTransition",
        "InProgress",
        "InvalidInput",
        "KeyConflict",
        "LeaseLost",
        "NotFound",
        "SchemaTooNew",
        "StandfastError",
        "StorageError",
        "UnsafeStorage",
        "VersionConflict",
    ),
}
_WHERE = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "Applied",
    "Call",
    "NotApplied",
    "RepeatedEffect",
    "Unknown",
    "effect",
    "ApprovalRequired",
    "AsyncStandfast",
    "Busy",
    "CommitUnknown",
    "Conflict",
    "Corrupt",
    "EffectInDoubt",
    "IllegalTransition",
    "InProgress",
    "InvalidInput",
    "KeyConflict",
    "LeaseLost",
    "NotFound",
    "SchemaTooNew",
    "Session",
    "Standfast",
    "StandfastError",
    "StorageError",
    "UnsafeStorage",
    "VersionConflict",
    "aopen",
    "open",
]


def __getattr__(name: str) -> object:
    module = _WHERE.get(name)
    if module is None:
        raise AttributeError(f"module 'standfast' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
