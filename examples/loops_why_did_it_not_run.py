"""A nightly job that is retried after a failure, and the answer to "why did it not run?".

The clock is manual, so a week takes a second. This program fires and runs the loop itself. In real use
`standfast daemon` does that, with one process per command.

Run it: python examples/loops_why_did_it_not_run.py
"""

from __future__ import annotations

import subprocess
import sys

import standfast
from standfast.clock import ManualClock
from standfast.record.loops.schedule import shown

NIGHTS = ["works", "flaky", "works", "no daemon", "no daemon", "broken", "works"]
JOB = "import sys; night, attempt = sys.argv[1:]; sys.exit(night == 'broken' or (night == 'flaky' and attempt == '1'))"


def perform(sf: standfast.Standfast, night: str) -> None:
    """A worker: claim the run, run the command outside any transaction, record the result."""
    while run := sf.runs.claim(host="workstation"):
        assert run.job is not None
        ended = subprocess.run([*run.job.command, night, str(run.attempt)], check=False)
        sf.runs.finish(run.id, run.attempt, exit_code=ended.returncode, duration="1us")


def main() -> None:
    clock = ManualClock()
    with standfast.open(":memory:", clock=clock) as sf:
        job = [sys.executable, "-c", JOB]
        sf.loops.add("nightly", job, cron="30 2 * * *", zone="Europe/Berlin", retries_max=1)
        for night in NIGHTS:
            clock.advance("24h")
            if night == "no daemon":
                continue
            sf.loops.fire_due()
            perform(sf, night)
            clock.advance("1m")  # the wait before the second attempt
            perform(sf, night)
        print("why did it not run?")
        for run in reversed(sf.runs.list("nightly")):
            why = f": {run.reason}" if run.reason else ""
            print(f"  {shown(run.slot_us, 'Europe/Berlin')}  {run.state}, attempt {run.attempt}{why}")


if __name__ == "__main__":
    main()
