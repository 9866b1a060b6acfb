"""The cost and the gain of standfast, as ratios against the usual ways, measured side by side in one run.

    standfast bench            the areas that need nothing but standfast
    standfast bench --all      every area, those with other people's packages too

`measure` has the rounds, the medians and the tables; `ways` the ways to write one row durably; `crew` the
processes, threads and tasks that use them at once; `areas` the list. Most other files are one area.

Machines differ and have other load, so an absolute rate means little. Each round runs all contestants once, one after
the other, and the ratio is taken within the round.
"""
