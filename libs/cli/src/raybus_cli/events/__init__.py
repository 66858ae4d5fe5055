"""`raybus events`: the history of upgrades, as an external consumer reads it."""
