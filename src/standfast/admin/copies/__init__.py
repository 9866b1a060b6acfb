"""Copies: plain files outside the data directory, from which a store can be restored.

A place has one directory for each store:

    cpy_….db.zst          a complete SQLite database, compressed (.gz without the extra `zstd`)
    cpy_….rows.zst        of PostgreSQL: rows by the table catalogue, JSON lines
    artifacts/ab/cdef…    the bytes of artifacts by their digest, shared by all copies
    cpy_….json            the manifest, written last: a copy without a manifest does not exist
    cpy_….verified.json   the time at which every hash was compared; .tested.json likewise

The modules:

    manifest.py     the description of a copy          places.py        a directory; core/buckets.py is S3
    compression.py  compressed files and their hashes  take.py          taking a copy; child.py is its process on SQLite
    check.py        verify and test                    restore.py       a copy becomes a read-only store
    keep.py         which copies stay                  restore_here.py  a copy becomes the store
    automatic.py    before migrations, and hourly      resource.py      `sf.copies`, and the table `copy`
    audit.py        settings of a place, read only     choose.py        the copy that a restore takes

The manifest has the digest of the journal (core/digests.py): `verify --against` compares a store with it.
"""
