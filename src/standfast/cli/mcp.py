"""`standfast mcp`: the tools of this store for an agent, over stdin and stdout."""

from __future__ import annotations

from standfast.cli.frame import command, option
from standfast.cli.output import Out


@command("mcp", examples=("standfast mcp", "claude mcp add standfast -- standfast mcp"))
@option("--tools", is_flag=True, help="List the tools and end.")
def mcp(out: Out, tools: bool) -> None:
    """Serve the tools of this store to one agent over stdio, until it hangs up. An agent starts this."""
    from standfast.errors import InvalidInput
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
    from standfast.cli.store import opened

    with opened() as sf:
        callers = Callers(sf)
        server = build(sf, callers)
        if tools:
            return _list(out, server)
        try:
            server.run("stdio")
        finally:
            callers.close()
    return None


def _list(out: Out, server: object) -> None:
    import asyncio

    listed = asyncio.run(server.list_tools())  # type: ignore[attr-defined]
    rows = [{"name": tool.name, "description": tool.description} for tool in listed]
    out.rows(rows, ["name", "description"], then="claude mcp add standfast -- standfast mcp")
