"""Receive, store and answer the reports of agents' hooks.

    payloads.py     turn the payload of any agent into one record: redacted and bounded
    record.py       write a record into the store: its session, tool call and event, once
    spool.py        keep records in files while the store cannot be written, and import them later
    spool_paths.py  the directories of spools
    attention.py    tell hooks whether anything waits for their agent, without the store
    judge.py        refuse tool calls that need a person or an effect first
    limits.py       count the usage of transcripts, and refuse calls if a budget is exhausted
    unanswered.py   look up calls that an agent made before a crash
    pushes.py       judge `git push` in git's own hook
    answers.py      the answer to each agent, in its format

A hook runs inside an agent's turn. It never raises, it has a deadline, and it usually prints nothing.
"""
