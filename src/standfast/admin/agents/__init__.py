"""The coding agents on this machine: installing our hooks, MCP server and skill, and checking them.

catalogue.py     the agents, the paths of their settings files, and our entries in them
jsonc.py         edits of JSON with comments that leave every other byte unchanged
hook_entries.py, mcp_entries.py, skills.py   our entries in the text of a file; pure functions
install.py       the files: backup, atomic replacement, restoring
doctor.py        what `doctor` reports about each agent
"""
