"""Which tool calls must wait: gates, where an agent's commands pass by.

A gate that needs a person's yes makes the call an effect of the session, planned and asked for. The
agent is refused with the command a person has to type; the same call again, after the yes, is
dispatched in the transaction that uses the yes up, and passes, once. When the agent tells how
it went, the effect is acknowledged with that; told nothing, it is in doubt, as it should be.

A gate that needs an effect passes a call for which one is begun: the same tool and input, or the same
command, by this agent or in its session. Both pass `standfast once`, which asks for itself.

Where the store cannot be read, `gates.json` decides: what matches there is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from standfast.db.contract import Row
from standfast.errors import ApprovalRequired, Conflict, Corrupt, EffectInDoubt, StandfastError
from standfast.ids import short
from standfast.interchange.hooks.hearing import Asked, Heard, command_of
from standfast.ledger.gate_patterns import Gate, match, met

if TYPE_CHECKING:
    from standfast.db.store import Store
    from standfast.ledger.effects.nouns import Effect

BEGUN_MAX = 200


class Refusal(Exception):
    """A call must not be made now; `str` is what the agent reads."""

    def __init__(self, gate: Gate, words: str) -> None:
        super().__init__(words)
        self.gate = gate


def judge(store: Store, rows: list[Row], asked: Asked, session_id: str) -> None:
    """Raise Refusal unless every gate this call meets has what it needs."""
    gates = met([_gate(row) for row in rows], asked.command, tool=asked.tool)
    if not gates:
        return
    if gates[0].need == "approval":
        _approved(store, gates[0], asked, session_id)
    elif not _begun(store, asked, session_id):
        raise Refusal(gates[0], _unrecorded(gates[0], asked))


def judge_blindly(data_dir: str, asked: Asked | None, scope: str | None) -> None:
    """The same without the store: what matches the copy is refused, because nobody can look up its yes."""
    from standfast.ledger.gates import read_copy

    try:
        copy = read_copy(data_dir)
        if asked is None:
            unreadable([row for rows in copy["stores"].values() for row in rows])
            return
        gates = match(copy, asked.command, tool=asked.tool, scope=scope)
    except Corrupt as error:
        if asked is not None and not asked.command:
            return
        gate = Gate("", "", "*", "approval", None, "", 0)
        raise Refusal(gate, f"neither the store nor the copy of its gates can be read: {error.message}") from None
    if gates:
        raise Refusal(
            gates[0],
            f"{gates[0].pattern!r} needs {_needed(gates[0])}, and standfast cannot read its store now, so it is refused"
            f"{_why(gates[0])}. Try again; if it stays so, a person runs: standfast doctor",
        )


def unreadable(rows: list[Row]) -> None:
    """A call that cannot be read cannot be judged: refused wherever a gate stands."""
    if rows:
        gate = _gate(rows[0])
        raise Refusal(gate, "this call is too large or damaged to be compared with the gates that stand here")


def settle(store: Store, rows: list[Row], heard: Heard, asked: Asked, session_id: str) -> None:
    """A gated call has come back: its effect is acknowledged with how it went; cancelled, it stays in doubt."""
    gates = met([_gate(row) for row in rows], asked.command, tool=asked.tool)
    if not gates or gates[0].need != "approval" or heard.status == "cancelled":
        return
    from standfast.ledger.effects.room import Effects

    effects = Effects(store)
    for effect in effects.list(state="dispatched", session=session_id, tool=asked.tool, limit=BEGUN_MAX):
        if effect.intent == asked.input:
            result = {"status": heard.status, "exit_code": heard.exit_code, "output": (heard.output or "")[:2000]}
            effects.done(effect.id, result, attempt=effect.attempt)
            return


def _approved(store: Store, gate: Gate, asked: Asked, session_id: str) -> None:
    from standfast.ledger.effects.room import Effects

    try:
        Effects(store).begin(
            asked.tool, asked.input, session=session_id, approve=True, again=True, gate=gate.pattern, why=gate.why
        )
    except ApprovalRequired as error:
        raise Refusal(gate, _asking(gate, error)) from None
    except (Conflict, EffectInDoubt, StandfastError) as error:
        raise Refusal(
            gate, f"{gate.pattern!r} needs a person's yes{_why(gate)}. {error.message} {error.hint}"
        ) from None


def _asking(gate: Gate, error: ApprovalRequired) -> str:
    if error.code == "approval_denied" or not error.approval_id:
        return f"{error.message}. {error.hint}"
    return (
        f"{gate.pattern!r} needs a person's yes{_why(gate)}, and has been asked for. A person runs: standfast approve "
        f"{short(error.approval_id)}    Then make exactly the same call again; "
        f"to wait for the answer: standfast approval wait {short(error.approval_id)}"
    )


def _begun(store: Store, asked: Asked, session_id: str) -> bool:
    from standfast.ledger.effects.room import Effects

    effects = Effects(store)
    actor = store.caller.actor
    begun: list[Effect] = []
    for state in ("dispatched", "planned"):
        begun += effects.list(state=state, limit=BEGUN_MAX)
    return any(
        (effect.session_id == session_id or effect.actor == actor) and _same(effect.tool, effect.intent, asked)
        for effect in begun
    )


def _same(tool: str, intent: Any, asked: Asked) -> bool:
    if tool == asked.tool and intent == asked.input:
        return True
    command = _plain(asked.command)
    said = _plain(intent if isinstance(intent, str | list) else command_of(intent))
    return bool(command) and said == command


def _plain(command: Any) -> str:
    if isinstance(command, list):
        return " ".join(map(str, command))
    return " ".join(str(command).split())


def _unrecorded(gate: Gate, asked: Asked) -> str:
    way = "run it as: standfast once KEY -- COMMAND"
    if not asked.command:
        way = f"first: standfast effect begin {asked.tool} '{{…}}' with exactly this input"
    return f"{gate.pattern!r} has to be recorded before it is sent{_why(gate)}: {way}"


def _gate(row: Row) -> Gate:
    fields: Row = {name: row.get(name) for name in Gate._fields[:-1]}
    return Gate(**fields)


def _needed(gate: Gate) -> str:
    return "a person's yes" if gate.need == "approval" else "to be recorded first"


def _why(gate: Gate) -> str:
    return f" ({gate.why})" if gate.why else ""
