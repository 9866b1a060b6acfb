"""Compare tool calls of agents with the gates, and refuse calls that need an approval or an effect first.

A gate with `--need approval` turns the call into a planned effect of the session and requests an approval. The hook
refuses the call and shows the command that a person has to type. After the approval, the same call is dispatched in
the transaction that consumes the grant, and passes once. The agent's report acknowledges the effect; without a
report it is in doubt.

A gate with `--need effect` passes one call for each dispatched effect that this agent or session began with the same
tool and input, or with the same command. It also passes `standfast once`, which records the effect itself, if the line
has nothing else: no assignment, no other directory, no other session, no gated probe.

A hook answers within its deadline, with or without the store. `Decision` makes the answer and the record agree. If the
store cannot be read, the hook refuses calls that match `gates.json`.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from standfast import hints
from standfast.db.contract import Row
from standfast.errors import ApprovalRequired, Corrupt, StandfastError
from standfast.ids import short
from standfast.interchange.hooks.payloads import ASKING, Asked, Heard, command_of
from standfast.ledger.gate_patterns import Gate, gate_of, met, standing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from standfast.config.scope import Keyspace
    from standfast.db.store import Store
    from standfast.ledger.effects.models import Effect

BEGUN_MAX = 200


class Decision:
    """The answer of a hook. Two threads may decide it, and the first decision counts.

    The thread with the store calls `go_on` inside the transaction that uses a grant. The hook calls `refuse` at its
    deadline. After `refuse` no grant is used. After `go_on` the hook waits for the commit.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._answer = ""

    def go_on(self) -> bool:
        """Whether the call may still pass. May be called twice, because the body of a transaction may run twice."""
        return self._first("go on")

    def refuse(self) -> bool:
        """Whether the call is refused. False if the other thread is using a grant."""
        return self._first("refuse")

    def _first(self, answer: str) -> bool:
        with self._lock:
            self._answer = self._answer or answer
            return self._answer == answer


class Refusal(Exception):
    """A gate refuses a call. The agent reads `str` of this exception."""

    def __init__(self, gate: Gate, words: str) -> None:
        super().__init__(words)
        self.gate = gate


def _never() -> bool:
    return False


def judge(
    store: Store,
    rows: list[Row],
    asked: Asked,
    session_id: str,
    decision: Decision,
    late: Callable[[], bool] = _never,
    *,
    can_ask: bool = False,
) -> Gate | None:
    """Raise Refusal unless every matching gate has its approval or effect. `late` tells whether the deadline is over.

    Returns a gate if the agent must ask its user, which an agent with `can_ask` does itself.
    """
    gates = met([gate_of(row) for row in rows], asked.command, tool=asked.tool, texts=asked.texts, late=late)
    if not gates:
        return None
    if gates[0].need == "ask" and can_ask:
        return gates[0]
    if gates[0].needs_person:
        approved(store, gates[0], asked, session_id, decision)
    elif not _records_itself(gates, asked) and not _recorded(store, gates[0], asked, session_id, decision):
        raise Refusal(gates[0], _unrecorded(gates[0], asked))
    return None


def judge_blindly(
    data_dir: str, asked: Asked | None, keyspaces: Sequence[Keyspace] | None, late: Callable[[], bool] = _never
) -> None:
    """Refuse calls that match the copy of the gates, because without the store no grant can be found."""
    from standfast.ledger.gates import read_copy

    try:
        copy = read_copy(data_dir)
        if asked is None:
            unreadable([row for rows in copy["stores"].values() for row in rows])
            return
        gates = met(standing(copy, keyspaces), asked.command, tool=asked.tool, texts=asked.texts, late=late)
    except Corrupt as error:
        if asked is not None and not asked.command:
            return
        gate = Gate("", "", "", "*", "approval", None, "", 0)
        raise Refusal(gate, f"neither the store nor the copy of its gates can be read: {error.message}") from None
    if gates:
        raise Refusal(
            gates[0],
            f"{gates[0].pattern!r} needs {_needed(gates[0])}, and standfast cannot read its store now, so it is refused"
            f"{_why(gates[0])}. Try again; if it stays so, a person runs: standfast doctor",
        )


def unreadable(rows: list[Row]) -> None:
    """Refuse a call that cannot be read, if any gate is set."""
    if rows:
        gate = gate_of(rows[0])
        raise Refusal(gate, "this call is too large or damaged to be compared with the gates of this repository")


