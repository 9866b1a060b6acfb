"""Limits of the evaluation. Written by hand; the page quotes it."""

UNTESTED = """
## What was not tested

- **Other machines.** The committed figures are of one Linux machine with two cores and its disk. Nothing here
  was run on macOS, on ARM, on a disk whose cache lies about what it has written, or on a network file system
  (which standfast refuses).
- **Power loss is modelled, or cut off by the kernel.** Images are made of recorded writes by a model of a
  disk, and a real ext4 is shut down in the middle of its work. No plug was pulled, and xfs and btrfs were
  not cut.
- **PostgreSQL's own durability** is taken for granted: its server was killed and partitioned, its disk was
  not. Replicas, failover and a pooler between two regions were not tried.
- **Days.** The longest run is the longest one in the table of runs; years pass on a virtual clock only.
  Memory that grows over weeks would not be seen here.
- **Many machines.** Partitions are made between processes and one server on one machine.
- **Tries are not independent** in the strict sense: schedules of one world share its code, and seeds share
  one machine. The bound says what n tries can say; a defect that no campaign can reach is in none of them.
- **What agents do.** The world that effects touch is a file that counts. Remotes that answer late, twice or
  wrongly were tried as far as the stories of the effects campaign tell them.
- **Attackers.** Garbage at every entry point is tried. An attacker with the rights of the user is not.
"""
