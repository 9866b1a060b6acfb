"""SQLite through apsw: one file, many processes, every acknowledged write on disk.

Start with `engine`, which lists the modules of the write path. `location` checks whether a directory is safe, `lock` is
the lock between processes, `notify` wakes other processes, and `migrate` upgrades the schema.
"""
