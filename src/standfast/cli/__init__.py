"""The command line: parse, call one method, render.

`main` is the `standfast` command. It runs `hook` without importing click, and all other commands through `app`. Imports
are inside functions, because agents start a command hundreds of times an hour and it must load only what it uses.

    registry.py  the table of commands, and the help screen
    aliases.py   other words for commands and options
    app.py       find a command; errors, exit codes, Ctrl-C, broken pipes
    frame.py     the parts of a command: options, examples, nouns with verbs
    generate.py  commands generated from methods
    answers.py   the answer of a command: one model or many
    values.py    types of options (DURATION, TIME, JSON), formats of fields
    output.py    data to stdout, messages to stderr; --json, --jsonl
    render.py    tables, and text that is safe for a terminal
    exits.py     the exit codes
"""

from __future__ import annotations

import gc
import sys

_GARBAGE = 50_000, 10, 10
"""Short commands never collect garbage; long ones collect it less often than by default."""
DIRECT: dict[str, str] = {"hook": "standfast.cli.hook:main"}
"""Commands that run without click: "module:function", called with the remaining words."""


def main() -> int:
    """The `standfast` command. Returns the exit code."""
    words = sys.argv[1:]
    gc.set_threshold(*_GARBAGE)
    if sys.platform == "win32":
        print("standfast needs Linux or macOS; on Windows run it inside WSL", file=sys.stderr)
        return 78
    try:
        if words and words[0] in DIRECT:
            return _enter(DIRECT[words[0]], words[1:])
        from standfast.cli.app import run

        return run(words)
    except KeyboardInterrupt:  # Ctrl-C while modules are loading
        return 130
    finally:
        # Otherwise the interpreter searches all objects for cycles when it ends, which takes 20 ms.
        gc.freeze()


def _enter(target: str, words: list[str]) -> int:
    from importlib import import_module

    module, _, function = target.partition(":")
    return int(getattr(import_module(module), function)(words))
