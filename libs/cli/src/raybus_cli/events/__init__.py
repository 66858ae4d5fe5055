"""`raybus events`: shows the history of upgrades, read as an external consumer reads it."""
