"""`python -m tests.mutants`: the seeded bugs, and who finds them."""

from __future__ import annotations

from tests.mutants.effects import MUTANTS

for name, mutant in MUTANTS.items():
    print(f"{name:<40} {mutant.harness:<22} {mutant.what}")
