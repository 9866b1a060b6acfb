"""The exit codes, all of them. They are public and frozen by a test: scripts branch on them."""

from __future__ import annotations

from standfast.errors import StandfastError

OK = 0
FAILED = 1
USAGE = 2
NOT_FOUND = 3
CONFLICT = 4
NEEDS_A_PERSON = 5
IN_DOUBT = 6
ALREADY_DONE = 7
BUSY = 75
CONFIGURATION = 78
INTERRUPTED = 130
BROKEN_PIPE = 141

MEANINGS = {
    OK: "ok",
    FAILED: "failed",
    USAGE: "the command line was not understood, or a value was refused",
    NOT_FOUND: "no such thing in this scope",
    CONFLICT: "the stored state is not as the command assumed",
    NEEDS_A_PERSON: "a person has to approve it first",
    IN_DOUBT: "in doubt: sent, outcome unknown",
    ALREADY_DONE: "already done; its result is on stdout",
    BUSY: "busy: another process is running it, or its state is not known yet; try again",
    CONFIGURATION: "the configuration or the place of the store needs a person",
    INTERRUPTED: "ended by Ctrl-C",
    BROKEN_PIPE: "the reader of the output has exited",
}


NEEDS_CONFIGURATION = frozenset({"configuration", "not_installed", "store_missing", "store_moved", "store_replaced"})


def code_of(error: StandfastError) -> int:
    """The exit code of an error. A bad setting is InvalidInput to a library, 78 to a shell."""
    return CONFIGURATION if error.code in NEEDS_CONFIGURATION else error.exit_code
