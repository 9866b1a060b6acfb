"""`standfast mcp`: serve the tools of this store over stdio or a Unix socket."""

from __future__ import annotations

import os

from standfast.cli.frame import command, option
from standfast.cli.open_store import opened
from standfast.cli.output import Out
from standfast.errors import InvalidInput


@command("mcp", examples=("claude mcp add standfast -- standfast mcp", "standfast mcp --socket ~/.standfast/mcp.sock"))
@option("--tools", is_flag=True, help="List the tools and exit.")
@option("--socket", metavar="PATH", help="Serve all connections to this Unix socket (mode 0600) until a signal.")
def mcp(out: Out, tools: bool, socket: str | None) -> None:
    """Serve the tools of this store to one agent over stdio until it disconnects. The agent starts this command."""
    from standfast.modules import install

    try:
        from standfast.mcp.callers import Callers
        from standfast.mcp.server import build
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("standfast"):
            raise
        raise InvalidInput(
            "the MCP server needs packages that are not installed", install("mcp"), code="missing_extra"
        ) from error
    if socket is not None:
        # A call over the socket is not a call by the person who started the server.
        os.environ.setdefault("STANDFAST_ACTOR", f"mcp:{os.path.basename(socket)}")
    with opened() as sf:
        callers = Callers(sf)
        server = build(sf, callers)
        if tools:
            return _list(out, server)
        try:
            if socket is not None:
                from standfast.mcp.sockets import serve

                serve(server, socket, lambda: out.say(f"serving {socket} as {sf.agent}; end it with Ctrl-C"))
            else:
                server.run("stdio")
        finally:
            callers.close()
    return None


def _list(out: Out, server: object) -> None:
    import asyncio

    listed = asyncio.run(server.list_tools())  # type: ignore[attr-defined]
    rows = [{"name": tool.name, "description": tool.description} for tool in listed]
    out.rows(rows, ["name", "description"], then="claude mcp add standfast -- standfast mcp")
