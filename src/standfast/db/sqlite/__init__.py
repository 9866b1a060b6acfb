"""SQLite through apsw: one file, many processes, every acknowledged write on disk.

`engine` is the story: group commit inside the process, a fair lock between processes, the
sync outside that lock, the acknowledgement after the sync. `location` decides whether a directory
is safe, `lock` is the turn-taking, `wal` keeps the log alive and notices when it is not,
`notify` wakes other processes, `readers` serves snapshots, `migrate` brings the schema up.
"""
