"""Known actions, and the probes that find out whether they happened.

    action.py          Action, Answer and Place: the form of one entry
    table.py           all entries; find the action of a command line
    command_lines.py   read the options of a command line
    shell_text.py      find the actions in a shell command
    programs.py web.py run one command or send one request that only reads, with a deadline
    doubts.py          the probe of a recorded effect
    git.py gh.py github.py http.py files.py packages.py containers.py deployments.py     the entries

The same entries serve three callers: Python programs (`from standfast.actions import git, github, http`), the shell
(`standfast once`, `standfast effect check`) and the hooks of agents.

A probe only reads. It runs a command of the table and never a stored command. Its answer is unknown if it cannot reach
the outside system, runs out of time or sees an ambiguous state.
"""
