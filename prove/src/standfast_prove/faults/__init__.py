"""Fault injection: children to kill, and disks that lose writes, fail and fill up.

    children   processes with a conversation, and a nursery that forks them in milliseconds
    disk       a library loaded before libc: only synced bytes survive, syncs fail on command
    operations every operation on a directory, written down, or refused at the nth
    platter    what a disk may hold after any of them, if the power went there
    mounts     small file systems: full, read-only, or cut off as by a power failure
    daemons    daemons of a store, watched and killed
    proxy      a way to a server that can be cut, slowed down and made to swallow an answer
    rows       the simplest rows a store can hold, and how to read them back

Nothing outside of `prove` imports this, and the product has no switch for any of it.
"""

from __future__ import annotations


class Unavailable(Exception):
    """This machine cannot cause that fault. The message names the missing part."""
