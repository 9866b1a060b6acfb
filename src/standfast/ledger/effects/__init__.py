"""Effects: calls that change an outside system, and the record of what was sent.

               begin                                   done
     (nothing) ─────▶ planned ──dispatch──▶ dispatched ─────▶ acknowledged ─compensate▶ compensated
                         │                     ├─ fail ─▶ failed (known NOT applied)
                         └─▶ superseded        └─ holder gone = IN DOUBT (derived)

standfast commits the intent before it sends the request, and commits the result before it returns it. Every call,
the first one too, returns the value decoded from the store. If a process is killed at any line, the next process finds
nothing, an intent in doubt, or a result. standfast never sends a second time without a check.

    declared.py      @standfast.effect, and the call of a declared function
    intent.py        makes the request of a call and refuses bad arguments, before anything is recorded
    perform.py       begins, calls the user's function, finishes
    begin.py         decides by the stored row whether a call may send
    transitions.py   the state machine: each change is a compare-and-set on the attempt; its journal entry
    resolve_doubt.py settles a doubt: probe, the same key again, or a person
    compensate.py    compensates an effect by an effect of its own
    one_at_a_time.py one call at a time for each identity in this process
    identity.py      keys, hashes and the comparison of intents
    signatures.py    reads the signatures of users' functions
    call.py          Call, which a function receives, and the answers of a probe
    agent_tools.py   declared functions as an agent's tools
    resource.py      sf.effects: list, settle, and begin and done as two calls for shells and hooks
    models.py        Effect, Verdict, and finding a row
    texts.py         lines for people and errors

Other modules have the current session of a call (`ledger/current.py`), the fence of a session
(`ledger/openings.py`), leases (`core/leases.py`) and approvals (`ledger/approvals.py`).
"""
