"""Apply: a file lists tasks, loops, values and gates, and `apply` creates or changes them, once per key.

This is the stable contract for other systems: the caller's key and the hash of the specification. A commit is one
transaction, all or nothing, and returns durable references. The same key and specification again returns the recorded
answer. The same key with another specification is refused. Nothing is deleted because the file does not list it.

    spec         reading a file, and every check that needs no store
    plan         the differences between a specification and the store
    commit       writing the differences
"""

from __future__ import annotations

from standfast.record.apply.commit import apply
from standfast.record.apply.models import Applied, Change
from standfast.record.apply.plan import against_nothing
from standfast.record.apply.spec import Spec, read, read_file, read_text

__all__ = ["Applied", "Change", "Spec", "against_nothing", "apply", "read", "read_file", "read_text"]
