"""`python -m standfast` is the command."""

from __future__ import annotations

import sys

from standfast.cli import main

if __name__ == "__main__":
    sys.exit(main())
