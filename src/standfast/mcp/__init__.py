"""The MCP server: tools for an agent without a shell. `standfast mcp` runs it over stdio."""
