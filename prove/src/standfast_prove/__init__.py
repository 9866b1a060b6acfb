"""The evaluation: campaigns that try to lose or double a record, the bugs they must find, and what they saw.

    campaigns   one module each: faults for a store, and the promises that must hold
    crashes     programs that are killed at every crash point, each with its oracle outside the store
    faults      children, disks, mounts, daemons and wires that fail on command
    mutants     seeded bugs, applied in child processes: a campaign counts only if it finds its own

`standfast prove` runs them on the machine and the disk of the caller. Nothing of the product imports this.
"""
