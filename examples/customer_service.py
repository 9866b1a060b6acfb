"""A customer-service agent that remembers: profile, ticket, conversation and tool calls outlive its processes.

It is killed in the middle of its second turn: the bank has the refund, and the store has no result of it. The next
process continues in that turn: the refund is found, not sent again, and the customer gets one answer. Then two agents
write to the same customer's profile at once, and nothing is lost.

python examples/customer_service.py
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path

import standfast

CUSTOMER = "customer:ada"
SAID = ["my order 7 never arrived", "I want my money back", "thank you, that was quick"]
NOTES = 10


@dataclass(frozen=True)
class Profile:
    """The profile of a customer. `sentiment` came later: older profiles read as neutral."""

    name: str
    plan: str = "free"
    turns: int = 0
    notes: list[str] = field(default_factory=list)
    sentiment: str = "neutral"


@dataclass(frozen=True)
class Wish:
    """The customer's wish, as the LLM understood it."""

    problem: str | None = None
    refund: str | None = None
    solved: bool = False
    sentiment: str = "neutral"


def understand(turn: int, text: str) -> Wish:
    """Yours would ask an LLM. It is a step, so you pay once."""
    if "never arrived" in text:
        return Wish(problem="order 7 never arrived", sentiment="upset")
    if "money back" in text:
        return Wish(refund="order 7", sentiment="upset")
    return Wish(solved="thank you" in text, sentiment="happy")


# -- the tool: what it does can be seen outside, so it is an effect -----------------------------------------


def find_refund(order: str, cents: int, bank: str) -> str | None:
    book = Path(bank)
    found = book.exists() and f"refunded {order}: " in book.read_text()
    return f"{cents / 100:.2f} EUR for {order}" if found else None


@standfast.effect("bank.refund", by=("order",), find=find_refund)
def refund(order: str, cents: int, bank: str) -> str:
    with Path(bank).open("a") as book:
        book.write(f"refunded {order}: {cents}\n")
    if os.environ.get("CUT_OFF"):
        os.kill(os.getpid(), signal.SIGKILL)  # the bank has it, and its answer is lost
    return f"{cents / 100:.2f} EUR for {order}"


# -- the agent -------------------------------------------------------------------------------------------------


def serve(bank: str) -> None:
    """Answer the messages without an answer. The next process continues exactly there."""
    with standfast.open() as sf, sf.session(CUSTOMER, agent="support") as s:
        answered = sum(message.role == "assistant" for message in s.messages(last=1000))
        for turn, text in list(enumerate(SAID))[answered:]:
            s.say("user", text, key=f"user {turn}")
            s.say("assistant", answer(sf, s, turn, text, bank), key=f"assistant {turn}")


def answer(sf: standfast.Standfast, s: standfast.Session, turn: int, text: str, bank: str) -> str:
    """One turn. Every line may run again: recorded steps and effects return their results."""
    wish = s.step("understand", understand, turn, text)
    said = "Is there anything else?"
    if wish.problem:
        ticket = sf.tasks.add(wish.problem, source=CUSTOMER, fingerprint=f"{CUSTOMER}:order 7", session=s.key)
        said = f"I am sorry to hear that; I have opened a ticket: {ticket.title}."
    if wish.refund:
        said = "Done: " + refund(wish.refund, 1250, bank) + "."
    if wish.solved:
        sf.tasks.done(f"{CUSTOMER}:order 7", reason="refunded, the customer is happy")

    def seen(profile: Profile) -> Profile:
        return replace(profile, turns=max(profile.turns, turn + 1), sentiment=wish.sentiment)

    sf.state.update("profile", seen, namespace=CUSTOMER, returns=Profile)
    return said


def take_notes(agent: str) -> None:
    """Another agent works on the same customer. Both write with compare-and-set."""
    with standfast.open(agent=agent) as sf:
        for n in range(NOTES):
            note = f"{agent} {n}"

            def noted(profile: Profile, note: str = note) -> Profile:
                return replace(profile, notes=[*profile.notes, note])

            sf.state.update("profile", noted, namespace=CUSTOMER, returns=Profile, attempts_max=1000)


def sign_up() -> None:
    """A profile of the first version of this program, which had no `sentiment`."""
    with standfast.open() as sf:
        sf.state.set("profile", {"name": "Ada", "plan": "pro", "turns": 0, "notes": []}, namespace=CUSTOMER)


def report(bank: str) -> None:
    with standfast.open() as sf:
        profile: Profile = sf.state.get("profile", namespace=CUSTOMER, returns=Profile).value
        print(f"{profile.name}: {profile.turns} turns, {profile.sentiment}, {len(profile.notes)} notes")
        for message in sf.sessions.messages(CUSTOMER):
            print(f"  {message.role}: {message.content}")
        ticket = sf.tasks.get(f"{CUSTOMER}:order 7")
        print(f"ticket: {ticket.title}: {ticket.state}, {ticket.reason}")
        (call,) = sf.effects.list(tool="bank.refund")
        print(f"tool call: {call.tool} {call.state}; in the bank's book: {Path(bank).read_text().strip()}")


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        bank = str(Path(directory, "bank"))
        os.environ["STANDFAST_DATA_DIR"] = directory
        me = [sys.executable, __file__]
        sign_up()
        cut_off = subprocess.run([*me, "serve", bank], env={**os.environ, "CUT_OFF": "yes"}, check=False)
        print("cut off in the middle of a turn:", cut_off.returncode == -signal.SIGKILL)
        subprocess.run([*me, "serve", bank], check=True)
        agents = [subprocess.Popen([*me, "notes", agent]) for agent in ("billing", "shipping")]
        print("two agents at once:", [agent.wait() for agent in agents])
        report(bank)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["serve", bank]:
            serve(bank)
        case ["notes", agent]:
            take_notes(agent)
        case _:
            main()
