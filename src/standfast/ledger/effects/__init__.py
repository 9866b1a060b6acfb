"""Effects: calls that change an outside system, and the record of what was sent.

               begin                                   done
     (nothing) ─────▶ planned ──dispatch──▶ dispatched ─────▶ acknowledged ─compensate▶ compensated
                         │                     ├─ fail ─▶ failed (known NOT applied)
                         └─▶ superseded        └─ holder gone = IN DOUBT (derived)

standfast commits the intent before it sends the request, and the result before it returns it. The caller gets the
decoded stored value, also the first time. After a kill at any line the next process finds nothing, an intent in
doubt, or a result. It never sends a second time without a check.

    declared.py      @standfast.effect: a declared function is called; no store needed
    call.py          its arguments, and the answers of it and its probe
    signatures.py    which parameters of a user's function take what
    intent.py        from a call to its whole request, before anything is recorded
    identity.py      what makes two effects the same: keys, hashes, differences
    perform.py       begin, call the user's function, finish
    begin.py         what a call finds under its identity, and what it may do about it
    transitions.py   the state machine: each change a compare-and-set on the attempt
    resolve_doubt.py in doubt: probe, the same key again, a person
    one_at_a_time.py one call at a time in this process
    compensate.py    a compensation is an effect of its own
    agent_tools.py   functions as an agent's tools
    resource.py      sf.effects: list, settle, and the split form for shells and hooks
    models.py        the models: an effect, and what the next call would do
    texts.py         texts of effects: journal, people, errors

Left to others: the session of a call (`ledger/current.py`),
the owner of a session (`opening`), leases (`leases`), approvals (`approvals`).
"""
