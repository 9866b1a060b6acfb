"""The MCP server: what an agent can do without a shell. `standfast mcp` runs it over stdio."""
