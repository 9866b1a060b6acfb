"""The shell a person and a script type into: parse, call one verb, render.

`main` is the `standfast` command. It runs `hook` before click is imported and leaves every other command to `app`.
Imports are inside functions on purpose: agents start this hundreds of times an hour, and a command pays only for
what it uses.

    registry.py  which commands there are: one line each; the help screen is made of it
    aliases.py   what people type instead, and what it means
    app.py       the frame: finding a command, errors, exit codes, Ctrl-C, broken pipes
    frame.py     what a command is made of: options, examples, nouns with verbs
    generate.py  commands made of methods: signature, annotations, docstring
    answers.py   what a command returns: one model or many
    values.py    types of options (DURATION, TIME, JSON), formats of fields
    output.py    stdout for data, stderr for words; tables, --json, --jsonl
    render.py    tables that fit a terminal and cannot harm it
    exits.py     the exit codes, all of them
"""

from __future__ import annotations

import gc
import sys

_GARBAGE = 50_000, 10, 10
"""A command that ends soon never looks for garbage; one that stays does, less often than others."""
DIRECT: dict[str, str] = {"hook": "standfast.cli.hook:main"}
"""Commands opened before click is loaded, as "module:function" taking the remaining words."""


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
    except KeyboardInterrupt:  # pressed while modules were still loading
        return 130
    finally:
        # All that is left goes with the process. Otherwise the interpreter searches it for cycles as it ends, 20 ms.
        gc.freeze()


def _enter(target: str, words: list[str]) -> int:
    from importlib import import_module

    module, _, function = target.partition(":")
    return int(getattr(import_module(module), function)(words))
