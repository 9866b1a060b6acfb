"""Apply: a file says which tasks, loops, values and gates there should be; they are made so, once per key.

The stable contract for other systems: the caller's key and the hash of the specification. Committed, it
is all or nothing in one transaction and answers with durable references; the same key and
specification again is answered from the record; the same key with another one is refused. Nothing is
ever deleted because a file does not mention it.

    spec         reading a file, and every check that needs no store
    plan         the difference between a specification and the store, by reading alone
    commit       making it so
"""

from __future__ import annotations

from standfast.record.apply.commit import apply
from standfast.record.apply.models import Applied, Change
from standfast.record.apply.plan import against_nothing
from standfast.record.apply.spec import Spec, read, read_file, read_text

__all__ = ["Applied", "Change", "Spec", "against_nothing", "apply", "read", "read_file", "read_text"]
