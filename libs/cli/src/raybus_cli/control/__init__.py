"""`raybus pause`, `resume`, `promote`, `abort`, `retry`, `undo`, `history`: control of upgrades."""
