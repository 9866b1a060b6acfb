"""A charge at a remote that honours idempotency keys, without a function to declare.

`call.key` is the same for every attempt, so a charge in doubt is sent again with it, and with its first arguments.
The remote returns its first answer. After 24 hours it forgets its keys, and then a person has to check. A refused
connection proves that nothing was sent.
"""

from __future__ import annotations

from pathlib import Path

import standfast


class Bank:
    """The remote service: it records every request and charges once per key."""

    books = Path("bank.log")

    def charge(self, cents: int, key: str) -> str:
        with self.books.open("a") as books:
            books.write(f"{key} {cents}\n")
        asked = self.books.read_text().splitlines()
        if len(asked) == 1:
            raise TimeoutError("no answer")
        return f"charge {len(set(asked))}"


def agent(sf: standfast.Standfast) -> str:
    with sf.session("order-1042") as s:
        return s.effect(
            "bank.charge",
            {"order": "1042", "cents": 4200, "text": "thank you"},
            by="order",
            do=lambda call: Bank().charge(call.intent["cents"], call.key),
            idempotent="24h",
            not_applied=(ConnectionRefusedError,),
        )


with standfast.open() as sf:
    try:
        done = agent(sf)
    except TimeoutError:
        (doubt,) = sf.effects.in_doubt()
        assert sf.effects.may_replay(doubt.id).action == "replay"  # the remote knows its key
        done = agent(sf)
    requests = Bank.books.read_text().splitlines()
    print(f"{done}: asked {len(requests)} times, charged {len(set(requests))} time")
