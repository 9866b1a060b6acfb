"""Receive, store and answer the reports of agents' hooks.

    payloads.py   a payload of any agent as one plain record: redacted, bounded, ready to be stored
    record.py     a record into the store: the session, the tool call, the event; the same one twice is one
    spool.py      where a record goes while the store cannot be written, and how it comes back once
    spool_paths.py  where a spool may be, and whether anything is in it
    attention.py  which agents have nothing waiting, so that their hooks need no store
    judge.py      which tool calls must wait for a person or an effect
    limits.py     usage that is counted afterwards, and what exhausted budgets refuse
    answers.py    answers, each agent in its own format

A hook runs inside an agent's turn: it never raises, never waits long, and says nothing
unless there is something to say.
"""
