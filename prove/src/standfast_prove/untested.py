"""Limits of the evaluation. Written by hand; `report.py` puts the text on the page."""

UNTESTED = """
## What was not tested

- **Other machines.** All results here are from Linux machines with two cores. Nothing was run on macOS, on ARM, on a
  disk that confirms writes which it has not stored, or on a network file system (standfast refuses those).
- **Real power loss.** A model of a disk makes images from recorded writes, and the kernel shuts down a real ext4 while
  it is in use. No plug was pulled. xfs and btrfs were not shut down.
- **The durability of PostgreSQL.** Its server was killed and partitioned, but its disk was not damaged. Replicas in two
  regions, with a pooler between them, were not tried.
- **Weeks.** The table of runs below shows the longest run. Years pass only on a virtual clock. These runs would not
  show a memory leak of weeks.
- **Many machines.** Partitions are made between processes and one server on one machine.
- **Independence.** The tries of one campaign share its code, and all seeds share one machine. So the bound holds only
  for failures that a campaign can reach.
- **Remote services.** The outside system is mostly a file that counts requests. Remotes that answer late, twice or
  wrongly occur only in the effects and probes campaigns.
- **Attackers.** Random and damaged input is tried at every entry point. An attacker with your own rights is not.
"""
