"""`standfast demo`: an agent is killed between a request and its answer, and does not send the request twice.

story.py         the scenes and their order
server.py        a small server on loopback that keeps its own count: the outside world
model.py         a scripted model: no key, no network, and never the same words twice
agent.py         the agent over standfast
blob.py          the same agent over one JSON file
disasters.py     `demo destroy` and `demo restore`: the store is deleted, or put back in time
charges.py       an agent that charges four orders, over standfast
charges_blob.py  the same agent over one JSON file
"""

from __future__ import annotations

import click

from standfast.cli.frame import argument, command
from standfast.cli.output import Out


@command("demo", examples=("standfast demo", "standfast demo destroy"))
@argument("what", required=False, type=click.Choice(["destroy", "restore"]))
def demo(out: Out, what: str | None) -> None:
    """Kill an agent with kill -9, and see it finish with one pull request instead of two.

    With `destroy` its store is deleted while it works, with `restore` the store is put back in time: each order is
    charged once. Beside it, the same agent with a plain file charges twice.
    """
    from standfast.cli.demo import disasters, story

    raise click.exceptions.Exit(story.tell(out) if what is None else disasters.tell(out, what))
