"""A refund that a person has to approve: this order, this amount and exactly this reason.

The agent asks and stops. Called again after the approval, it refunds once. Run again, everything is answered
from the record. If the LLM changes the reason in between, the approval does not count.

Here a function plays the person, so that the example runs by itself. Really, a person types
`standfast approve …` in a terminal, reads every byte, and types yes.
"""

from __future__ import annotations

from dataclasses import dataclass

import standfast


@dataclass(frozen=True)
class Refund:
    order: str
    cents: int


@standfast.effect("shop.refund", by=("order",), approve=True)
def refund(order: str, cents: int, reason: str) -> Refund:
    return Refund(order, cents)  # in place of a call of the shop's API


def agent(sf: standfast.Standfast) -> Refund:
    with sf.session("refund-1042"):
        return refund("1042", 4200, reason="arrived broken")


def person(sf: standfast.Standfast, approval_id: str) -> None:
    question = sf.approvals.pose(approval_id)
    assert question.intent == '{"cents":4200,"order":"1042","reason":"arrived broken"}'
    sf.approvals.grant(approval_id, approver="ada", rationale="the photo shows it")


with standfast.open() as sf:
    try:
        done = agent(sf)
    except standfast.ApprovalRequired as error:
        person(sf, error.approval_id)
        done = agent(sf)
    (approval,) = sf.approvals.list(session="refund-1042")
    print(f"{approval.tool}: {approval.state}, because {approval.approver} said: {approval.rationale}")
    print(f"refunded {done.cents / 100:.2f} for order {done.order}")
