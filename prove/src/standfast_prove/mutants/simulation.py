"""Bugs that need several faults in one run. The simulation has to find each of them.

fences     a paused process may write after another process took over
keys       a key is looked up in one transaction and used in the next
time       leases depend on a clock that people set; live processes count as dead
doubt      a doubt counts as a failure, or is settled by an attempt that proves nothing about the one before
"""

from __future__ import annotations

from typing import Any

from standfast.clock import ManualClock
from standfast.core import leases
from standfast.errors import NotFound, VersionConflict
from standfast.ledger.effects import begin, perform, resolve_doubt
from standfast.ledger.webhooks import claims as webhook_claims
from standfast.record.loops import runs
from standfast.record.mail import claims
from standfast.record.state import State
from standfast.record.tasks import changes, resource
from standfast_prove.mutants.patching import Mutant, Patch, Setter, both, swapped


def believed(module: Any, *names: str) -> Patch:
    """No write is refused because of its fencing token."""
    return both(*(swapped(module, name, lambda _: lambda *args, **more: None) for name in names))


def closed_again(m: Setter) -> None:
    """A late holder may close a closed task."""
    m.setattr(changes.CLAIMS, "refusal", lambda tx, row, which: None)
    m.setattr(resource, "_closed_before", lambda tx, row, which: which)


def looked_before(m: Setter) -> None:
    """The version is compared in one transaction, and the value written in the next."""

    def swap(self: Any, key: str, value: Any, *, version: int) -> Any:
        try:
            found = self.get(key).version
        except NotFound:
            found = 0
        if found != version:
            raise VersionConflict(f"{key} is at version {found}", "read it again")
        return self.set(key, value)

    m.setattr(State, "swap", swap)


def settled_as_failed(inquire: Any) -> Any:
    def patched(store: Any, wanted: Any, doubt: Any, call: Any) -> Any:
        return begin.Finding(doubt.row["attempt"], "not_applied", None, "guessed")

    return patched


def unsent_is_proof(acted: Any) -> Any:
    """A resend that was not sent settles the previous attempt."""
    return lambda store, work, go, call: acted(store, work, go._replace(resent=False), call)


_FEW = {"simulations": 25}


def _found(what: str, patch: Patch) -> Mutant:
    return Mutant(what, "campaign simulation", patch, _FEW)


MUTANTS: dict[str, Mutant] = {
    "a late worker closes the task": _found("the fencing token of a task is not compared", closed_again),
    "a late reader ends the mail": _found(
        "the fencing token of a mail is not compared", believed(claims.CLAIMS, "refusal")
    ),
    "a late worker ends the webhook event": _found(
        "the fencing token of an event is not compared", believed(webhook_claims.CLAIMS, "refusal", "check_held")
    ),
    "a late attempt ends the run": _found(
        "the attempt of a run is not compared",
        swapped(runs, "_held", lambda _: lambda tx, run_id, attempt: runs._locked(tx, run_id)),
    ),
    "compared outside the transaction": _found("two writers can see the same version and both write", looked_before),
    "a lease by the wall clock": _found(
        "a change of the date ends it", swapped(ManualClock, "mono_us", lambda _: lambda self: self.now_us())
    ),
    "a live process counts as dead": _found(
        "its lease can be taken",
        swapped(leases, "is_gone", lambda gone: lambda holder, clock: holder.startswith("p:") or gone(holder, clock)),
    ),
    "every doubt is a failure": _found(
        "an effect in doubt counts as not applied, and is sent again",
        swapped(resolve_doubt, "inquire", settled_as_failed),
    ),
    "a resend settles the earlier attempt": _found(
        "attempt 1 is recorded as not applied although it arrived", swapped(perform, "_acted", unsent_is_proof)
    ),
}


def found_by_the_simulation(mutant: Mutant, place: Any, *, simulations: int = 200) -> str | None:
    """The violation that the simulation finds in this process with the bug, or None."""
    from standfast_prove.campaigns.simulation import run
    from standfast_prove.mutants.patching import Patching

    with Patching() as patch:
        mutant.patch(patch)
        outcome = run(place, seed=0, simulations=simulations)
    return f"after {outcome.seen['simulations']}: {outcome.bad[0]}" if outcome.bad else None
