"""`raybus dashboard serve`: the dashboard in a Pod for many users, each with their own rights."""
