"""The table of commands. A new command is a line here and a module beside this one.

The help screen, `help all`, completion and tests use this table, so that they import no command. The first screen shows
the commands in FRONT.
"""

from __future__ import annotations

from typing import NamedTuple


class Entry(NamedTuple):
    """One command: its name, its place, its group on the help screen, and a summary."""

    name: str
    place: str
    """"module:attribute"; the attribute is a click command."""
    group: str
    summary: str

    @property
    def front(self) -> bool:
        return self.name in FRONT


GROUPS = {
    "see": "See",
    "work": "Work",
    "together": "Together",
    "answer": "Answer",
    "keep": "Keep",
    "set_up": "Set up",
}
FRONT = (
    *("status", "timeline", "show", "search", "ui"),
    *("session", "effect", "once", "decide", "task", "state"),
    *("mail", "loop", "lock"),
    *("approve", "gate", "budget"),
    *("backup", "restore", "undo", "export"),
    *("install", "db", "doctor"),
)
"""The commands of the first screen; `help all` has the rest."""

ENTRIES = (
    Entry("status", "standfast.cli.status:status_command", "see", "what needs you now, and counts by state"),
    Entry("timeline", "standfast.cli.timeline:timeline", "see", "what happened at a time, or between two"),
    Entry("show", "standfast.cli.show:show", "see", "anything by its id or key"),
    Entry("search", "standfast.cli.search:search", "see", "words in messages, decisions, calls, mail and tasks"),
    Entry("top", "standfast.cli.top:top", "see", "the sessions that work, wait or crashed, live"),
    Entry("brief", "standfast.cli.brief:brief", "see", "what an agent reads at its start"),
    Entry("where", "standfast.cli.where:where", "see", "the data directory, the store and its engine"),
    Entry("crash", "standfast.cli.crash:crash", "see", "kill an agent at each crash point; count what was sent twice"),
    Entry("usage", "standfast.cli.usage:usage", "see", "tokens and cost by session, agent, model, day or repository"),
    Entry("sql", "standfast.cli.sql:sql", "see", "query the store, read-only"),
    Entry("session", "standfast.cli.session:session", "work", "work that survives its processes: run, resume, show"),
    Entry("effect", "standfast.cli.effect:effect", "work", "calls to the outside: begin, done, fail, resolve"),
    Entry("once", "standfast.cli.once:once", "work", "run a command once per key"),
    Entry("decide", "standfast.cli.decision:decide", "work", "record what, why and then, before acting"),
    Entry("decision", "standfast.cli.decision:decision", "work", "close, list or withdraw decisions"),
    Entry("task", "standfast.cli.task:task", "work", "work to do: one row per problem, one worker"),
    Entry("state", "standfast.cli.state:state", "work", "versioned values by key"),
    Entry("knowledge", "standfast.cli.knowledge:knowledge", "work", "texts that agents learned, with their sources"),
    Entry("artifact", "standfast.cli.artifact:artifact", "work", "large content, stored by digest"),
    Entry("demo", "standfast.cli.demo:demo", "work", "kill a process and see the next one continue"),
    Entry("mail", "standfast.cli.mail:mail", "together", "messages to an agent, role or session"),
    Entry("loop", "standfast.cli.loop:loop", "together", "run a command on a schedule"),
    Entry("lock", "standfast.cli.lock:lock", "together", "one holder at a time for a file, port or deployment"),
    Entry("agent", "standfast.cli.agent:agent", "together", "agents, their roles and what they do"),
    Entry("event", "standfast.cli.event:event", "together", "streams of your own: append, follow, consume"),
    Entry("webhook", "standfast.cli.webhook:webhook", "together", "incoming webhooks: receive each once, handle it"),
    Entry("credit", "standfast.cli.credit:credit", "together", "a ledger of credits, one entry per key"),
    Entry("apply", "standfast.cli.apply:apply", "together", "change many rows as a file says, all or nothing"),
    Entry("approve", "standfast.cli.approval:approve", "answer", "list what waits, or approve one request"),
    Entry("deny", "standfast.cli.approval:deny", "answer", "refuse a request, with a reason"),
    Entry("approval", "standfast.cli.approval:approval", "answer", "request, list, show, wait for an answer"),
    Entry("gate", "standfast.cli.gate:gate", "answer", "commands that need approval or an effect"),
    Entry(
        "budget", "standfast.cli.budget:budget", "answer", "limits of tokens, money, calls or time, and who holds them"
    ),
    Entry(
        "verify", "standfast.cli.verify:verify", "answer", "prove that the journal, or a receipt in it, is unchanged"
    ),
    Entry("backup", "standfast.cli.backup:backup", "keep", "take, verify and test copies of the store"),
    Entry("restore", "standfast.cli.restore:restore", "keep", "put a copy back, or look into it"),
    Entry("undo", "standfast.cli.undo:undo", "keep", "put back what a change overwrote or deleted"),
    Entry("export", "standfast.cli.export:export", "keep", "sessions as a bundle, or a repository as text for git"),
    Entry("store", "standfast.cli.store:store", "keep", "list, create or reset stores"),
    Entry("bench", "standfast_prove.cli.bench:bench", "keep", "measure this machine and disk"),
    Entry("prove", "standfast_prove.cli.prove:prove", "keep", "try to lose or duplicate a record here"),
    Entry("install", "standfast.cli.install:install", "set_up", "hooks for claude-code, codex, gemini-cli, opencode"),
    Entry("db", "standfast.cli.db:db", "set_up", "which store is used; choose SQLite or PostgreSQL"),
    Entry("doctor", "standfast.cli.doctor:doctor", "set_up", "check the store; --fix makes safe repairs"),
    Entry("daemon", "standfast.cli.daemon:daemon", "set_up", "run loops in the background: start, stop, install"),
    Entry("import", "standfast.cli.import_:import_", "set_up", "transcripts of agents"),
    Entry("mcp", "standfast.cli.mcp:mcp", "set_up", "tools for an agent, over stdio or a Unix socket"),
    Entry("hook", "standfast.cli.help:hook", "set_up", "called by installed hooks; reads stdin"),
    Entry("completion", "standfast.cli.completion:completion", "set_up", "shell completion: bash, zsh, fish"),
    Entry("help", "standfast.cli.help:help_command", "set_up", "all, exit-codes, or a command"),
)

BY_NAME = {entry.name: entry for entry in ENTRIES}
