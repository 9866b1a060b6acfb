"""Fault injection: children to kill, and disks that lose writes, fail and fill up.

    children   child processes that tests talk to, and a nursery that forks them in milliseconds
    disk       a library loaded before libc: only synced bytes survive, syncs fail on command
    operations every operation on a directory, recorded, or refused at the n-th
    platter    the contents that a disk may have if the power is lost after an operation
    mounts     small file systems: full, read-only, or cut off as by a power failure
    daemons    daemons of a store, watched and killed
    proxy      a connection to a server that can be cut, slowed down, or lose an answer
    rows       the simplest rows a store can hold, and how to read them back

Nothing outside of `prove` imports this, and the product has no switch for any of it.
"""

from __future__ import annotations


class Unavailable(Exception):
    """This machine cannot cause that fault. The message names the missing part."""
