"""`raybus dashboard serve`: the page in a Pod, for many users, each with the rights that Kubernetes grants this user."""
