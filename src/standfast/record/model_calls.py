"""Calls of an LLM: the prompt, the length of the context, the response and the tokens, stored in one transaction.

A call is a row of `usage`. Its prompt and response are messages of the node `model calls`, so `search` finds them and
`usage` sums them. A text over 64 kB is stored as an artifact, and the message refers to it. The same transaction
settles the hold of the call. Without a hold, the usage is counted in the budgets of the session.

A call is stored when it has ended. Nothing of a running call is stored.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar

from standfast import serial
from standfast.core import journal, keys
from standfast.core.checks import NAME_MAX, page_size, whole
from standfast.core.receipts import Receipt
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.errors import InvalidInput, KeyConflict, StandfastError
from standfast.ids import new_id
from standfast.ledger import prices
from standfast.ledger.budgets import amounts
from standfast.ledger.budgets.amounts import AMOUNT_MAX, Amounts
from standfast.ledger.budgets.block import Spending, subjects_of
from standfast.ledger.budgets.models import Hold
from standfast.ledger.budgets.resource import Subjects, count, end_hold
from standfast.models import Model
from standfast.record import messages
from standfast.record.messages import Utterance
from standfast.record.sessions import queries

if TYPE_CHECKING:
    from standfast.record.node_methods import NodeMethods

SQL = load(__name__)
P = ParamSpec("P")
T = TypeVar("T")

NODE = "model calls"
"""The name of the node with the prompts and responses of a session or of a sub-agent."""
LONG_BYTES = 64 * 1024
BEGINNING = 1000
"""Characters of a long text that its message still has."""
_NAMES = {
    "input_tokens": ("input_tokens", "prompt_tokens"),
    "output_tokens": ("output_tokens", "completion_tokens"),
    "cached_input_tokens": ("cached_input_tokens", "cache_read_input_tokens", "cache_read_tokens"),
    "cache_write_tokens": ("cache_write_tokens", "cache_creation_input_tokens"),
    "reasoning_tokens": ("reasoning_tokens",),
}
"""Each count, and its names in the answers of providers."""


class ModelUsage(Model):
    """The tokens and the cost of one call of an LLM."""

    input_tokens: int
    output_tokens: int
    cached_input_tokens: int = 0
    """Included in `input_tokens` or not, depending on the provider."""
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    cost_microusd: int | None = None
    """None if the cost is unknown."""

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens


class ModelCall(Model):
    """One recorded call of an LLM."""

    id: str
    session_id: str
    node_id: str | None
    model: str
    context_tokens: int | None
    """The length of the context of the call."""
    prompt_id: str
    """The message that has the prompt."""
    response_id: str
    input_tokens: int
    cached_input_tokens: int
    cache_write_tokens: int
    output_tokens: int
    reasoning_tokens: int
    cost_microusd: int | None
    price: str | None
    """None: the provider reported the cost. Otherwise where it is from: list price, with its source."""
    hold_id: str | None
    """The hold that it settled."""
    occurred_us: int
    receipt: Receipt | None = None


class _Asked(NamedTuple):
    model: str
    prompt: Utterance
    response: Utterance
    usage: ModelUsage
    context_tokens: int | None
    hold: Hold | None
    key: str | None
    price: str | None


def record(
    node: NodeMethods,
    model: str,
    *,
    prompt: serial.Json,
    response: serial.Json,
    usage: object,
    context_tokens: int | None,
    hold: Hold | None,
    key: str | None,
) -> ModelCall:
    """Store one call of an LLM and settle its hold, in one transaction. See `s.model_call`."""
    opening = node._session.opening
    opening.usable()
    if context_tokens is not None:
        whole(context_tokens, "context_tokens", least=0, most=AMOUNT_MAX)
    own_key = None if key is None else f"{opening.session_id}:{keys.checked(key, 'key')}"
    used, price = priced(model, usage_of(usage))
    asked = _Asked(
        keys.checked(model, "model", limit=NAME_MAX),
        _said(node, "prompt", prompt),
        _said(node, "response", response),
        used,
        context_tokens,
        hold,
        own_key,
        price,
    )
    place = node.subagent(NODE)
    return opening.store.write(lambda tx: _record(tx, node, place, asked))


def _said(node: NodeMethods, role: str, content: serial.Json) -> Utterance:
    """The text as a message. A long text is stored as an artifact first, before the transaction."""
    said = messages.utterance(role, content, redact=node._session.opening.store.redact)
    data = said.content.encode()
    if len(data) <= LONG_BYTES:
        return said
    stored = node.artifacts.put(data, name=f"{role}.txt", kind=role)
    reference = {"artifact": stored.id, "size_bytes": len(data), "begins": said.content[:BEGINNING]}
    return messages.utterance(role, reference, redact=False)._replace(hash=said.hash)


def _record(tx: Tx, node: NodeMethods, place: NodeMethods, asked: _Asked) -> ModelCall:
    opening = node._session.opening
    before = None if asked.key is None else tx.maybe(SQL.by_response, response=asked.key)
    if before is not None:
        return ModelCall.from_row(_checked_same(before, asked.model, asked.usage))
    prompt = messages.say(tx, opening.session_id, place._segments, asked.prompt)
    answer = messages.say(tx, opening.session_id, place._segments, asked.response)
    used = Amounts(asked.usage.tokens, asked.usage.cost_microusd, 1)
    if asked.hold is not None:
        end_hold(tx, opening.scope, asked.hold, "settled", used, None)
    else:
        count(tx, opening.scope, subjects_of(opening), used)
    row, receipt = _added(
        tx,
        asked.usage,
        session_id=opening.session_id,
        node_id=node.node_id,
        response=asked.key,
        model=asked.model,
        context_tokens=asked.context_tokens,
        prompt_id=prompt.id,
        response_id=answer.id,
        hold_id=None if asked.hold is None else asked.hold.id,
        price=asked.price,
    )
    return ModelCall.from_row(row).replace(receipt=receipt)


def _added(tx: Tx, usage: ModelUsage, *, response: str | None, **columns: Any) -> tuple[Row, Receipt]:
    """Add a row of `usage` and journal it. `response` is what makes it unique; by default its id."""
    id, counts = new_id("usg"), usage.as_dict()
    row: Row = {"id": id, **counts, **columns}
    tx.run(SQL.add, now_us=tx.now_us(), response=response or id, **row)
    receipt = journal.append(
        tx,
        "usage.recorded",
        id,
        session_id=row["session_id"],
        summary=f"{row['model']}: {usage.input_tokens:,} tokens in, {usage.output_tokens:,} out",
        data={name: value for name, value in counts.items() if value},
        source="said",
    )
    return row | {"occurred_us": tx.now_us()}, receipt


def _checked_same(before: Row, model: str, usage: ModelUsage) -> Row:
    """The existing row of a key. Raises KeyConflict if it has another model or other counts."""
    counts = usage.as_dict()
    if before["price"] is not None:
        del counts["cost_microusd"]  # a list price may have changed since
    if before["model"] != model or any(before[name] != value for name, value in counts.items()):
        raise KeyConflict(
            f"the key of this model call has {before['input_tokens']:,} tokens in and {before['output_tokens']:,} out "
            f"of {before['model']}",
            "another call needs another key",
        )
    return before


def listed(tx: Tx, session_id: str, *, after: str, limit: int) -> list[ModelCall]:
    """The recorded calls of a session, in order."""
    rows = tx.all(SQL.page, session_id=session_id, after=after, limit=page_size(limit))
    return [ModelCall.from_row(row) for row in rows]


def response_of(node: NodeMethods, key: str) -> str | None:
    """The response of the call that was recorded under this key of the session; None if there is none."""
    opening = node._session.opening
    row = opening.store.read(lambda tx: tx.maybe(SQL.response_of, response=f"{opening.session_id}:{key}"))
    if row is None:
        return None
    if row["format"] == "text":
        return str(row["content"])
    return node.artifacts.get(str(serial.loads(row["content"])["artifact"])).decode()


def priced(model: str, usage: ModelUsage) -> tuple[ModelUsage, str | None]:
    """The usage with its list price if the cost is not known, and the label of that price."""
    if usage.cost_microusd is not None:
        return usage, None
    cached, cache_write = usage.cached_input_tokens, usage.cache_write_tokens
    fresh = prices.fresh_input(model, usage.input_tokens, cached, cache_write)
    price = prices.list_price(model, fresh=fresh, cached=cached, cache_write=cache_write, output=usage.output_tokens)
    return (usage, None) if price is None else (usage.replace(cost_microusd=price.microusd), price.label)


class UsageRecord(Model):
    """Usage that a program recorded itself, without its texts."""

    id: str
    session_id: str
    model: str
    input_tokens: int
    cached_input_tokens: int
    output_tokens: int
    cost_microusd: int | None
    """None: the cost is not known."""
    price: str | None
    """None: the caller reported the cost. Otherwise where it is from: list price, with its source."""
    hold_id: str | None
    occurred_us: int
    receipt: Receipt | None = None


def record_usage(
    tx: Tx,
    scope: str,
    session: str,
    model: str,
    usage: ModelUsage,
    price: str | None,
    key: str | None,
    hold: str | None,
) -> UsageRecord:
    """Store the usage of one call, once per key, and book it in the budgets or settle its hold."""
    row = queries.find(tx, session)
    response = None if key is None else f"{row['id']}:{key}"
    before = None if response is None else tx.maybe(SQL.by_response, response=response)
    if before is not None:
        return UsageRecord.from_row(_checked_same(before, model, usage))
    used = Amounts(usage.tokens, usage.cost_microusd, 1)
    hold_id = None
    if hold is None:
        agent = row["agent"] or row["actor"]
        count(tx, row["scope"], Subjects("", f"session:{row['key']}", f"agent:{agent}", row["id"]), used)
    else:
        ended = end_hold(tx, scope, hold, "settled", used, None)
        hold_id = None if isinstance(ended, StandfastError) else ended.id
    columns: Row = {"session_id": row["id"], "model": model, "price": price, "hold_id": hold_id}
    columns |= dict.fromkeys(("node_id", "context_tokens", "prompt_id", "response_id"))
    made, receipt = _added(tx, usage, response=response, **columns)
    return UsageRecord.from_row(made).replace(receipt=receipt)


# -- usage in the forms of providers ----------------------------------------------------------------------


def usage_of(usage: object) -> ModelUsage:
    """The counts of a provider's usage: a ModelUsage, a mapping, or an object with such attributes.

    Raises InvalidInput if the input or the output is missing.
    """
    if isinstance(usage, ModelUsage):
        return usage
    found = {name: _first(usage, names) for name, names in _NAMES.items()}
    for name in ("input_tokens", "output_tokens"):
        if found[name] is None:
            raise InvalidInput(
                f"usage has no {name}", 'usage={"input_tokens": 812, "output_tokens": 120}, or a standfast.ModelUsage'
            )
    counts = {name: whole(value, name, least=0, most=AMOUNT_MAX) for name, value in found.items() if value is not None}
    cost = _first(usage, ("cost_usd", "cost"))
    return ModelUsage(**counts, cost_microusd=None if cost is None else amounts.microusd(cost))


def _first(usage: object, names: tuple[str, ...]) -> Any:
    for name in names:
        value = usage.get(name) if isinstance(usage, Mapping) else getattr(usage, name, None)
        if value is not None:
            return value
    return None


# -- a wrapped function -----------------------------------------------------------------------------------


def wrapped(
    node: NodeMethods,
    function: Callable[P, T],
    model: str,
    *,
    spending: Callable[[], Spending],
    usage: Callable[[T], object] | None,
    response: Callable[[T], serial.Json] | None,
) -> Callable[P, T]:
    """`function`, with a hold before each call, which is recorded and settled after it. See `s.wrap_model`."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        prompt: serial.Json = args[0] if args else dict(kwargs)
        with spending() as block:
            answer = function(*args, **kwargs)
            used = usage(answer) if usage is not None else _usage_in(answer)
            text = response(answer) if response is not None else _text_of(answer)
            record(
                node, model, prompt=prompt, response=text, usage=used, context_tokens=None, hold=block.hold, key=None
            )
            block.refresh()
        return answer

    return call


def _usage_in(answer: object) -> object:
    return answer.get("usage") if isinstance(answer, Mapping) else getattr(answer, "usage", None)


def _text_of(answer: object) -> serial.Json:
    if isinstance(answer, str | dict | list):
        return answer
    text = getattr(answer, "text", None)
    if not isinstance(text, str):
        raise InvalidInput(
            f"the response of {type(answer).__name__} is not known",
            "give its text: response=lambda answer: answer.text",
        )
    return text
