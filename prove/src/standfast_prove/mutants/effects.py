"""Bugs that effects could have, each as a small patch, and the harness that has to find it.

sweep …    the crash sweep of that story: every crash, and an oracle outside the store
check …    a short scene of `effect_scenes`, for what no killed process can show
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
        "the world is touched first", "sweep effects:OnlyPlain", swapped(perform, "walk", act_first)
    ),
    "acknowledge before commit": Mutant(
        "the result is returned and never written",
        "sweep effects:OnlyPlain",
        swapped(perform, "_recorded", never_recorded),
    ),
    "doubt taken for done": Mutant(
        "what was perhaps sent is skipped",
        "sweep effects:OnlyPlain",
        swapped(resolve_doubt, "inquire", settled_as("applied")),
    ),
    "doubt taken for failed": Mutant(
        "what was perhaps sent is sent",
        "sweep effects:OnlyPlain",
        swapped(resolve_doubt, "inquire", settled_as("not_applied")),
    ),
    "an error proves that nothing was sent": Mutant(
        "any exception makes it failed",
        "sweep effects:Failing",
        swapped(perform, "_gave_up", lambda _: lambda store, work, row, error: perform._failed(store, row, error)),
    ),
    "give-up not recorded": Mutant(
        "an error leaves the lease", "check at_once", swapped(perform, "_gave_up", lambda _: lambda *_: None)
    ),
    "prose identifies": Mutant(
        "by is not used",
        "sweep effects:OnlyProbed",
        swapped(identity, "project", lambda _: lambda intent, by: intent),
    ),
    "key not compared": Mutant(
        "a key may name anything",
        "check conflict",
        swapped(begin_effect, "mismatch", lambda _: lambda row, wanted: None),
    ),
    "probe unknown taken for not applied": Mutant(
        "a shrug sends it again", "sweep effects:Shrugging", swapped(resolve_doubt, "_asked", taken_for_no)
    ),
    "not applied counts at once": Mutant(
        "a sleeping holder is not waited for",
        "check asleep",
        swapped(begin_effect, "_long_over", lambda _: lambda tx, row: True),
    ),
    "a window without an end": Mutant(
        "the remote never forgets",
        "check window",
        swapped(begin_effect, "remembered", lambda _: lambda tx, row, window_us: window_us is not None),
    ),
    "another key for each attempt": Mutant(
        "the remote cannot know it again", "sweep effects:OnlyIdempotent", swapped(identity, "call_key", one_call_key)
    ),
    "other words under the same key": Mutant(
        "a resend says what the caller says now",
        "sweep effects:OnlyIdempotent",
        swapped(perform, "_acted", lambda acted: lambda s, w, go, call: acted(s, w, go._replace(resent=False), call)),
    ),
    "no fence at the end": Mutant(
        "any attempt may acknowledge", "check sleeper", replaced("acknowledge", "AND attempt = :attempt", "")
    ),
    "attempt not increased": Mutant(
        "the attempt number does not grow",
        "check sleeper",
        replaced("dispatch", "attempt = attempt + 1", "attempt = attempt"),
    ),
    "ended twice": Mutant(
        "an acknowledged effect may be acknowledged again",
        "check late_twice",
        replaced("acknowledge", "AND state = 'dispatched'", ""),
    ),
    "no owner": Mutant(
        "a session that was taken over may begin",
        "check taken",
        replaced("insert", "AND s.fence = :session_fence AND s.holder = :session_holder", ""),
    ),
    "second thread not refused": Mutant(
        "two threads of one process", "check second_thread", swapped(perform, "alone", lambda _: nobody_else)
    ),
    "the dead are alive": Mutant(
        "a crash is waited for",
        "sweep effects:OnlyPlain",
        swapped(leases, "is_gone", lambda _: lambda holder, clock: False),
    ),
    "replay without sync": Mutant(
        "acting on what may vanish", "check young", swapped(transitions, "YOUNG_US", lambda _: 0)
    ),
    "not decoded from what was stored": Mutant(
        "first run and replay differ",
        "check stored",
        swapped(serial, "read", lambda read: lambda text: (1, 2) if text == "[1,2]" else read(text)),
    ),
    "pruned, and done again": Mutant(
        "a tombstone is not seen", "check pruned", swapped(texts, "closed", lambda _: lambda row: None)
    ),
    "three commits": Mutant(
        "planned and dispatched apart",
        "check commits",
        swapped(
            perform,
            "_begin_once",
            lambda begin: lambda s, id, w, f: (begin(s, id, w._replace(plan=True), f), begin(s, id, w, f))[1],
        ),
    ),
    "nobody is asked": Mutant(
        "approve is not heard",
        "check yes",
        swapped(perform, "prepare", lambda made: lambda *a, **k: made(*a, **k)._replace(approve=False, context=None)),
    ),
    "settle ignored": Mutant(
        "a probe's no counts while the request is on its way",
        "check settled",
        swapped(begin_effect, "unsettled_us", lambda _: lambda tx, row, settle_us: 0),
    ),
    "a swallowed doubt lets the next effect pass": Mutant(
        "a variation is sent", "check swallowed", swapped(begin_effect, "stopped", lambda _: lambda *args: None)
    ),
    "proceed for ever": Mutant(
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
        "no later call settles it", "check swallowed", swapped(ownership, "expected", lambda _: lambda *args: None)
    ),
    "the same effect elsewhere is sent": Mutant(
        "another session key is another effect",
        "check elsewhere",
        replaced("same_elsewhere", "AND tool = :tool", "AND tool = :tool AND 1 = 0"),
    ),
    "a late failure ends attempt 2": Mutant(
        "any attempt may fail", "check late_failure", replaced("fail", "AND attempt = :attempt", "")
    ),
    "a late error ends attempt 2": Mutant(
        "any attempt may give up", "check late_failure", replaced("give_up", "AND attempt = :attempt", "")
    ),
    "a nested effect is recorded": Mutant(
        "an effect inside an effect", "check nested", swapped(user_code, "refuse_nested", lambda _: lambda what: None)
    ),
    "an effect leaves no trace": Mutant(
        "nothing is journalled", "check journal", swapped(texts, "say", lambda _: lambda *a, **k: None)
    ),
}
