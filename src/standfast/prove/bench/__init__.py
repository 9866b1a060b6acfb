"""Ratios against the usual ways, side by side in one run: what `standfast bench` prints.

Other people's packages are not compared here; `make bench` in the source does that, with the same parts.
"""
