"""`raybus dashboard serve`: the page in a Pod for many users, each with their own rights."""
