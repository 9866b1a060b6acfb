"""`standfast decide`: write it down before doing it. It stays open until `decision done`."""

from __future__ import annotations

from standfast.cli.decision import plain
from standfast.cli.frame import argument, command, option
from standfast.cli.output import Out


@command(
    "decide",
    examples=(
        "standfast decide 'edit parser.py' --why 'the test names it' --then 'patch, test, open a PR'",
        "standfast decide 'never force-push' --why 'it lost work once' --standing",
    ),
)
@argument("what")
@option("--why", help="The reason.")
@option("--then", "then_", help="What is to be done now.")
@option("--tag", "tags", multiple=True, help="A topic; may be given several times.")
@option("--session", envvar="STANDFAST_SESSION", help="The session it belongs to: its key or id.")
@option("--agent", help="Whose decision it is, if not this actor's.")
@option("--standing", is_flag=True, help="A standing order: it stays until it is withdrawn.")
def decide(
    out: Out,
    what: str,
    why: str | None,
    then_: str | None,
    tags: tuple[str, ...],
    session: str | None,
    agent: str | None,
    standing: bool,
) -> None:
    """Write down WHAT is decided before anything is done about it. Prints its id.

    The same decision while it is open, or stands, is the one that is there.
    """
    from standfast.cli.store import agent_session, opened

    with opened() as sf:
        session = session or agent_session(sf)
        made = sf.decisions.record(
            what, why=why, then=then_, session=session, tags=tags, agent=agent, standing=standing
        )
    out.record(plain(made), [made.id])
    if standing:
        out.then(f"standfast decision withdraw {made.id[-6:]}")
    else:
        out.then(f"standfast decision done {made.id[-6:]} --outcome '…'")
