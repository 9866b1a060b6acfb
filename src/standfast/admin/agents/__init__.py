"""The agents on this machine: installing our hooks into their settings, and looking after them.

known.py     which agents there are, where their settings are, what we write there
jsonc.py     edits of JSON with comments that leave every other byte as it was
entries.py   our entries in a text of settings: put in, taken out, judged; pure functions
installing.py  the files: backup, atomic replacement, restoring
checking.py  what `doctor` says about each agent
"""
