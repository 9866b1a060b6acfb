"""standfast: the durable state under coding agents. Agents crash; the state stands fast.

    import standfast

    with standfast.open() as sf:
        ...

Names are loaded on first use, because agents start this program hundreds of times an hour.
"""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers accept this name; importing `typing` would cost 15 ms

if TYPE_CHECKING:
    from standfast.admin.whole_store import move, restore
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
        NoAnswer,
        NoSession,
        NotFound,
        SchemaTooNew,
        StandfastError,
        StorageError,
        UnsafeStorage,
        VersionConflict,
    )
    from standfast.handle import Standfast, aopen, open, session
    from standfast.ledger.effects.call import Applied, Call, NotApplied, RepeatedEffect, Unknown
    from standfast.ledger.effects.declared import ALL, effect
    from standfast.ledger.effects.not_sent import NOT_SENT
    from standfast.record.chat import ToolCall, orphans, to_anthropic, to_openai
    from standfast.record.open_session import Session
    from standfast.record.steps import step

__version__ = "0.2.0.dev0"

_HOMES = {
    "standfast.admin.whole_store": ("move", "restore"),
    "standfast.aio": ("AsyncStandfast",),
    "standfast.handle": ("Standfast", "aopen", "open", "session"),
    "standfast.ledger.effects.call": ("Applied", "Call", "NotApplied", "RepeatedEffect", "Unknown"),
    "standfast.ledger.effects.declared": ("ALL", "effect"),
    "standfast.ledger.effects.not_sent": ("NOT_SENT",),
    "standfast.record.chat": ("ToolCall", "orphans", "to_anthropic", "to_openai"),
    "standfast.record.open_session": ("Session",),
    "standfast.record.steps": ("step",),
}
"""The modules of the public names. All others are errors."""
_WHERE = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "ALL",
    "NOT_SENT",
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
    "NoAnswer",
    "NoSession",
    "NotFound",
    "SchemaTooNew",
    "Session",
    "Standfast",
    "StandfastError",
    "StorageError",
    "ToolCall",
    "UnsafeStorage",
    "VersionConflict",
    "aopen",
    "move",
    "open",
    "orphans",
    "restore",
    "session",
    "step",
    "to_anthropic",
    "to_openai",
]


if not TYPE_CHECKING:  # a type checker must refuse unknown names

    def __getattr__(name: str) -> object:
        if name not in __all__:
            from standfast.errors import NoAttribute

            raise NoAttribute("module 'standfast'", name, __all__)
        from importlib import import_module

        value = getattr(import_module(_WHERE.get(name, "standfast.errors")), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
