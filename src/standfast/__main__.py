"""`python -m standfast` is the `standfast` command."""

from __future__ import annotations

import sys

from standfast.cli import main

sys.exit(main())
