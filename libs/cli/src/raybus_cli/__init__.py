"""The raybus command line."""
