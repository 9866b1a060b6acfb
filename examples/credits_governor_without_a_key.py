"""A governor for the budget of a fleet. Without a key its model is a script, which fails in every way a model can.

Before each call an agent reserves what the call may cost, afterwards it settles the difference. Agents die, answers get
lost, the provider refuses and takes more than was said: whoever starts again goes on, and in the end our books are the
provider's to the token.

python examples/credits_governor_without_a_key.py
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections import Counter
from pathlib import Path

import standfast
from standfast import Applied, Call, NotApplied

TEAM, UNIT, ALLOWED = "team:platform", "tokens", 300
FATES = ("answers", "is overloaded", "loses its answer", "takes too much", "outlives its agent")


class Overloaded(Exception):
    """The provider refused before it did anything."""


class Offline:
    """A provider without a network: what becomes of a call follows from the call alone, the same every time."""

    def __init__(self, books: Path) -> None:
        self.books = books

    def answer(self, call: Call) -> int:
        fate = FATES[call.intent["n"] % len(FATES)] if call.attempt == 1 else "answers"
        if fate == "is overloaded":
            raise Overloaded
        tokens = 2 * ALLOWED if fate == "takes too much" else 100 + call.intent["n"]
        with self.books.open("a") as books:
            books.write(f"{call.key} {tokens}\n")
        if fate == "loses its answer":
            raise TimeoutError("no answer")
        if fate == "outlives its agent":
            os.kill(os.getpid(), signal.SIGKILL)
        return tokens

    def look(self, call: Call) -> Applied | NotApplied:
        known = dict(line.split() for line in self.books.read_text().splitlines())
        return Applied(int(known[call.key])) if call.key in known else NotApplied()


def provider(books: Path) -> Offline:
    if os.environ.get("MODEL_API_KEY"):
        sys.exit("put the client of your provider here: answer() and look(), nothing else changes")
    return Offline(books)


def agent(directory: str, name: str, model: Offline) -> None:
    with standfast.open(data_dir=directory, actor=name) as sf, sf.session(f"work of {name}") as s:
        for n in range(len(FATES)):
            sf.credits.spend(TEAM, ALLOWED, key=f"reserve:{name}:{n}", unit=UNIT)  # Conflict: the budget is used up
            intent = {"agent": name, "n": n}
            tokens = s.effect(
                "model.ask",
                intent,
                do=model.answer,
                probe=model.look,
                settle="0s",  # the books of this model are a file: what was written is there
                not_applied=(Overloaded,),
            )
            if tokens < ALLOWED:
                sf.credits.grant(TEAM, ALLOWED - tokens, key=f"settle:{name}:{n}", unit=UNIT)
            elif tokens > ALLOWED:
                sf.credits.spend(TEAM, tokens - ALLOWED, key=f"settle:{name}:{n}", unit=UNIT, below_zero=True)


ENDS = {0: "done", 10: "refusals", 11: "lost answers", -signal.SIGKILL: "dead agents"}


def start(directory: str, name: str, model: Offline) -> int:
    """One life of an agent, as a process of its own."""
    if (pid := os.fork()) != 0:
        return pid
    code = 1
    try:
        agent(directory, name, model)
        code = 0
    except Overloaded:
        code = 10
    except TimeoutError:
        code = 11
    finally:
        os._exit(code)


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        model = provider(Path(directory) / "books")
        with standfast.open(data_dir=directory) as sf:
            granted = sf.credits.grant(TEAM, 4000, key="monthly:invoice_2026_11", unit=UNIT).amount
        names, ends = {"ann", "bob", "eve"}, Counter[str]()
        for _ in range(10):  # started again until there is nothing left to do
            for pid, name in [(start(directory, name, model), name) for name in sorted(names)]:
                end = ENDS[os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])]
                ends[end] += 1
                names -= {name} if end == "done" else set()
        with standfast.open(data_dir=directory) as sf:
            left = sf.credits.balance(TEAM, unit=UNIT).balance
            try:
                sf.credits.spend(TEAM, left + 1, key="reserve:dan:0", unit=UNIT)
            except standfast.Conflict:
                ends["overdrafts refused"] += 1
            answers = sum(one.state == "acknowledged" for one in sf.effects.list(limit=100))
        billed = sum(int(line.split()[1]) for line in model.books.read_text().splitlines())
        print(f"{answers} answers, " + ", ".join(f"{count} {end}" for end, count in sorted(ends.items())))
        print(f"{billed} tokens by the provider's books, {granted - left} by ours")


if __name__ == "__main__":
    main()
