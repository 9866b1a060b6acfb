"""The daemon: a long-running process that fires loops, runs their commands and sweeps. It uses only public methods.

    instance       one per data directory, by a locked file
    keeper         a process beside each command, with its output, timeout and result
    keeper_client  the daemon's side of a keeper: start, adopt, end, read
    runner         runs from claim to end, also those of a dead daemon
    jobs           firing, running, sweeping, watching
    supervisor     restarts a failing part alone, after a growing delay
    leader_lease   one per store
    tick           one round of all parts, by a given clock
    wait           the bell, signals, children
    service        the process: from the lock to the last recorded end
    status         its present state, for other processes
    stop           ending it from outside
    unit           the systemd user unit
    doctor         what `daemon status` and `doctor` say

The daemon starts only commands that a person or an agent put into a loop. It never runs an agent's work again by
itself.
"""

from __future__ import annotations
