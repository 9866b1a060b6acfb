"""A budget that a fleet of agents shares: the first agent gets it, no agent overdraws, a crash costs nothing.

python examples/credits_budget_for_agents.py
"""

from __future__ import annotations

import os
import tempfile

import standfast

TEAM, UNIT = "team:platform", "tokens"


def agent(directory: str, name: str) -> None:
    """Spend before you work. The key names the purpose, so an agent that runs again pays once."""
    with standfast.open(data_dir=directory, agent=name) as sf:
        for run in range(4):
            try:
                sf.credits.spend(TEAM, 300, key=f"run:{name}:{run}", unit=UNIT)
            except standfast.Conflict:
                return  # the budget is used up: nothing was written, and the same key may ask again


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        with standfast.open(data_dir=directory) as sf:
            for _ in range(3):  # the invoice's webhook came three times
                sf.credits.grant(TEAM, 2000, key="monthly:invoice_2026_11", unit=UNIT)
        for _ in range(2):  # and every agent was started twice
            children = []
            for name in ("ann", "bob", "eve"):
                if (pid := os.fork()) == 0:
                    agent(directory, name)
                    os._exit(0)
                children.append(pid)
            for pid in children:
                os.waitpid(pid, 0)
        with standfast.open(data_dir=directory) as sf:
            left = sf.credits.balance(TEAM, unit=UNIT)
            spent = [entry for entry in sf.credits.list(account=TEAM) if entry.amount < 0]
            print(f"{len(spent)} runs were paid for, {left.balance} {left.unit} are left")


if __name__ == "__main__":
    main()
