"""What standfast costs and gains, as ratios against the usual ways, side by side in one run.

    standfast bench                                     the areas that need nothing but standfast
    python -m standfast_prove.bench [--only NAME] …     all areas, those with other people's packages too

`measure` has the rounds, the medians and the tables; `ways` the ways to write one row durably; `crew` the
processes, threads and tasks that use them at once; `areas` the list. Most other files are one area.

Machines are noisy and differ, so an absolute rate means little. In each round everything that is compared
runs once, one after the other, and the ratio is taken within the round.
"""
