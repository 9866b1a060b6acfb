"""The evaluation: campaigns that try to lose or double a record, the seeded bugs that they must find, and their
results.

    campaigns   one module each: faults for a store, and the promises that must hold
    crashes     programs that are killed at every crash point, each with its oracle outside the store
    faults      children, disks, mounts, daemons and connections that fail on command
    mutants     seeded bugs, applied in child processes: a campaign counts only if it finds its own

`standfast prove` runs them on the machine and the disk of the caller. Nothing of the product imports this.
"""
