"""What standfast costs and gains, as ratios against the usual ways, side by side in one run.

    python -m benchmarks [--quick] [--only NAME] [--json FILE] [--dir DIR]

`measure` has the rounds, the medians and the tables; `ways` the ways to write one row durably;
`crew` the processes, threads and tasks that use them at once. Every other file is one area.

Machines are noisy and differ, so an absolute rate means little. In each round everything that is
compared runs once, one after the other, and the ratio is taken within the round.
"""
