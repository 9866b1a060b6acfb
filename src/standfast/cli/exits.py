"""The exit codes. They are public, because scripts branch on them; a test freezes them."""

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
    USAGE: "the command line is wrong, or a value was refused",
    NOT_FOUND: "not found in this scope",
    CONFLICT: "the stored state differs from what the command expects",
    NEEDS_A_PERSON: "a person must approve it first",
    IN_DOUBT: "in doubt: sent, outcome unknown",
    ALREADY_DONE: "already done; its result is on stdout",
    BUSY: "busy: another process is running it, or its state is not known yet; try again",
    CONFIGURATION: "a person must correct the configuration or the place of the store",
    INTERRUPTED: "ended by Ctrl-C",
    BROKEN_PIPE: "the reader of the output has exited",
}


NEEDS_CONFIGURATION = frozenset({"configuration", "not_installed", "store_missing", "store_moved", "store_replaced"})


def code_of(error: StandfastError) -> int:
    """The exit code of an error. A bad setting is InvalidInput to a library, 78 to a shell."""
    return CONFIGURATION if error.code in NEEDS_CONFIGURATION else error.exit_code
