"""Garbage at every door: values, verbs, files, payloads, commands, requests, broken stores.

    garbage   the inputs: hostile values, mutated bytes and words, all from one seed
    doors     where it is thrown inside one process: parsers, verbs, apply, config, transcripts, hooks
    programs  where it is thrown at a program: the command line, its hooks, its MCP server, a broken file

What must not happen: another error than ours, a crash, a second of CPU for one input, a store that
has changed although the input was refused, a file outside of the data directory.
"""

from __future__ import annotations

CPU_MAX_S = 1.0
"""The CPU limit for one input. CPU is counted, because a slow answer on a busy machine is no hang."""
