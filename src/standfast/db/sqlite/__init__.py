"""SQLite through apsw: one file, many processes, every acknowledged write on disk.

Start with `engine`: group commit inside the process, a fair lock between processes, the fsync outside that lock, the
acknowledgement after the fsync. `location` checks whether a directory is safe, `lock` is the lock between processes,
`wal` protects the WAL and checks its identity, `notify` wakes other processes, `readers` lend snapshots, `migrate`
upgrades the schema.
"""
