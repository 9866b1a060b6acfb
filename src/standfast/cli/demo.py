"""`standfast demo`: see it happen."""

from __future__ import annotations

import click

from standfast.cli.frame import command
from standfast.cli.output import Out


@command("demo", examples=("standfast demo", "STANDFAST_DATA_DIR=$(mktemp -d) standfast demo"), add_help_option=True)
def demo(out: Out) -> None:
    """Write, be killed, open again: see a killed process remembered."""
    from standfast.demo import main

    raise click.exceptions.Exit(main())
