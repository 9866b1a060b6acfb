"""git's `pre-push` hook: compare every push of an agent with the gates.

The hooks of an agent read the text of a call, so `make release` hides a push from them. Git runs `pre-push` for every
push except with `--no-verify`. Git passes the refs and the commits, and a grant is bound to these.

One push needs one approval. So a push passes if the agent's own hook let a running call through that matches the same
gate, or if an effect with such a command is dispatched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from standfast import serial
from standfast.clock import HOUR_US
from standfast.db.contract import Tx
from standfast.db.sql import load
from standfast.db.store import Resource, query
from standfast.interchange.hooks.judge import BEGUN_MAX, Decision, Refusal, approved
from standfast.interchange.hooks.payloads import Asked, command_of
from standfast.ledger.gate_patterns import Gate, met

if TYPE_CHECKING:
    from standfast.db.store import Store

SQL = load(__name__)

TOOL = "git pre-push"
CALL_US = HOUR_US
"""An older call without an answer lets no push pass, because its agent may have been killed."""


def asked(remote: str, url: str, lines: list[str], cwd: str) -> Asked:
    """A push in the form that gates compare and a person approves: the command, the URL and the commits."""
    refs = [line.split() for line in lines if len(line.split()) == 4]
    command = " ".join(("git push", remote, *(f"{local}:{there}" for local, _, there, _ in refs)))
    commits: serial.Json = {there: commit for _, commit, there, _ in refs}
    return Asked(TOOL, {"command": command, "url": url, "commits": commits}, command, cwd)


class Pushes(Resource):
    __slots__ = ()

    @query
    def calls(self, tx: Tx, session_id: str) -> list[str]:
        """The inputs of the session's calls that have not returned."""
        rows = tx.all(SQL.pending, session_id=session_id, since_us=tx.now_us() - CALL_US, limit=BEGUN_MAX)
        return [row["input"] for row in rows if row["input"]]


def judge_push(store: Store, gates: list[Gate], asked: Asked, session_id: str | None) -> None:
    """Raise Refusal unless the push was already judged or a grant is used for it now."""
    if not gates or _judged(store, gates, session_id):
        return
    gate = gates[0]
    if not gate.needs_person:
        raise Refusal(gate, f"{gate.pattern!r} has to be recorded before it is sent: standfast once KEY -- COMMAND")
    from standfast.ledger.effects.resource import Effects

    effect = approved(store, gate, asked, session_id, Decision())
    # Git reports no outcome, so the effect ends when the hook lets the push pass.
    Effects(store).done(effect.id, {"passed": True}, attempt=effect.attempt)


def _judged(store: Store, gates: list[Gate], session_id: str | None) -> bool:
    from standfast.ledger.effects.resource import Effects

    calls = Pushes(store).calls(session_id) if session_id else []
    if any(_meets(gates, serial.read(given)) for given in calls):
        return True
    return any(
        _meets(gates, effect.intent)
        for effect in Effects(store).list(state="dispatched", limit=BEGUN_MAX)
        if effect.agent == store.caller.actor or (session_id is not None and effect.session_id == session_id)
    )


def _meets(gates: list[Gate], given: Any) -> bool:
    command = given.get("argv") if isinstance(given, dict) and isinstance(given.get("argv"), list) else None
    return bool(met(gates, command or command_of(given)))
