"""Random and damaged input for every entry point: values, methods, files, payloads, commands, requests, broken stores.

    garbage   the inputs: hostile values, mutated bytes and words, all from one seed
    doors     entry points inside one process: parsers, methods, apply, config, transcripts, hooks
    programs  entry points of a program: the command line, its hooks, its MCP server, a broken store file

Failures are: an error that is not ours, a crash, one second of CPU for one input, a store that changed although the
input was refused, and a file outside the data directory.
"""

from __future__ import annotations

CPU_MAX_S = 1.0
"""The CPU limit for one input. CPU is counted, because a slow answer on a busy machine is no hang."""
