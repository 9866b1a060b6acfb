"""`python -m standfast_prove.mutate`: draw a sample of mutants, run the tests that execute each, print the score."""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from functools import partial
from pathlib import Path

from standfast_prove.mutate import gaps, mutants, tree
from standfast_prove.mutate.call_map import CallMap
from standfast_prove.mutate.run import Result, Results, run_all
from standfast_prove.postgres import TemporaryPostgres


def main() -> None:
    options = _options()
    root = Path.cwd()
    place = root / ".mutate"
    if options.gaps or options.repairs:
        file = "gaps.toml" if options.gaps else "repairs.toml"
        sys.exit(0 if _run_listed(file, options.only, root, place) else 1)
    tests = CallMap(root, place / "map")
    if not options.recorded:
        tests.record(tree.make(root, place / "tree-map"))
    tests.load()
    seed = options.seed if options.seed is not None else random.randrange(10**6)
    found = [m for m in mutants.found(root) if options.only in m.file]
    chosen = mutants.sample(found, seed=seed, count=options.count)
    equivalent = mutants.equivalent()
    results = Results(place / f"results-{seed}.jsonl")
    print(f"--seed {seed}: {len(chosen)} of {len(found)} mutants", flush=True)

    def say(result: Result) -> None:
        results.add(result)
        print(f"{result.result:9} {result.mutant}   {result.by} ({result.seconds} s)", flush=True)

    waiting = [m for m in chosen if m.identity not in equivalent and _waits(results, m, again=options.again)]
    run_all(waiting, tests, root=root, place=place, seconds=options.seconds, say=say)
    _print_score(chosen, equivalent, results)


def _run_listed(file: str, only: str, root: Path, place: Path) -> bool:
    chosen = [gap for gap in gaps.listed(file) if only in (str(gap.group), "") or (only and only in gap.file)]
    with TemporaryPostgres() as server:
        return gaps.run_all(chosen, root=root, place=place, server=server.url, say=partial(print, flush=True))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make mutate ARGS=", description=__doc__)
    parser.add_argument("--seed", type=int, help="repeat or continue the sample of this seed")
    parser.add_argument("--count", type=int, default=400, help="how many mutants (default: 400)")
    parser.add_argument("--only", default="", metavar="TEXT", help="only files whose name contains TEXT, or one group")
    parser.add_argument("--seconds", type=float, default=300.0, help="tests per mutant, in recorded seconds")
    parser.add_argument("--recorded", action="store_true", help="use only the tests that were recorded before")
    parser.add_argument("--again", action="store_true", help="run the mutants again that survived")
    parser.add_argument("--gaps", action="store_true", help="run only the mutants of gaps.toml, each with its test")
    parser.add_argument("--repairs", action="store_true", help="undo each repair of repairs.toml: its test must fail")
    return parser.parse_args()


def _waits(results: Results, mutant: mutants.Mutant, *, again: bool) -> bool:
    known = results.by_identity.get(mutant.identity)
    return known is None or (again and known.result != "caught")


def _print_score(
    chosen: list[mutants.Mutant], equivalent: dict[tuple[str, str, str, str], str], results: Results
) -> None:
    counts: Counter[str] = Counter()
    for mutant in chosen:
        known = results.by_identity.get(mutant.identity)
        result = "equivalent" if mutant.identity in equivalent else known.result if known else "not run"
        counts[result] += 1
        if result == "equivalent":
            print(f"equivalent {mutant.name}   {equivalent[mutant.identity]}")
        elif result in ("survived", "untested"):
            print(f"{result:10} {mutant.name}")
    counted = counts["caught"] + counts["survived"] + counts["untested"]
    print(", ".join(f"{number} {result}" for result, number in sorted(counts.items())))
    if counted:
        print(f"score: {100 * counts['caught'] / counted:.1f} % ({counts['caught']} of {counted})")


if __name__ == "__main__":
    main()
