"""`standfast help hook` and completion: the command itself is entered before any of this is loaded."""

from __future__ import annotations

from standfast.cli.frame import argument, command
from standfast.cli.output import Out


@command("hook", examples=("standfast install claude-code", "standfast hook codex < payload.json"))
@argument("agent")
def hook(out: Out, agent: str) -> None:
    """Keep what an AGENT's hook reports on stdin. Always exits 0; `standfast install` sets it up.

    Prints nothing but the brief at the start of a session, and a refusal if a gate matches.
    """
    from standfast.cli.hook import main

    main([agent])
