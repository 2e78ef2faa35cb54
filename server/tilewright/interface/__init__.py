"""The fronts of Tilewright: MCP and the command line, as thin adapters over the tools."""
