"""Other words for commands and options: what people and LLMs type before they read the help.

`COMMANDS` holds whole commands, `VERBS` the verbs that any noun may have under another name, and `OPTIONS` the
options. A plural means its noun. `app` replaces words at the beginning of a line until it starts with a command
(`schedule create` → `loop create`); the noun replaces the verb (→ `loop add`). An alias to a command that does not
exist is ignored, and no alias hides a command. `tests/guesses.toml` lists what must work.
"""

from __future__ import annotations

from collections.abc import Container

COMMANDS = {
    # see
    "status": "st, stats, info, summary, overview, ls, list, whoami",
    "where": "path, paths, dir, location, which, data-dir, db where",
    "--version": "version",
    "help all": "commands",
    "help exit-codes": "exit-codes",
    "timeline": "log, logs, history, what, journal, audit",
    "search": "find, grep",
    "brief": "prime, context, boot, recover, recovery",
    "ui": "dashboard, web, serve",
    "sql": "query",
    "sql SELECT": "select",
    # work
    "session run": "run, exec",
    "session say": "say, session log, session message",
    "session show": "session messages",
    "session fork": "fork, session branch",
    "session resume": "resume",
    "effect begin": "effect dispatch",
    "effect begin --plan": "effect plan",
    "effect fail": "effect error",
    "effect list --in-doubt": "doubt, in-doubt",
    "once": "idempotent, dedupe",
    "decide": "remember, record-decision, decision add, decision record, decision new, decision create",
    "decision done": "decision outcome",
    "task": "todo",
    "task next": "ready, next, task ready",
    "task add": "task upsert, task report",
    "task done": "task resolve",
    "task release": "task drop",
    "task note": "task comment",
    "task snooze": "task defer",
    "task accept": "task wontfix",
    "state": "kv",
    "state get": "get",
    "state set": "set, state put, state write",
    "state swap": "state cas, state compare-and-set",
    "state list": "state keys",
    "state check": "verify-state, state verify",
    "artifact put": "artifact save",
    "demo": "tutorial, example",
    # together
    "mail": "messages, mailbox",
    "mail list": "mail check",
    "mail list --mine": "inbox, mail inbox",
    "mail send": "send, mail compose",
    "mail read": "mail get, mail receive, mail claim",
    "mail show": "mail explain",
    "mail reply": "mail answer",
    "mail defer": "mail snooze",
    "mail refuse": "mail reject",
    "mail receipts": "mail sent, mail status, mail receipt",
    "mail dead": "dead-letters, dlq",
    "loop": "schedule, schedules, cron",
    "loop run": "loop trigger, loop fire",
    "loop runs": "runs, loop why, loop logs, loop log",
    "daemon start": "start",
    "daemon stop": "stop",
    "daemon install": "daemon enable",
    "daemon install --remove": "daemon uninstall, daemon disable",
    "lock": "mutex",
    "agent list": "who",
    "agent set": "agent register",
    "event append": "event emit, event publish",
    "event list": "event log",
    "event list --after 0": "event replay",
    "event diff --from 0": "event state, event project",
    "event streams": "event stream",
    "event consume": "event poll, event subscribe",
    "event consumers": "event consumer",
    "event follow": "tail",
    "webhook receive": "webhook intake, webhook ingest",
    "credit add": "credit grant, credit topup",
    "credit spend": "credit use, credit debit, credit charge",
    "credit list": "credit ledger, credit history",
    "credit balance": "balance",
    "apply": "upsert, apply-file",
    "apply --dry-run": "plan, diff",
    "apply --preflight": "preflight",
    # answer
    "approve": "yes, grant, approval approve, approval grant",
    "deny": "reject, approval deny",
    "approval list": "pending",
    "approval request": "approval ask",
    "budget set": "budget limit",
    "budget show": "budget report",
    "budget reserve": "budget hold",
    "verify": "proof, check-receipt",
    # keep
    "backup take": "backup now",
    "backup list": "backups, copies",
    "backup test": "backup drill",
    "export": "dump",
    "move": "copy",
    "erase": "forget",
    "store create": "store init",
    "store list": "stores",
    "store show": "store status",
    "bench": "benchmark, benchmarks",
    "prove": "test",
    # set up
    "doctor": "health, check, diagnose, fsck",
    "doctor --fix": "repair, fix, doctor fix",
    "install": "hooks, hooks install, hook install, integrate, connect, agents install, agent install, install hooks, "
    "install list",
    "install --check": "hooks status, install status",
    "install --remove": "uninstall",
    "install claude-code": "install claude",
    "install gemini-cli": "install gemini",
    "install git-hooks": "git-hooks, install git-hook",
    "db": "config, database",
    "db status": "db current",
    "db pg": "db postgres, db postgresql",
    "db trust": "trust",
    "import": "ingest",
    "import list": "imports, transcripts, import sources",
    "import claude-code": "import claude, import claudecode",
    "import gemini-cli": "import gemini",
    "import opencode": "import open-code",
}
"""The command to run, and the words that mean it."""

