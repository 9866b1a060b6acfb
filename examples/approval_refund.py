"""A refund that a person has to say yes to: to this order, this amount and these very words.

    python examples/approval_refund.py      asks, and exits with 5
    standfast approve …                     a person reads it all, and types yes
    python examples/approval_refund.py      refunds, once; run again, it answers from the record

If the model words the reason differently in between, the yes does not count, and it asks anew.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import standfast


@dataclass(frozen=True)
class Refund:
    order: str
    cents: int


@standfast.effect("shop.refund", by=("order",), approve=True)
def refund(order: str, cents: int, reason: str) -> Refund:
    print(f"  the shop: {cents / 100:.2f} back for order {order}: {reason}")
    return Refund(order, cents)


def main() -> int:
    with standfast.open() as sf:
        try:
            with sf.session("refund-1042") as s:
                done = s.effect(refund, order="1042", cents=4200, reason="arrived broken")
        except standfast.ApprovalRequired as error:
            print(error)
            return error.exit_code
        print(f"refunded: {done.cents / 100:.2f} for order {done.order}")
        return 0


if __name__ == "__main__":
    sys.exit(main())
