"""`raybus events`: what happened to upgrades, as an outsider reads it."""
