"""The long campaigns: `python -m tests.prove [--minutes M] [--seed N] [--only NAME …]`.

Each campaign is a short run with a seed, repeated with the next seed until its share of the time
is used. What must not happen is a sentence and a seed, and the exit code 1. A control is the same
campaign without the protection: it has to go wrong. What this machine cannot do is said, not
passed over. `docs/durability.md` says what each of them shows.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from tests.faults import Unavailable
from tests.prove.outcome import Outcome


class Campaign(NamedTuple):
    run: Callable[[Path, int], Outcome]
    share: float
    """Of the time, against the others."""
    control: bool = False


def _campaigns(stack: ExitStack) -> dict[str, Campaign]:
    from tests.prove import (
        agents,
        boot,
        checkpoints,
        daemons,
        effects,
        events,
        followers,
        imports,
        interrupts,
        langgraph,
        loops,
        mail,
        power,
        state,
        sweeps,
        torture,
        webhooks,
    )

    def postgres(place: Path, seed: int) -> Outcome:
        return followers.run(place, url=_server(stack), seed=seed)

    def machines(place: Path, seed: int) -> Outcome:
        return daemons.machines(place, url=_server(stack), rounds=2, seed=seed, haste=True)

    return {
        "daemon-kills": Campaign(lambda place, seed: daemons.kills(place, seconds=60, seed=seed), 2),
        "daemon-kills-control": Campaign(
            lambda place, seed: daemons.kills(place, seconds=10, seed=seed, careless=True), 0.5, control=True
        ),
        "daemon-keepers": Campaign(lambda place, seed: daemons.keepers(place, seconds=30, seed=seed), 1),
        "daemon-rivals": Campaign(lambda place, seed: daemons.rivals(place, seconds=30, seed=seed), 1),
        "daemon-lives": Campaign(lambda place, seed: daemons.lives(place, seconds=60), 1),
        "daemon-locked-out": Campaign(lambda place, seed: daemons.locked_out(place, seconds=35), 0.5),
        "daemon-full-disk": Campaign(lambda place, seed: daemons.full_disk(place, seconds=20), 0.5),
        "daemon-machines": Campaign(machines, 1),
        "daemon-sweep": Campaign(lambda place, seed: daemons.sweep(place, schedules=150, seed=seed), 1),
        "boot": Campaign(lambda place, seed: boot.run(place, rounds=20), 1),
        "boot-old": Campaign(lambda place, seed: boot.run(place, rounds=20, old=True), 1),
        "torture": Campaign(lambda place, seed: torture.run(place, seconds=15, seed=seed), 6),
        "torture-control": Campaign(
            lambda place, seed: torture.run(place, seconds=5, seed=seed, guard=False), 0.5, control=True
        ),
        "power": Campaign(lambda place, seed: power.run(place, losses=36, seed=seed), 4),
        "power-control": Campaign(
            lambda place, seed: power.run(place, losses=12, seed=seed, synced=False), 0.5, control=True
        ),
        "power-failing": Campaign(lambda place, seed: power.run_failing(place, losses=24, seed=seed), 2),
        "cuts": Campaign(lambda place, seed: power.run_cuts(place, losses=36, seed=seed), 4),
        "cuts-control": Campaign(
            lambda place, seed: power.run_cuts(place, losses=12, seed=seed, synced=False), 0.5, control=True
        ),
        "checkpoints": Campaign(lambda place, seed: checkpoints.run(place, seconds=10, seed=seed), 1),
        "agents": Campaign(lambda place, seed: agents.run(seed), 0.1),
        "spool": Campaign(_spool, 1),
        "sweep": Campaign(lambda place, seed: sweeps.run(place, schedules=150, seed=seed), 2),
        "effects": Campaign(lambda place, seed: effects.run(place, schedules=500, seed=seed), 4),
        "webhooks": Campaign(lambda place, seed: webhooks.run(place, schedules=150, seed=seed), 2),
        "loops": Campaign(lambda place, seed: loops.run(place, years=20, seed=seed), 3),
        "loops-mutants": Campaign(lambda place, seed: loops.run_mutants(place), 0.5),
        "imports": Campaign(lambda place, seed: imports.run(place, schedules=150, seed=seed), 1),
        "langgraph": Campaign(lambda place, seed: langgraph.run(place), 1),
        "langgraph-control": Campaign(lambda place, seed: langgraph.run(place, official=True), 1, control=True),
        "interrupts": Campaign(lambda place, seed: interrupts.run(place), 1),
        "tail": Campaign(lambda place, seed: followers.run(place, seed=seed), 1),
        "tail-postgres": Campaign(postgres, 1),
        "leases": Campaign(_leases, 1),
        "events": Campaign(lambda place, seed: events.run(place, seed=seed), 1),
        "events-postgres": Campaign(lambda place, seed: events.run(place, seed=seed, url=_server(stack)), 1),
        "events-sweep": Campaign(lambda place, seed: events.run_sweep(place, schedules=150, seed=seed), 2),
        "mail": Campaign(lambda place, seed: mail.run(place, seed=seed), 2),
        "mail-postgres": Campaign(lambda place, seed: mail.run(place, seed=seed, url=_server(stack)), 2),
        "state": Campaign(lambda place, seed: state.run(place, seed=seed, calls=150, kills=16), 1),
        "state-sweep": Campaign(lambda place, seed: state.sweep(place, schedules=150, seed=seed), 2),
        "state-postgres": Campaign(
            lambda place, seed: state.run(place, seed=seed, calls=100, kills=16, url=_server(stack)), 1
        ),
    }


def _server(stack: ExitStack, started: dict[str, str] = {}) -> str:  # noqa: B006  one server for all of them
    """A database of its own, fresh for each run of a campaign."""
    from tests.pg import TemporaryPostgres, fresh_database

    if "url" not in started:
        started["url"] = os.environ.get("STANDFAST_TEST_PG_URL") or stack.enter_context(TemporaryPostgres()).url
    return stack.enter_context(fresh_database(started["url"]))


def _spool(place: Path, seed: int) -> Outcome:
    from tests.test_spool import storm

    outcome = Outcome("spool")
    outcome.count("records written, drained under kills and found once", storm(place, seed=seed, kills=20))
    return outcome


def _leases(place: Path, seed: int) -> Outcome:
    import standfast
    from tests.test_leases_properties import compare

    outcome = Outcome("leases")
    with standfast.open(place / "standfast.db", data_dir=place) as sf:
        compare(sf, examples=100, seed=seed)
    outcome.count("programs", 100)
    return outcome


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.prove")
    parser.add_argument("--minutes", type=float, default=10.0, help="in all (10)")
    parser.add_argument("--seed", type=int, default=0, help="of the first run (0)")
    parser.add_argument("--only", action="append", metavar="NAME", help="this campaign; may be given again")
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="standfast-prove-") as root, ExitStack() as stack:
        _move_in(Path(root))
        campaigns = _campaigns(stack)
        unknown = set(wanted.only or ()) - set(campaigns)
        if unknown:
            parser.error(f"no campaign {', '.join(sorted(unknown))}; there are: {', '.join(campaigns)}")
        chosen = {name: one for name, one in campaigns.items() if not wanted.only or name in wanted.only}
        print(_where_we_are(), flush=True)
        share_s = wanted.minutes * 60 / sum(one.share for one in chosen.values())
        good = [_hold(name, one, one.share * share_s, wanted.seed, Path(root)) for name, one in chosen.items()]
    return 0 if all(good) else 1


def _move_in(root: Path) -> None:
    """No campaign may touch the home, or the settings, of whoever starts it."""
    for name in [name for name in os.environ if name.startswith("STANDFAST_") and "TEST" not in name]:
        del os.environ[name]
    for name in ("HOME", "STANDFAST_DATA_DIR"):
        os.environ[name] = str(root / name.lower())
        os.mkdir(os.environ[name], 0o700)


def _where_we_are() -> str:
    import apsw

    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    return (
        f"standfast {commit or 'without git'}, SQLite {apsw.sqlite_lib_version()}, Python {platform.python_version()},"
        f" {platform.system()} {platform.release()}, {os.cpu_count()} cores"
    )


def _hold(name: str, campaign: Campaign, seconds: float, seed: int, root: Path) -> bool:
    """Run one campaign for its time; whether it held, or as a control did not."""
    total, end, start = Outcome(name), time.monotonic() + seconds, time.monotonic()
    while True:
        try:
            total.add(_run_once(campaign, seed, root))
        except Unavailable as missing:
            print(f"{name}: NOT SHOWN on this machine: {missing}", flush=True)
            return True
        seed += 1
        if time.monotonic() >= end or (total.bad and not campaign.control):
            break
    went_wrong = bool(total.bad or total.seen.get("stopped by the check of the log"))
    if campaign.control:
        total.bad = [] if went_wrong else ["the control held: this campaign could not have seen anything"]
        total.count("times it went wrong, as it must", int(went_wrong))
    elif total.bad:
        total.bad.append(f"again with: python -m tests.prove --only {name} --seed {seed - 1}")
    print(f"{total} ({time.monotonic() - start:.0f} s)", flush=True)
    return not total.bad


def _run_once(campaign: Campaign, seed: int, root: Path) -> Outcome:
    # In memory where there is some: it is the syncs that are counted here, not the disk's speed.
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else root
    with tempfile.TemporaryDirectory(prefix="standfast-prove-", dir=memory) as place:
        return campaign.run(Path(place), seed)


if __name__ == "__main__":
    sys.exit(main())
