"""`standfast completion`: print the completion script for a shell."""

from __future__ import annotations

import sys

import click

from standfast.cli.frame import argument, command
from standfast.cli.output import Out

INSTALL = {
    "bash": 'eval "$(standfast completion bash)"    # in ~/.bashrc',
    "zsh": 'eval "$(standfast completion zsh)"    # in ~/.zshrc',
    "fish": "standfast completion fish > ~/.config/fish/completions/standfast.fish",
}


@command("completion", examples=(INSTALL["bash"], INSTALL["fish"]))
@argument("shell", type=click.Choice(list(INSTALL)))
@click.pass_context
def completion(ctx: click.Context, out: Out, shell: str) -> None:
    """Print the completion script for bash, zsh or fish."""
    from click.shell_completion import get_completion_class

    from standfast.cli.app import COMPLETE_VARIABLE, NAME

    made = get_completion_class(shell)
    assert made is not None
    script = made(ctx.find_root().command, {}, NAME, COMPLETE_VARIABLE)
    # Do not call `source()`: it starts bash to ask for the version, and prints a warning about the version.
    out.text(script.source_template % script.source_vars())
    if sys.stdout.isatty():  # a shell that evaluates the script must not print a hint
        out.then(INSTALL[shell])
