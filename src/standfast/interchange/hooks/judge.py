"""Which tool calls must wait: gates, where an agent's commands pass by.

A gate that needs a person's yes makes the call an effect of the session, planned and asked for. The
agent is refused with the command a person has to type; the same call again, after the yes, is
dispatched in the transaction that uses the yes up, and passes, once. When the agent reports how
it went, the effect is acknowledged with that; without a report it is in doubt.

A gate that needs an effect passes a call for which one is dispatched, once: the same tool and input, or the
same command, by this agent or in its session. It also passes our own `standfast once`, which records the effect, if
nothing else is on the line: no assignment, no other directory, no other session, no gated probe.

A hook answers in time, with or without the store. `Decision` makes its answer and the record agree.

Where the store cannot be read, `gates.json` decides: what matches there is refused.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from standfast import hints
from standfast.db.contract import Row
from standfast.errors import ApprovalRequired, Conflict, Corrupt, EffectInDoubt, StandfastError
from standfast.ids import short
from standfast.interchange.hooks.payloads import Asked, Heard, command_of
from standfast.ledger.gate_patterns import Gate, gate_of, met, standing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from standfast.config.scope import Keyspace
    from standfast.db.store import Store
    from standfast.ledger.effects.models import Effect

BEGUN_MAX = 200


class Decision:
    """What a hook will answer. Two threads decide, and the first counts.

    The thread with the store calls `go_on` inside the transaction that uses a grant. The hook calls `refuse` when
    its time is over. After `refuse` no grant is used; after `go_on` the hook waits for the commit.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._answer = ""

    def go_on(self) -> bool:
        """Whether the call may still pass. The body of a transaction may run twice, so may this."""
        return self._first("go on")

    def refuse(self) -> bool:
        """Whether the call is refused: False if a grant is being used."""
        return self._first("refuse")

    def _first(self, answer: str) -> bool:
        with self._lock:
            self._answer = self._answer or answer
            return self._answer == answer


class Refusal(Exception):
    """A call must not be made now; `str` is what the agent reads."""

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
    """Raise Refusal unless every gate this call meets has what it needs; `late` says that the time is over.

    A gate is returned if its user must be asked by the agent, which `can_ask`.
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
    """The same without the store: what matches the copy is refused, because no grant can be looked up."""
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
    """A call that cannot be read cannot be judged: refused wherever a gate is set."""
    if rows:
        gate = gate_of(rows[0])
        raise Refusal(gate, "this call is too large or damaged to be compared with the gates that stand here")


def settle(store: Store, rows: list[Row], heard: Heard, asked: Asked, session_id: str) -> None:
    """A gated call has come back: its effect is acknowledged with how it went; cancelled, it stays in doubt."""
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
    if gates[0].need == "ask":
        from standfast.interchange.hooks.record import Hooks

        Hooks(store).prompted(heard, gates[0], "passed")


def question(gate: Gate) -> str:
    """The text that an agent's own prompt shows its user."""
    return f"{gate.pattern!r} needs a person's yes{_why(gate)}"


def approved(store: Store, gate: Gate, asked: Asked, session_id: str | None, decision: Decision) -> Effect:
    """Use a grant for this call: its effect is dispatched. Raises Refusal, with the approval that was requested."""
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
    except (Conflict, EffectInDoubt, StandfastError) as error:
        raise Refusal(
            gate, f"{gate.pattern!r} needs a person's yes{_why(gate)}. {error.message} {error.hint}"
        ) from None


def _asking(gate: Gate, error: ApprovalRequired) -> str:
    if error.code == "approval_denied" or not error.approval_id:
        return f"{error.message}. {error.hint}"
    return (
        f"{gate.pattern!r} needs a person's yes{_why(gate)}, and has been asked for. A person runs: "
        f"{hints.command('approve', short(error.approval_id))}    Then make exactly the same call again; "
        f"to wait for the answer: {hints.command('approval', 'wait', short(error.approval_id))}"
    )


def _recorded(store: Store, gate: Gate, asked: Asked, session_id: str, decision: Decision) -> bool:
    """Whether a dispatched effect meets the gate; it does so once."""
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
    """Whether the call is our own `standfast once` and nothing else, in this store, home and directory."""
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
    """Whether a shell would start this installation's program for `word`."""
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
    return "a person's yes" if gate.needs_person else "to be recorded first"


def _why(gate: Gate) -> str:
    return f" ({gate.why})" if gate.why else ""
