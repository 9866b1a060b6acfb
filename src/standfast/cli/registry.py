"""Which commands there are. A new one is a line here and a module beside this one.

The help screen, `help all`, completion and the tests are made of this table; nothing is
imported to show it. `front` commands are on the first screen, which has room for about twenty.
"""

from __future__ import annotations

from typing import NamedTuple


class Entry(NamedTuple):
    """One command: where it lives, what it is for, where it is shown."""

    name: str
    place: str
    """"module:attribute"; the attribute is a click command."""
    group: str
    summary: str
    front: bool = True


GROUPS = {
    "see": "See what is going on",
    "work": "Do work that survives",
    "together": "Work with other agents",
    "answer": "Answer for it",
    "keep": "Look after the store",
}

ENTRIES = (
    Entry("status", "standfast.cli.status:status_command", "see", "where, engine, counts, and what needs a person now"),
    Entry("where", "standfast.cli.where:where", "see", "the data directory, the store and its engine"),
    Entry("brief", "standfast.cli.brief:brief", "see", "what a starting agent must know, within its tokens"),
    Entry("demo", "standfast.cli.demo:demo", "work", "a process is killed and the next one remembers"),
    Entry("session", "standfast.cli.session:session", "work", "work that survives its processes: run, resume, take"),
    Entry("effect", "standfast.cli.effect:effect", "work", "what is sent outside: begin, done, fail, resolve, undo"),
    Entry("once", "standfast.cli.once:once", "work", "run a command once per key; its answer ever after"),
    Entry("decide", "standfast.cli.decision:decide", "work", "write down what, why and then, before doing it"),
    Entry(
        "decision",
        "standfast.cli.decision:decision",
        "work",
        "what was decided; close it, find it, withdraw it",
        front=False,
    ),
    Entry(
        "artifact", "standfast.cli.artifact:artifact", "work", "large bytes, known by what they contain", front=False
    ),
    Entry("task", "standfast.cli.task:task", "together", "what is to be done: one per problem, claimed by one worker"),
    Entry("state", "standfast.cli.state:state", "together", "values by name; a version decides between two writers"),
    Entry(
        "event",
        "standfast.cli.event:event",
        "together",
        "what happened, in streams of your own: append, consume",
        front=False,
    ),
    Entry("mail", "standfast.cli.mail:mail", "together", "to another agent: kept until it is done, or says why not"),
    Entry("loop", "standfast.cli.loop:loop", "together", "run a command on a schedule; every slot leaves its row"),
    Entry("agent", "standfast.cli.agent:agent", "together", "who takes part, what they are at", front=False),
    Entry(
        "daemon", "standfast.cli.daemon:daemon", "together", "fires loops and runs their commands: start, stop, install"
    ),
    Entry(
        "apply",
        "standfast.cli.apply:apply",
        "together",
        "make it as a file says: all or nothing, once per key",
        front=False,
    ),
    Entry("lock", "standfast.cli.lock:lock", "together", "one holder at a time for a file, a port, a deployment"),
    Entry(
        "webhook", "standfast.cli.webhook:webhook", "together", "what others deliver: once each, handled", front=False
    ),
    Entry("credit", "standfast.cli.credit:credit", "together", "a ledger of credits, one entry per key", front=False),
    Entry("approval", "standfast.cli.approval:approval", "answer", "what waits for a person's yes; ask, look, wait"),
    Entry("approve", "standfast.cli.approve:approve", "answer", "say yes to exactly these bytes, on a terminal"),
    Entry("deny", "standfast.cli.approve:deny", "answer", "say no, with a reason", front=False),
    Entry("gate", "standfast.cli.gate:gate", "answer", "commands that need a yes, or to be an effect", front=False),
    Entry("timeline", "standfast.cli.timeline:timeline", "answer", "what happened at 3am on Tuesday"),
    Entry("search", "standfast.cli.search:search", "answer", "words in everything said, decided, called and sent"),
    Entry(
        "verify", "standfast.cli.verify:verify", "answer", "prove that a receipt is still in the journal", front=False
    ),
    Entry("sql", "standfast.cli.sql:sql", "answer", "ask the store anything, read-only", front=False),
    Entry("mcp", "standfast.cli.mcp:mcp", "keep", "twelve tools for an agent, over stdio", front=False),
    Entry("install", "standfast.cli.install:install", "keep", "hooks for claude-code, codex, gemini-cli, opencode"),
    Entry("hook", "standfast.cli.hook_help:hook", "keep", "what installed hooks call; reads stdin", front=False),
    Entry("db", "standfast.cli.db:db", "keep", "what is connected and why; choose SQLite or PostgreSQL"),
    Entry("store", "standfast.cli.stores:store", "keep", "remembered stores; create one, reset one", front=False),
    Entry("doctor", "standfast.cli.doctor:doctor", "keep", "check the store and its place; --fix what is safe"),
    Entry("import", "standfast.cli.import_:import_", "keep", "transcripts of agents, before they delete them"),
    Entry(
        "bench", "standfast_prove.cli.bench:bench", "keep", "our own ratios, on this machine and this disk", front=False
    ),
    Entry(
        "prove",
        "standfast_prove.cli.prove:prove",
        "keep",
        "try to lose or double a record, on this machine",
        front=False,
    ),
    Entry("help", "standfast.cli.help:help_command", "keep", "all | exit-codes | COMMAND", front=False),
    Entry("completion", "standfast.cli.completion:completion", "keep", "bash | zsh | fish", front=False),
)

BY_NAME = {entry.name: entry for entry in ENTRIES}
