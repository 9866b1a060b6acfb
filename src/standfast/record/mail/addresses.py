"""Addresses. An address names a box, and any process may read any box.

    reviewer            the agent of that name (`agent:reviewer` is the same)
    role:reviewer       the next reader of that role: each mail goes to one of them
    session:fix-42      the session with that key, for any process that works on it
    ses_06f8w1x2…       a session by its id, also in another scope

A box needs no registration: mail to an unknown agent waits in its box.
"""

from __future__ import annotations

from typing import NamedTuple

from standfast.core import keys
from standfast.db.contract import Tx
from standfast.db.sql import load
from standfast.errors import InvalidInput, NotFound
from standfast.ids import is_id, prefix_of, short

SQL = load(__name__)

ADDRESS_MAX = keys.KEY_MAX + len("session:")
KINDS = ("agent", "role", "session")


class Place(NamedTuple):
    """A box in its scope."""

    scope: str
    box: str


def checked(address: object, what: str = "an address") -> str:
    """The name of the box. Raises InvalidInput. `placed` resolves the id of a session."""
    text = keys.checked(address, what, limit=ADDRESS_MAX).strip()
    kind, colon, name = text.partition(":")
    if not colon or kind not in KINDS:
        return text
    if not name.strip():
        raise InvalidInput(f"{what} {text!r} has no name", f"for example: {kind}:reviewer")
    return name.strip() if kind == "agent" and name.partition(":")[0] not in KINDS else f"{kind}:{name.strip()}"


def placed(tx: Tx, address: str) -> Place:
    """The box of an address. The id of a session means the box of its key, in the session's scope."""
    id = address.removeprefix("session:")
    if not (is_id(id) and prefix_of(id) == "ses"):
        return Place(tx.caller.scope, address)
    row = tx.maybe(SQL.session_box, id=id)
    if row is None:
        raise NotFound(f"there is no session {short(id)}", "see them: standfast session list --all")
    return Place(row["scope"], f"session:{row['key']}")
