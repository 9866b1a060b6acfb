"""Planned effects for tests of approvals: the rows an effect would have written, and its dispatching transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from standfast import serial
from standfast.db.contract import Row, Tx
from standfast.db.sql import statement
from standfast.errors import StandfastError
from standfast.ids import new_id
from standfast.ledger import approvals

if TYPE_CHECKING:
    from standfast.handle import Standfast

INSERT = statement(
    "INSERT INTO effect (id, scope, session_id, tool, key, n, by_hash, intent_hash, intent, context, state, attempt,"
    " planned_us, updated_us) VALUES (:id, :scope, :session_id, :tool, :key, 1, 'h', :intent_hash, :intent, :context,"
    " 'planned', 0, :now_us, :now_us)"
)
LOCKED = statement(
    "SELECT id, scope, session_id, tool, key, intent, intent_hash, context, state, attempt FROM effect"
    " WHERE id = :id {for_update}"
)
REWORD = statement("UPDATE effect SET intent = :intent, intent_hash = :intent_hash WHERE id = :id")
DISPATCH = statement(
    "UPDATE effect SET state = 'dispatched', attempt = attempt + 1, dispatched_us = :now_us WHERE id = :id"
    " RETURNING attempt"
)
SET_STATE = statement("UPDATE effect SET state = :state WHERE id = :id")


def plan(
    sf: Standfast,
    intent: Any = None,
    *,
    tool: str = "github.open_pr",
    key: str | None = None,
    session_id: str | None = None,
    context: Any = None,
    scope: str | None = None,
) -> str:
    """Add a planned effect and return its id."""
    id = new_id("eff")
    text = serial.canonical({"title": "fix"} if intent is None else intent)

    def insert(tx: Tx) -> None:
        tx.run(
            INSERT,
            id=id,
            scope=sf.scope if scope is None else scope,
            session_id=session_id,
            tool=tool,
            key=key or id,
            intent_hash=serial.hash_text(text),
            intent=text,
            context=None if context is None else serial.canonical(context),
            now_us=tx.now_us(),
        )

    sf._store.write(insert)
    return id


def reword(sf: Standfast, effect: str, intent: Any) -> None:
    """Change the arguments, as the next call of an LLM would."""
    text = serial.canonical(intent)
    sf._store.write(lambda tx: tx.run(REWORD, id=effect, intent=text, intent_hash=serial.hash_text(text)))


def set_state(sf: Standfast, effect: str, state: str) -> None:
    sf._store.write(lambda tx: tx.run(SET_STATE, id=effect, state=state))


def dispatching(effect: str, **asked: Any) -> Any:
    """The body of the transaction that dispatches `effect` if that is allowed. Returns the attempt, or the refusal."""

    def body(tx: Tx) -> int | StandfastError:
        row: Row = tx.one(LOCKED, id=effect)
        refusal = approvals.require(tx, row, attempt=row["attempt"] + 1, **asked)
        if refusal is not None:
            return refusal
        attempt: int = tx.one(DISPATCH, id=effect, now_us=tx.now_us())["attempt"]
        return attempt

    return body


def dispatch(sf: Standfast, effect: str, **asked: Any) -> int:
    """Dispatch it with the notifications of an effect. Returns the attempt. Raises ApprovalRequired."""
    try:
        attempt: int = sf._store.write(dispatching(effect, **asked))
    except StandfastError as error:
        approvals.tell(sf._store, error)
        raise
    return attempt
