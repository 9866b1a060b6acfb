"""What agents' hooks tell, as it happens: heard, kept, and answered.

    hearing.py    a payload of any agent as one plain record: redacted, bounded, ready to be stored
    keeping.py    a record into the store: the session, the tool call, the event; the same one twice is one
    spool.py      where a record goes while the store cannot be written, and how it comes back once
    places.py     where a spool may be, and whether anything is in it
    attention.py  which agents have nothing waiting, so that their hooks need no store
    gating.py     which tool calls must wait for a person or an effect
    answers.py    what is said back, each agent in its own format

A hook is a guest in somebody else's process: it never raises, never waits long, and says nothing
unless there is something to say.
"""
