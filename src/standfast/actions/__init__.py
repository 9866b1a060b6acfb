"""Known actions: what each one is, and how to find out whether it happened.

    action.py       Action, Answer and Place: the shape of one entry
    table.py        all entries; from a command line to its action
    programs.py     run one fixed command that only reads: a deadline, no stdin, no prompt
    git.py github.py http.py files.py packages.py containers.py deployments.py     the entries

The same entries serve three callers: Python programs (`from standfast.actions import git, github, http`), the shell
(`standfast once`, `standfast effect check`) and the hooks of agents.

A probe only reads. It runs a command of the table, never one that is stored, and it answers Unknown if it cannot
reach the outside system, runs out of time, or sees something ambiguous.
"""
