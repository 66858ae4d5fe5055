"""In-memory replacements of servers, clocks and streams for tests."""
