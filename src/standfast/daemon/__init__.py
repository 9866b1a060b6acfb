"""The daemon: a caller that never sleeps. It fires loops, runs their commands and sweeps; it has no private way in.

    instance    one per data directory, by a locked file
    keeper      the process beside each command: both ends of its output, its timeout, its answer
    children    the daemon's side of a keeper: started, adopted, ended, read
    work        runs claimed, begun and finished; what a dead daemon left, taken over
    parts       firing, running, sweeping, watching
    supervisor  each part fails alone, waits longer each time, and says so
    lead        one per store
    tick        all of that, once, by a clock that is given
    waiting     the bell, signals, children
    service     the process: from the lock to the last recorded end
    status      what it does now, for whoever looks
    stopping    ending it from outside
    unit        the systemd user unit
    checks      what `daemon status` and `doctor` say

A loop is a person's explicit order: what the daemon starts is what somebody wrote into a loop, and
nothing else. It never runs an agent's work again by itself.
"""

from __future__ import annotations
