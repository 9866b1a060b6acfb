"""`standfast top`: show the sessions that work, wait or crashed, and update them every two seconds.

Waiting sessions are first when it starts. After that each session keeps its row: a new session is added at the end, and
a session that ends stays as `ended`. The key `s` sorts the rows again. It draws with a few standard escape sequences.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from time import localtime, strftime
from typing import TYPE_CHECKING

from standfast.cli import render
from standfast.cli.frame import command, option, scope_options
from standfast.cli.open_store import opened
from standfast.cli.output import Out
from standfast.cli.render import Column
from standfast.cli.values import moment
from standfast.clock import format_duration

if TYPE_CHECKING:
    from standfast.views.fleet import Fleet, Member

EVERY_S = 2.0
WIDE = 110
"""A terminal of at least this many characters has a separate column for `about`."""
COLUMNS = [
    Column("state"),
    Column("agent"),
    Column("where"),
    Column("since_us", "since", moment),
    Column("doing"),
    Column("about"),
    Column("command", "next"),
]
COUNTED = {"waits": "waiting", "crashed": "crashed", "works": "working"}
"""The states in the first line, in the order of the rows."""
STYLES = {"waits": "yellow", "crashed": "red", "ended": "dim"}
EMPTY = "no session works, waits or crashed here: standfast session list"


@command("top", examples=("standfast top", "standfast top --once --all"))
@option("--once", is_flag=True, help="Print one frame and exit.")
@scope_options
def top(out: Out, once: bool, scope_choice: str | None) -> None:
    """Show the sessions that work, wait or crashed, the waiting ones first, until you press q."""
    from standfast.views import coverage
    from standfast.views.fleet import Fleets

    live = sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "") not in ("", "dumb")
    with opened(scope_choice=scope_choice, create=False) as sf:
        fleets, everywhere = Fleets(sf._store), coverage.choice(scope_choice)
        if live and out.for_people and not once:
            _watch(lambda: fleets.look(everywhere=everywhere))
            return
        fleet = fleets.look(everywhere=everywhere)
    if once and out.for_people:
        color = render.wants_color(sys.stdout)
        frame = lines(fleet, fleet.members, render.terminal_width(sys.stdout) or _columns(), color=color)
        out.text("\n".join(frame))
    else:
        out.rows((member.as_dict() for member in fleet.members), COLUMNS, next=None, empty=EMPTY)


class Rows:
    """The members in the order of the screen: a session keeps its row until the next sort."""

    def __init__(self) -> None:
        self._shown: dict[str, Member] = {}

    def sort(self) -> None:
        self._shown = {}

    def arranged(self, fleet: Fleet) -> list[Member]:
        found = {member.id: member for member in fleet.members}
        ended = {id: member.replace(state="ended", doing="", command="") for id, member in self._shown.items()}
        self._shown = {**{id: found.get(id, member) for id, member in ended.items()}, **found}
        return list(self._shown.values())


def lines(fleet: Fleet, members: list[Member], width: int, *, color: bool = False, height: int = 0) -> list[str]:
    """One frame: the counts, a row for each session, and the next command for each that waits or crashed."""
    counts = [f"{n:,} {text}" for state, text in COUNTED.items() if (n := _count(members, state))]
    more = f"; {fleet.elsewhere:,} in other repositories: standfast top --all" if fleet.elsewhere else ""
    clock = strftime("%H:%M:%S", localtime(fleet.now_us // 1_000_000))
    head = render.fit(f"standfast  {clock}  {', '.join(counts) or 'no sessions'}{more}", width)
    if not members:
        return [head, EMPTY]
    rows = [head, *_table(fleet, members, width, color=color)]
    todo = [f"{member.agent} in {member.where}:\n  {member.command}" for member in members if _needs_person(member)]
    below = [line for text in todo for line in text.split("\n")]
    if height and len(rows) + len(below) > height:
        below = below[: max(height - len(rows), 0)]
        hidden = len(rows) - height
        rows = rows if hidden <= 0 else [*rows[: height - 1], f"… {hidden + 1:,} more: standfast session list"]
    return [*rows, *below]


def _needs_person(member: Member) -> bool:
    return member.state in ("waits", "crashed")


def _count(members: list[Member], state: str) -> int:
    return sum(member.state == state for member in members)


def _table(fleet: Fleet, members: list[Member], width: int, *, color: bool) -> Iterator[str]:
    wide = width >= WIDE
    cells = [_cells(fleet, member, wide) for member in members]
    head = ("state", "agent", "where", "for", *(("about",) if wide else ()), "doing")
    most = (7, 24, max(width // 2, 12), 6, *((width // 4,) if wide else ()))  # a repository is not cut
    widths = [min(max(render.width_of(row[n]) for row in (head, *cells)), limit) for n, limit in enumerate(most)]
    widths.append(max(width - sum(widths) - 2 * len(widths), 10))
    for row, style in ((head, "dim"), *((row, STYLES.get(row[0], "")) for row in cells)):
        fitted = [render.pad(render.fit(text, n), n) for text, n in zip(row, widths, strict=True)]
        text = "  ".join(fitted).rstrip()
        yield render.styled(text, style, color=color) if style else text


def _cells(fleet: Fleet, member: Member, wide: bool) -> tuple[str, ...]:
    seconds = max(fleet.now_us - member.since_us, 0) // 1_000_000
    age = format_duration(seconds * 1_000_000, parts=1)
    clean = render.clean
    doing = (member.about, member.doing) if wide else (member.doing or member.about,)
    return (member.state, clean(member.agent), clean(member.where), age, *map(clean, doing))


def _columns() -> int:
    found = os.environ.get("COLUMNS", "")
    return max(int(found), 20) if found.isdigit() else 80


def _watch(look: object) -> None:
    """Draw until q, Ctrl-C or SIGTERM, then restore the terminal."""
    import select

    assert callable(look)
    rows = Rows()
    with _screen() as fd:
        while True:
            try:
                fleet = look()
                frame = _fitting(fleet, rows)
            except Exception as error:  # noqa: BLE001  for example a busy store: the next frame tries again
                frame = [f"standfast: {error}".partition("\n")[0]]
            _draw([*frame, "", "q: quit   s: sort, the waiting ones first"])
            ready, _, _ = select.select([fd], [], [], EVERY_S)
            key = os.read(fd, 16) if ready else b""
            if key[:1] in (b"q", b"Q", b"\x03") or (ready and not key):
                return
            if key[:1] in (b"s", b"S"):
                rows.sort()


def _fitting(fleet: Fleet, rows: Rows) -> list[str]:
    size = os.get_terminal_size(sys.stdout.fileno())
    width, height = max(size.columns, 20), max(size.lines - 3, 5)
    return lines(fleet, rows.arranged(fleet), width, color=render.wants_color(sys.stdout), height=height)


def _draw(frame: list[str]) -> None:
    """Overwrite the last frame line by line, because clearing the screen first would flicker."""
    sys.stdout.write("\x1b[H" + "\x1b[K\r\n".join(map(render.printed, frame)) + "\x1b[K\x1b[J")
    sys.stdout.flush()


@contextmanager
def _screen() -> Iterator[int]:
    """Use the alternate screen, hide the cursor, and read keys without waiting for Enter."""
    import signal
    import termios
    import tty

    fd = sys.stdin.fileno()
    before, old = termios.tcgetattr(fd), signal.getsignal(signal.SIGTERM)
    try:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        tty.setcbreak(fd)
        sys.stdout.write("\x1b[?1049h\x1b[?25l\x1b[H\x1b[2J")
        yield fd
    except KeyboardInterrupt:
        pass
    finally:
        sys.stdout.write("\x1b[?25h\x1b[?1049l")
        sys.stdout.flush()
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
        signal.signal(signal.SIGTERM, old)
