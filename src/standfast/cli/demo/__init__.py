"""`standfast demo`: an agent is killed between sending and hearing back, and does not send twice.

story.py   what is shown, and in which order
server.py  a small pull-request server on loopback that keeps its own count: the outside world
model.py   a scripted model: no key, no network, and never the same words twice
agent.py   the agent over standfast
blob.py    the same agent over one JSON file
"""

from __future__ import annotations

import click

from standfast.cli.frame import command
from standfast.cli.output import Out


@command("demo", examples=("standfast demo", "standfast demo --json"))
def demo(out: Out) -> None:
    """Watch an agent being killed with kill -9 and finish with one pull request, not two."""
    from standfast.cli.demo.story import tell

    raise click.exceptions.Exit(tell(out))
