"""An agent over standfast that charges four orders, one after the other.

If the agent runs again, it starts from its first line. The store answers a charge that it knows. For a charge that
the store may have lost, `find` asks the payment service first.
"""

from __future__ import annotations

import sys

import standfast
from standfast.cli.demo.server import ask

ORDERS = ("order-1", "order-2", "order-3", "order-4")
SERVER = ""


def find_charge(order: str) -> int | None:
    found = ask(f"{SERVER}/charges?order={order}")
    return int(found[0]["number"]) if found else None


@standfast.effect(
    "demo.charge", by=("order",), find=find_charge, settle="1ms"
)  # the server of the demo answers immediately
def charge(order: str, cents: int) -> int:
    return int(ask(f"{SERVER}/charges", {"order": order, "cents": cents})["number"])


def main(server: str, count: str) -> None:
    global SERVER
    SERVER = server
    with standfast.open() as sf, sf.session("charge-orders", agent="demo"):
        for order in ORDERS[: int(count)]:
            print(f"{order}: charge {charge(order, cents=4900)}", flush=True)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except standfast.StandfastError as error:
        sys.exit(str(error))
