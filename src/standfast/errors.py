"""Every error standfast raises, on one page.

StandfastError
├── InvalidInput (also ValueError)   the caller's value is refused by name         exit 2
├── NotFound                         no such thing in this scope                   exit 3
├── Conflict                         the stored state is not as assumed            exit 4
│   ├── KeyConflict                  this key already names something else
│   ├── InProgress                   a live process is running it right now        exit 75
│   ├── LeaseLost                    another holder has a newer fence
│   ├── VersionConflict              compare-and-set found another version
│   └── IllegalTransition            not possible in the present state
├── EffectInDoubt                    sent, and the outcome is unknown              exit 6
├── ApprovalRequired                 a person has to approve first                 exit 5
├── NoAnswer (also TimeoutError)     a question was not answered in time           exit 1
├── NoSession                        an effect was called outside a session       exit 1
└── StorageError                     the store itself                              exit 1; 78 if missing or replaced
    ├── Busy                         the lock was not free before the deadline     exit 75
    ├── CommitUnknown                unknown outcome: look it up by key            exit 75
    ├── SchemaTooNew                 a newer standfast wrote this store            exit 78
    ├── UnsafeStorage                this file system would lose data              exit 78
    └── Corrupt                      the file is damaged: stop writing

An agent often sees only `str(error)`: the object and the fact, who and when, and on its own line the next command. A
class exists only where a caller would act differently.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar


class StandfastError(Exception):
    """The base class. `code` is for programs, `message` for people, and `hint` is the next command."""

    code: str = "error"
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, hint: str = "", *, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if code is not None:
            self.code = code

    def __str__(self) -> str:
        return f"{self.message}\n{self.hint}" if self.hint else self.message


class InvalidInput(StandfastError, ValueError):
    code = "invalid_input"
    exit_code = 2


class NotFound(StandfastError):
    code = "not_found"
    exit_code = 3


class Conflict(StandfastError):
    code = "conflict"
    exit_code = 4


class KeyConflict(Conflict):
    code = "key_conflict"


class InProgress(Conflict):
    code = "in_progress"
    exit_code = 75


class LeaseLost(Conflict):
    code = "lease_lost"


class VersionConflict(Conflict):
    code = "version_conflict"


class IllegalTransition(Conflict):
    code = "illegal_transition"


class EffectInDoubt(StandfastError):
    code = "effect_in_doubt"
    exit_code = 6
    effect_id: str = ""
    """The effect that is in doubt: the called effect, or an earlier one that blocks it."""


class ApprovalRequired(StandfastError):
    code = "approval_required"
    exit_code = 5
    approval_id: str = ""
    """The id of the approval to wait for."""
    effect_id: str = ""
    """The effect that needs it."""
    fresh: bool = False
    """Whether this call recorded the request."""


class NoAnswer(StandfastError, TimeoutError):
    code = "no_answer"


class NoSession(StandfastError):
    code = "no_session"


class StorageError(StandfastError):
    code = "storage_error"


class Busy(StorageError):
    code = "busy"
    exit_code = 75


class CommitUnknown(StorageError):
    code = "commit_unknown"
    exit_code = 75


class SchemaTooNew(StorageError):
    code = "schema_too_new"
    exit_code = 78


class UnsafeStorage(StorageError):
    code = "unsafe_storage"
    exit_code = 78


class Corrupt(StorageError):
    code = "corrupt"


def schema_damaged(words: str) -> Corrupt:
    """A table or column of ours is missing: another program dropped it."""
    return Corrupt(
        f"the schema of this store is damaged: {words}",
        "see the missing files, then restore a backup: standfast doctor",
        code="schema_damaged",
    )


# -- unknown names ---------------------------------------------------------------------------------------


class NoAttribute(AttributeError):
    """An AttributeError that names the right place of the attribute, or the name that was probably meant.

    The text is made when it is read: `from standfast import serial` asks for an attribute before it imports the module.
    """

    def __init__(self, owner: str, name: str, names: Iterable[str], hint: str = "") -> None:
        # Without `obj` Python does not add its own suggestion to a traceback.
        super().__init__(owner, name=name)
        self.names = names
        self.hint = hint

    def __str__(self) -> str:
        hint = self.hint
        for meant in () if hint else close_matches(self.name or "", self.names):
            hint = f"did you mean {meant!r}?"
        return f"{self.args[0]} has no attribute {self.name!r}{hint and ': ' + hint}"


def close_matches(name: str, names: Iterable[str], cutoff: float = 0.6) -> list[str]:
    """The name that was probably meant, if there is one: `tasks` for `taks`."""
    from difflib import get_close_matches

    return [] if name.startswith("_") else get_close_matches(name, list(names), 1, cutoff)
