"""A governor for a fleet: five agents share one budget. Without a key their model is offline, and fails in every way.

Each call reserves before it is made and settles with what it used. Agents are killed, answers get lost, the provider
refuses or uses more than was reserved. A restarted agent continues, and in the end our numbers equal the provider's
bill.

python examples/budgets_governor_without_a_key.py
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections import Counter
from pathlib import Path

import standfast
from standfast.governor import Governor
from standfast.testing import FATES, OfflineModel

AGENTS, CALLS, MOST = ("ann", "bob", "dan", "eve", "kim"), 4, 300
ENDS = {0: "done", 10: "refusals", 11: "lost answers", 12: "stopped by the budget", -signal.SIGKILL: "dead agents"}


def provider(bill: Path) -> OfflineModel:
    if os.environ.get("MODEL_API_KEY"):
        sys.exit("put the client of your provider here: a function of prompt, max_tokens and key, and its find")
    return OfflineModel(seed=8, bill=bill, fates=FATES)


def agent(directory: str, name: str, model: OfflineModel) -> None:
    with standfast.open(data_dir=directory, agent=name) as sf, sf.session(f"work of {name}", agent=name) as s:
        governor = Governor(sf, "team", provider=model, find=model.find, model="offline-1")
        for n in range(CALLS):
            governor.ask(s, f"{name}: part {n}", tokens=MOST, key=f"part {n}")


def start(directory: str, name: str, model: OfflineModel) -> int:
    """Run one agent in its own process."""
    if (pid := os.fork()) != 0:
        return pid
    code = 1
    try:
        agent(directory, name, model)
        code = 0
    except standfast.NotApplied:
        code = 10
    except TimeoutError:
        code = 11
    except standfast.Conflict:
        code = 12
    finally:
        os._exit(code)


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        model = provider(Path(directory) / "bill")
        with standfast.open(data_dir=directory) as sf:
            sf.budgets.set("team", tokens=4_000, per="month")
        waiting, ends = set(AGENTS), Counter[str]()
        for _ in range(12):  # started again until each is done, or the budget stops it
            for name in sorted(waiting):
                end = ENDS[os.waitstatus_to_exitcode(os.waitpid(start(directory, name, model), 0)[1])]
                ends[end] += 1
                waiting -= {name} if end in ("done", "stopped by the budget") else set()
        billed = sum(tokens for _, _, tokens in model.billed())
        ends["overruns"] = sum(tokens > MOST for _, _, tokens in model.billed())
        with standfast.open(data_dir=directory) as sf:
            team = sf.budgets.get("team")
            print(", ".join(f"{count} {end}" for end, count in sorted(ends.items())))
            print(f"{billed} tokens on the provider's bill, {team.spent.tokens} in our books, {team.held.tokens} held")


if __name__ == "__main__":
    main()
