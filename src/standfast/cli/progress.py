"""Show the progress of work that takes longer than a second: a bar on a terminal, a line every 5 s in a pipe."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from standfast.cli import render
from standfast.cli.output import Out

FIRST_S = 1.0
DRAWN_EVERY_S = 0.1
LINE_EVERY_S = 5.0
TICK_S = 0.2
BAR_WIDTH = 24


def reported(
    out: Out, clock: Callable[[], float] = time.monotonic, *, bar_after_s: float = FIRST_S
) -> Callable[[str, int, int], None]:
    """A function that shows progress. Call it with the name of the work, the amount done and the total (0: unknown)."""
    terminal = out.for_people and sys.stderr.isatty()
    due = clock() + (bar_after_s if terminal else FIRST_S)

    def report(doing: str, done: int, total: int) -> None:
        nonlocal due
        if clock() < due:
            return
        due = clock() + (DRAWN_EVERY_S if terminal else LINE_EVERY_S)
        if terminal:
            out.draw(line(doing, done, total))
        else:
            out.say(f"standfast: {named(doing, done, total)}")

    return report


@contextmanager
def watched(
    out: Out, doing: str, clock: Callable[[], float] = time.monotonic
) -> Iterator[Callable[[str, int, int], None]]:
    """As `reported`, for work with long parts that report nothing: a thread repeats the last report meanwhile."""
    from threading import Event, Lock, Thread

    report, last, lock, ended = reported(out, clock), (doing, 0, 0), Lock(), Event()

    def remember(doing: str, done: int, total: int) -> None:
        nonlocal last
        with lock:
            last = doing, done, total
            report(*last)

    def repeat() -> None:
        while not ended.wait(TICK_S):
            with lock:
                report(*last)

    thread = Thread(target=repeat, name="standfast-progress", daemon=True)
    thread.start()
    try:
        yield remember
    finally:
        ended.set()
        thread.join()


def amount(done: int, total: int) -> str:
    if total > 1_000_000:
        return f"{done // 1_000_000:,} of {total // 1_000_000:,} MB"
    return f"{done:,} of {total:,}" if total else f"{done:,}"


def named(doing: str, done: int, total: int) -> str:
    """The work, and how much of it is done if that is known."""
    return f"{doing}: {amount(done, total)}" if done or total else f"{doing} …"


def line(doing: str, done: int, total: int) -> str:
    """One line of the terminal: the bar, the share, and the current work."""
    text = named(doing, done, total)
    if total:
        share = min(done / total, 1.0)
        filled = round(BAR_WIDTH * share)
        text = f"{'█' * filled}{'░' * (BAR_WIDTH - filled)} {share:4.0%}  {text}"
    return render.fit(text, (render.terminal_width(sys.stderr) or 80) - 1)
