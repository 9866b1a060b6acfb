"""The logger `standfast`: events that help an operator. Only warnings are printed unless a program or `--verbose` asks.

`info` does not import `logging`, which takes 10 ms. A program that has not imported it has no handler either. Bodies of
transactions do not log, because they may run twice.
"""

from __future__ import annotations

import sys

NAME = "standfast"


def info(message: str, *args: object) -> None:
    if (logging := sys.modules.get("logging")) is not None:
        logging.getLogger(NAME).info(message, *args)


def warning(message: str) -> None:
    """For a fact that a caller must know. Without a handler of the program, Python prints it on stderr."""
    import logging

    logging.getLogger(NAME).warning(message)


def to_stderr() -> None:
    """For `standfast --verbose`: print every event as one line on stderr."""
    import logging

    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("standfast: %(message)s"))
    logger = logging.getLogger(NAME)
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