def settle(store: Store, rows: list[Row], heard: Heard, asked: Asked, session_id: str) -> None:
    """Acknowledge the effect of a gated call with its answer. The effect of a cancelled call stays in doubt."""
    gates = met([gate_of(row) for row in rows], asked.command, tool=asked.tool, texts=asked.texts)
    if not gates or not gates[0].needs_person or heard.status == "cancelled":
        return
    from standfast.ledger.effects.resource import Effects

    effects = Effects(store)
    for effect in effects.list(state="dispatched", session=session_id, tool=asked.tool, limit=BEGUN_MAX):
        if effect.intent == asked.action:
            result = {"status": heard.status, "exit_code": heard.exit_code, "output": (heard.output or "")[:2000]}
            effects.done(effect.id, result, attempt=effect.attempt)
            return
    if gates[0].need == "ask" and heard.agent == ASKING:  # opencode reports refused calls too
        from standfast.interchange.hooks.record import Hooks

        Hooks(store).prompted(heard, gates[0], "passed")


def question(gate: Gate) -> str:
    """The question that the agent shows its user."""
    return f"{gate.pattern!r} needs a person's approval{_why(gate)}"


def approved(store: Store, gate: Gate, asked: Asked, session_id: str | None, decision: Decision) -> Effect:
    """Use a grant and dispatch the effect of this call. Without a grant, request an approval and raise Refusal."""
    from standfast.ledger.effects.resource import Effects

    context = {"cwd": asked.cwd, "description": asked.description}
    try:
        return Effects(store).begin(
            asked.tool,
            asked.action,
            session=session_id,
            approve=True,
            again=True,
            gate=gate.pattern,
            why=gate.why,
            context=context,
            still=decision.go_on,
        )
    except ApprovalRequired as error:
        raise Refusal(gate, _asking(gate, error)) from None
    except StandfastError as error:
        raise Refusal(
            gate, f"{gate.pattern!r} needs a person's approval{_why(gate)}. {error.message} {error.hint}"
        ) from None


def _asking(gate: Gate, error: ApprovalRequired) -> str:
    if error.code == "approval_denied" or not error.approval_id:
        return f"{error.message}. {error.hint}"
    return (
        f"{gate.pattern!r} needs a person's approval{_why(gate)}, which is requested now. A person runs: "
        f"{hints.command('approve', short(error.approval_id))}; then make exactly the same call again. "
        f"To wait for the answer: {hints.command('approval', 'wait', short(error.approval_id))}"
    )


def _recorded(store: Store, gate: Gate, asked: Asked, session_id: str, decision: Decision) -> bool:
    """Whether a dispatched effect lets this call pass. Each effect lets one call pass."""
    from standfast.interchange.hooks.record import Hooks
    from standfast.ledger.effects.resource import Effects

    actor, hooks = store.caller.actor, Hooks(store)
    return any(
        hooks.pass_once(effect.id, effect.attempt, gate.id, gate.pattern, decision.go_on)
        for effect in Effects(store).list(state="dispatched", limit=BEGUN_MAX)
        if (effect.session_id == session_id or effect.agent == actor) and _same(effect.tool, effect.intent, asked)
    )


_ONCE_FLAGS = ("--retry-failed", "--until-ok", "--again", "--approve", "--json")
_ONCE_VALUES = ("--by", "--probe", "--settle", "--per", "--attempts", "--why", "--task")


def _records_itself(gates: list[Gate], asked: Asked) -> bool:
    """Whether the call is only `standfast once`, with this store, home and directory."""
    if not isinstance(asked.command, str) or met(gates, "", tool=asked.tool, texts=asked.texts):
        return False
    from standfast.ledger.gate_release import only_command

    words = only_command(asked.command)
    if words is None or "--" not in words or words[1:2] != ["once"] or not _is_our_program(words[0]):
        return False
    before, keys, at = words[2 : words.index("--")], 0, 0
    while at < len(before):
        name, _, value = before[at].partition("=")
        if name in _ONCE_VALUES:
            at += not value
            given = value or (before[at] if at < len(before) else "")
            if name == "--probe" and met(gates, given):
                return False
        elif name not in _ONCE_FLAGS:
            keys += 1
            if name.startswith("-") or keys > 1:
                return False
        at += 1
    return keys == 1


def _is_our_program(word: str) -> bool:
    """Whether a shell starts the `standfast` of this installation for `word`."""
    import os
    import shutil
    import sys
    import sysconfig

    if word != "standfast" and not os.path.isabs(word):
        return False
    found = shutil.which(word)
    ours = {os.path.join(sysconfig.get_path("scripts"), "standfast"), os.path.abspath(sys.argv[0])}
    return found is not None and os.path.realpath(found) in {os.path.realpath(path) for path in ours}


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
        way = f"first: {hints.command('effect', 'begin', asked.tool)} '{{…}}' with exactly this input"
    return f"{gate.pattern!r} has to be recorded before it is sent{_why(gate)}: {way}"


def _needed(gate: Gate) -> str:
    return "a person's approval" if gate.needs_person else "to be recorded first"


def _why(gate: Gate) -> str:
    return f" ({gate.why})" if gate.why else ""