REFUSED = {
    "clean, gc, prune, vacuum": "standfast where  # records are kept; this lists the sizes",
    "daemon logs, daemon log": "standfast daemon status  # the log is the file daemon/log in the data directory",
    "daemon restart": "standfast daemon stop && standfast daemon start  # stop it, then start it",
    "db migrate, migrate": "standfast status  # each open migrates the schema; there is no migrate step",
    "db reset, db default": "standfast db sqlite  # this selects the default file; data stays in both stores",
    "db use, db set": "standfast db pg URL  # name the engine: pg URL, or sqlite PATH",
    "delete": "standfast help all  # each noun has its own verb: state delete, loop remove",
    "init, setup": "standfast status  # there is nothing to set up: the first write creates the store",
    "login": "standfast status  # there is no account: the store is a file of yours",
    "reset": "standfast store reset  # it moves the store aside and deletes nothing; a person confirms it",
    "unlock": "standfast lock NAME --release  # run it as the holder",
    "webhook process, webhook handle": "standfast webhook claim --source SOURCE  # one event at a time",
}
"""Words that are refused, because running a command would be a guess: the line to copy and, after `#`, the reason."""

_ADD = "add", "create", "open", "send", "set", "append", "begin", "put", "receive", "request", "take"
_REMOVE = "remove", "delete", "forget", "reset"
_END = "done", "end"
VERBS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("new", "add", "create"), _ADD),
    **dict.fromkeys(("rm", "delete", "del", "unset", "wipe"), _REMOVE),
    **dict.fromkeys(("close", "finish", "complete"), _END),
    **dict.fromkeys(("continue", "restart", "enable"), ("resume",)),
    **dict.fromkeys(("extend", "heartbeat"), ("renew",)),
    **dict.fromkeys(("watch", "tail"), ("follow",)),
    **dict.fromkeys(("dlq", "dead-letters"), ("dead",)),
    **dict.fromkeys(("redeliver", "replay"), ("retry",)),
    **dict.fromkeys(("ls", "status"), ("list",)),
    **dict.fromkeys(("get", "view"), ("show",)),
    "ack": ("done",),
    "begin": ("open",),
    "cat": ("get", "output"),
    "check": ("verify", "test"),
    "disable": ("pause",),
    "grab": ("claim",),
    "history": ("runs",),
    "info": ("show", "status"),
    "nack": ("release", "fail"),
    "next": ("claim", "read", "consume"),
    "read": ("get", "show", "list"),
    "rollback": ("compensate",),
    "show": ("get", "list", "status"),
    "start": ("open", "begin", "claim"),
    "stop": ("end", "pause"),
    "take": ("claim", "read"),
    "unclaim": ("release",),
    "undo": ("compensate", "refund"),
    "update": ("set", "edit"),
}
"""Another word for a verb, and the verbs that it may mean: the first that the noun has."""

OPTIONS = {
    "because": ("why", "reason"),
    "box": ("to",),
    "comment": ("note", "reason", "why"),
    "content": ("body", "text"),
    "count": ("limit",),
    "cursor": ("after",),
    "description": ("body", "summary", "note"),
    "duration": ("for", "window"),
    "evidence": ("note", "why"),
    "expect": ("version",),
    "expected-version": ("expect", "version"),
    "expires": ("for", "due"),
    "expires-in": ("for",),
    "id": ("event-id", "key"),
    "idempotency-key": ("key",),
    "interval": ("every",),
    "last": ("window", "limit"),
    "lease": ("for",),
    "max": ("limit",),
    "message": ("body", "text", "note", "reason", "why"),
    "note": ("reason", "why", "outcome"),
    "ns": ("namespace",),
    "offset": ("after",),
    "owner": ("assignee", "agent"),
    "payload": ("data", "body"),
    "rationale": ("why",),
    "reason": ("why", "note"),
    "recipient": ("to",),
    "schedule": ("cron",),
    "seconds": ("for", "timeout", "wait"),
    "sender": ("from",),
    "since": ("window",),
    "state": ("status",),
    "status": ("state",),
    "tags": ("tag", "label"),
    "tail": ("limit",),
    "text": ("body", "title", "words"),
    "timeout": ("wait", "for"),
    "timezone": ("zone",),
    "ttl": ("for",),
    "tz": ("zone",),
    "why": ("reason", "note"),
}
"""Another word for an option, without dashes, and the options or arguments that it may mean: the first that the
command has."""

ALIASES = {word: means for means, words in COMMANDS.items() for word in words.split(", ")} | {
    word: f"!{line}" for words, line in REFUSED.items() for word in words.split(", ")
}
"""Each alias and its command, or `!` and the line to copy."""


def meaning(words: list[str], exists: Container[str]) -> tuple[str, int] | None:
    """The command that the first words mean, and how many words it replaces; None if they are no alias.

    `exists` holds the names of all commands.
    """
    for used in (2, 1):
        typed = " ".join(words[:used]).lower()
        if len(words) < used or typed in exists:
            continue
        if (means := ALIASES.get(typed)) is not None and target(means) in exists:
            return means, used
    plural = words[0].lower()
    return (plural[:-1], 1) if plural.endswith("s") and plural not in exists and plural[:-1] in exists else None


def target(means: str) -> str:
    """The command that an alias leads to."""
    return means.removeprefix("!").removeprefix("standfast ").split()[0]


def verb(word: str, known: Container[str]) -> str | None:
    """The verb of a noun that another word means."""
    return next((one for one in VERBS.get(word.lower(), ()) if one in known), None)
