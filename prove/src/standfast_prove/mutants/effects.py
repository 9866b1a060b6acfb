"""Bugs in effects. Each is a small patch, with the harness that has to find it.

sweep …    the crash sweep of that program: every crash, and an oracle outside the store
check …    a short scene of `effect_scenes`, for bugs that no killed process can show
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from standfast import crash, serial
from standfast.core import leases, user_code
from standfast.ledger.effects import begin as begin_effect
from standfast.ledger.effects import identity, perform, resolve_doubt, texts, transitions
from standfast.ledger.effects.call import Call, NotApplied, Unknown
from standfast.record.sessions import ownership
from standfast_prove.mutants.patching import Mutant, Patch, reworded, swapped

# -- patches ------------------------------------------------------------------------------------------------


def replaced(name: str, old: str, new: str) -> Patch:
    return reworded(transitions.SQL, name, old, new)


def act_first(walk: Any) -> Any:
    def patched(store: Any, wanted: Any, **more: Any) -> Any:
        if store.read(lambda tx: perform._look(tx, wanted)) is None:
            call = Call(identity.call_key("x", wanted.scope, wanted.key), 1, None)
            value = wanted.act(None, call)
            crash.point("effect.before_begin")
            return walk(store, wanted._replace(act=lambda *_: value), **more)
        return walk(store, wanted, **more)

    return patched


def never_recorded(recorded: Any) -> Any:
    return lambda store, row, result, artifact_id: crash.point("effect.before_done")


def settled_as(answer: str) -> Callable[[Any], Any]:
    def make(inquired: Any) -> Any:
        def patched(store: Any, wanted: Any, doubt: Any, call: Any) -> Any:
            result = '"skipped"' if answer == "applied" else None
            return begin_effect.Finding(doubt.row["attempt"], answer, result, "guessed")

        return patched

    return make


def taken_for_no(asked: Any) -> Any:
    def patched(*args: Any) -> Any:
        answer = asked(*args)
        return NotApplied() if isinstance(answer, Unknown) else answer

    return patched


def one_call_key(call_key: Any) -> Any:
    return lambda store_id, scope, key: call_key(store_id, scope, f"{key}{os.urandom(4).hex()}")


@contextmanager
def nobody_else(*_: Any) -> Iterator[None]:
    yield


MUTANTS: dict[str, Mutant] = {
    "act before the intent is recorded": Mutant(
        "the function is called before its intent is stored",
        "sweep effects:OnlyPlain",
        swapped(perform, "walk", act_first),
    ),
    "acknowledge before commit": Mutant(
        "the result is returned and never stored",
        "sweep effects:OnlyPlain",
        swapped(perform, "_recorded", never_recorded),
    ),
    "doubt taken for done": Mutant(
        "an effect in doubt counts as applied, and is not sent",
        "sweep effects:OnlyPlain",
        swapped(resolve_doubt, "inquire", settled_as("applied")),
    ),
    "doubt taken for failed": Mutant(
        "an effect in doubt counts as not applied, and is sent again",
        "sweep effects:OnlyPlain",
        swapped(resolve_doubt, "inquire", settled_as("not_applied")),
    ),
    "an error proves that nothing was sent": Mutant(
        "any exception of the function marks the effect as failed",
        "sweep effects:Failing",
        swapped(perform, "_gave_up", lambda _: lambda store, work, row, error: perform._failed(store, row, error)),
    ),
    "give-up not recorded": Mutant(
        "after an exception the effect stays dispatched",
        "check at_once",
        swapped(perform, "_gave_up", lambda _: lambda *_: None),
    ),
    "all arguments identify an effect": Mutant(
        "`by` is ignored",
        "sweep effects:OnlyProbed",
        swapped(identity, "project", lambda _: lambda intent, by: intent),
    ),
    "key not compared": Mutant(
        "a used key is accepted for other arguments",
        "check conflict",
        swapped(begin_effect, "mismatch", lambda _: lambda row, wanted: None),
    ),
    "probe unknown taken for not applied": Mutant(
        "the answer `Unknown` sends the effect again",
        "sweep effects:Shrugging",
        swapped(resolve_doubt, "_asked", taken_for_no),
    ),
    "a probe of a stopped process counts at once": Mutant(
        '"not applied" is believed while the holder can still send',
        "check asleep",
        swapped(begin_effect, "_long_over", lambda _: lambda tx, row: True),
    ),
    "an idempotency key never expires": Mutant(
        "the effect is sent again after the remote has forgotten the key",
        "check window",
        swapped(begin_effect, "remembered", lambda _: lambda tx, row, window_us: window_us is not None),
    ),
    "another key for each attempt": Mutant(
        "the remote cannot recognise the second request",
        "sweep effects:OnlyIdempotent",
        swapped(identity, "call_key", one_call_key),
    ),
    "a resend uses new arguments": Mutant(
        "the second request has the key of the first, with the caller's new arguments",
        "sweep effects:OnlyIdempotent",
        swapped(perform, "_acted", lambda acted: lambda s, w, go, call: acted(s, w, go._replace(resent=False), call)),
    ),
    "a late attempt stores its result": Mutant(
        "the attempt number is not compared when a result is stored",
        "check sleeper",
        replaced("acknowledge", "AND attempt = :attempt", ""),
    ),
    "the attempt number does not grow": Mutant(
        "a second dispatch keeps the number of the first",
        "check sleeper",
        replaced("dispatch", "attempt = attempt + 1", "attempt = attempt"),
    ),
    "an effect ends twice": Mutant(
        "an acknowledged effect can be acknowledged again",
        "check late_twice",
        replaced("acknowledge", "AND state = 'dispatched'", ""),
    ),
    "a lost session begins effects": Mutant(
        "a process whose session was taken over can still begin an effect",
        "check taken",
        replaced("insert", "AND s.fence = :session_fence AND s.holder = :session_holder", ""),
    ),
    "second thread not refused": Mutant(
        "two threads of one process make the same call",
        "check second_thread",
        swapped(perform, "alone", lambda _: nobody_else),
    ),
    "a dead holder counts as alive": Mutant(
        "the next process waits for the lease of a killed one",
        "sweep effects:OnlyPlain",
        swapped(leases, "is_gone", lambda _: lambda holder, clock: False),
    ),
    "replay without sync": Mutant(
        "a result is returned before its row is on disk", "check young", swapped(transitions, "YOUNG_US", lambda _: 0)
    ),
    "the first call returns the undecoded result": Mutant(
        "first run and replay differ",
        "check stored",
        swapped(serial, "read", lambda read: lambda text: (1, 2) if text == "[1,2]" else read(text)),
    ),
    "a pruned effect is sent again": Mutant(
        "the row that pruning leaves is ignored", "check pruned", swapped(texts, "closed", lambda _: lambda row: None)
    ),
    "planned and dispatched are two commits": Mutant(
        "an effect needs three commits",
        "check commits",
        swapped(
            perform,
            "_begin_once",
            lambda begin: lambda s, id, w, f: (begin(s, id, w._replace(plan=True), f), begin(s, id, w, f))[1],
        ),
    ),
    "no approval is asked for": Mutant(
        "`approve=True` is ignored",
        "check yes",
        swapped(perform, "prepare", lambda made: lambda *a, **k: made(*a, **k)._replace(approve=False, context=None)),
    ),
    "the settle time is ignored": Mutant(
        'a probe\'s "not applied" counts while the request may still arrive',
        "check settled",
        swapped(begin_effect, "unsettled_us", lambda _: lambda tx, row, settle_us: 0),
    ),
    "a swallowed doubt lets the next effect pass": Mutant(
        "the same effect with other arguments is sent",
        "check swallowed",
        swapped(begin_effect, "stopped", lambda _: lambda *args: None),
    ),
    "proceed has no end": Mutant(
        "a later attempt in doubt does not stop the session",
        "check swallowed",
        swapped(
            begin_effect,
            "_stops",
            lambda _: (
                lambda tx, row, session_id, cut_seq: (
                    tx.maybe(transitions.SQL.proceeded, id=row["id"], session_id=session_id, cut_seq=cut_seq or 0)
                    is None
                )
            ),
        ),
    ),
    "a swallowed doubt completes the session": Mutant(
        "the session ends as completed, so no later call settles the doubt",
        "check swallowed",
        swapped(ownership, "expected", lambda _: lambda *args: None),
    ),
    "the same effect elsewhere is sent": Mutant(
        "the same effect under another session key is not refused",
        "check elsewhere",
        replaced("same_elsewhere", "AND tool = :tool", "AND tool = :tool AND 1 = 0"),
    ),
    "a late failure ends attempt 2": Mutant(
        "attempt 1 can mark attempt 2 as failed", "check late_failure", replaced("fail", "AND attempt = :attempt", "")
    ),
    "a late error ends attempt 2": Mutant(
        "an exception of attempt 1 marks attempt 2 as in doubt",
        "check late_failure",
        replaced("give_up", "AND attempt = :attempt", ""),
    ),
    "a nested effect is recorded": Mutant(
        "an effect can begin inside the function of another effect",
        "check nested",
        swapped(user_code, "refuse_nested", lambda _: lambda what: None),
    ),
    "an effect is not in the journal": Mutant(
        "no journal row is appended",
        "check journal",
        swapped(transitions, "journal_change", lambda _: lambda *a, **k: None),
    ),
}
