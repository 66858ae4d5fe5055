"""The command `raybus-dev`."""
