"""Effects: what the outside world can see, and the proof of what was sent.

               begin                                   done
     (nothing) ─────▶ planned ──dispatch──▶ dispatched ─────▶ acknowledged ──undo──▶ compensated
                         │                     ├─ fail ─▶ failed (known NOT applied)
                         └─▶ superseded        └─ holder gone = IN DOUBT (derived)

The intent is committed before the world is touched, and the result before it is returned; what is
returned is decoded from what was stored, first time included. Killed at any line, the next
process finds nothing, an intent in doubt, or a result; and it never sends blindly a second time.

    declared.py      @standfast.effect: what a function says about itself, no store needed
    call.py          what it is told, and what it and its probe may answer
    signatures.py    reading other people's parameters
    work.py          what is to be done, whatever form it was given in
    identity.py      what makes two effects the same: keys, hashes, differences
    performing.py    begin, call, finish: the walk around other people's code
    finding.py       what a call finds under its identity, and what it may do about it
    transitions.py   the state machine: each change a compare-and-set on the attempt
    doubting.py      in doubt: probe, the same key again, a person
    alone.py         one call at a time in this process
    undoing.py       an undo is an effect of its own
    tooling.py       functions as an agent's tools
    room.py          sf.effects: look, settle, and the split form for shells and hooks
    nouns.py         an effect as it stands, and what the next call would do
    words.py         what effects say: journal, people, errors

Left to others: who owns a session (`opening`), who holds what (`leases`), who said yes (`approvals`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from standfast.ledger.effects.nouns import Effect, Verdict
    from standfast.ledger.effects.performing import perform
    from standfast.ledger.effects.room import Effects
    from standfast.ledger.effects.tooling import tools

__all__ = ["Effect", "Effects", "Verdict", "perform", "tools"]

_HOMES = {
    "perform": "performing",
    "tools": "tooling",
    "Effect": "nouns",
    "Effects": "room",
    "Verdict": "nouns",
}


def __getattr__(name: str) -> object:
    # Declaring an effect happens at import; the rest is loaded by the first one performed.
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{home}"), name)
