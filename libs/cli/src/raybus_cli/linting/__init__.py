"""`raybus lint`: reports errors in a manifest, and advice, before it is applied."""
