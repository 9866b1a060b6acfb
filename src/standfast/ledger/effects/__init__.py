"""Effects: what the outside world can see, and the proof of what was sent.

               begin                                   done
     (nothing) ─────▶ planned ──dispatch──▶ dispatched ─────▶ acknowledged ──undo──▶ compensated
                         │                     ├─ fail ─▶ failed (known NOT applied)
                         └─▶ superseded        └─ holder gone = IN DOUBT (derived)

The intent is committed before the world is touched, and the result before it is returned; what is
returned is decoded from what was stored, first time included. Killed at any line, the next
process finds nothing, an intent in doubt, or a result; and it never sends blindly a second time.

    declared.py      @standfast.effect: what a function says about itself, no store needed
    identity.py      what makes two effects the same: keys, hashes, differences
    transitions.py   the state machine: bodies of transactions, each a compare-and-set
    performing.py    begin, call, finish: the walk around other people's code
    room.py          sf.effects: look, settle, and the split form for shells and hooks

Left to others: who owns a session (`opening`), who holds what (`leases`), who said yes (`approvals`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from standfast.ledger.effects.performing import perform, tools
    from standfast.ledger.effects.room import Effect, Effects, Verdict

__all__ = ["Effect", "Effects", "Verdict", "perform", "tools"]

_HOMES = {
    "perform": "performing",
    "tools": "performing",
    "Effect": "room",
    "Effects": "room",
    "Verdict": "room",
}


def __getattr__(name: str) -> object:
    # Declaring an effect happens at import; the rest is loaded by the first one performed.
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{home}"), name)
