"""A governor: several agents share one budget, and each call of their model is reserved, made, recorded and settled.

    governor = Governor(sf, "team", provider=call_the_model, needs="MODEL_API_KEY")
    with sf.session("fix-42", agent="coder") as s:
        text = governor.ask(s, "plan the parser", tokens=3_000, key="plan")

The provider is a function of yours: `provider(prompt, max_tokens=…, key=…)` returns the text and its usage. The key
is the id of the hold: pass it on as the idempotency key. Without the credentials that `needs` names, the governor asks
`standfast.testing.OfflineModel`, which is deterministic by its seed and fails in the ways a provider does.

A call that was recorded is not made again. A call whose process died is in doubt. `find`, a function of the key,
returns its answer if the provider has it. Otherwise a person has to settle the hold, and the next call makes a new
hold.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from standfast.errors import NotFound
from standfast.ledger.budgets.amounts import Usd
from standfast.ledger.budgets.models import Hold
from standfast.record import model_calls
from standfast.record.model_calls import ModelUsage
from standfast.testing import OfflineModel

if TYPE_CHECKING:
    from standfast.handle import Standfast
    from standfast.record.node_methods import NodeMethods


class Answer(NamedTuple):
    """The answer of a provider."""

    text: str
    usage: ModelUsage


class Provider(Protocol):
    """A function that calls a model once."""

    def __call__(self, prompt: str, /, *, max_tokens: int, key: str) -> tuple[str, object]: ...


class Governor:
    """Asks one provider for several agents, within one budget."""

    def __init__(
        self,
        sf: Standfast,
        budget: str,
        *,
        provider: Provider | None = None,
        find: Callable[[str], tuple[str, object] | None] | None = None,
        needs: str | None = None,
        model: str = "offline",
        seed: int = 0,
    ) -> None:
        """`needs` names the variable with the credentials of `provider`; if it is not set, the model is offline."""
        self.offline = provider is None or (needs is not None and not os.environ.get(needs))
        if self.offline:
            local = OfflineModel(seed)
            provider, find, model = local, local.find, "offline"
        assert provider is not None
        self._sf, self._budget, self._provider, self._find = sf, budget, provider, find
        self.model = model

    def ask(self, s: NodeMethods, prompt: str, *, tokens: int, key: str, usd: Usd | None = None) -> str:
        """The answer of the model, made and paid for once per `key` of the session. `tokens` and `usd` are reserved.

        Raises Conflict (`budget_exhausted`) before anything is sent, and the provider's own exceptions.
        """
        known = model_calls.response_of(s, key)
        if known is not None:
            return known
        found = self._found(s, key)
        if found is not None:
            hold, answer = found
            return self._recorded(s, prompt, answer, hold, key)
        with s.budget(self._budget, tokens=tokens, usd=usd, key=key, note=self.model) as block:
            answer = _checked(self._provider(prompt, max_tokens=tokens, key=block.hold.id))
            self._recorded(s, prompt, answer, block.hold, key)
            block.refresh()
        return answer.text

    def _found(self, s: NodeMethods, key: str) -> tuple[Hold, Answer] | None:
        """The answer of a call that was in doubt, if the provider still has it: then its usage settles the hold."""
        try:
            hold = self._sf.budgets.hold(f"{s._session.key}:{key}")
        except NotFound:
            return None
        answer = self._find(hold.id) if hold.in_doubt and self._find is not None else None
        return None if answer is None else (hold, _checked(answer))

    def _recorded(self, s: NodeMethods, prompt: str, answer: Answer, hold: Hold, key: str) -> str:
        s.model_call(self.model, prompt=prompt, response=answer.text, usage=answer.usage, hold=hold, key=key)
        return answer.text


def _checked(answer: tuple[str, object]) -> Answer:
    text, usage = answer
    return Answer(text, model_calls.usage_of(usage))
