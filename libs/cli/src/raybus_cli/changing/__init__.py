"""`raybus restart` and `raybus set image`: spec changes that create a new cluster or new pods."""
