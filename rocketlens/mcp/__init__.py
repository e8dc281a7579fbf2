"""The MCP server: assistants ask, in tools, what the command and the page answer (docs/mcp.md)."""
