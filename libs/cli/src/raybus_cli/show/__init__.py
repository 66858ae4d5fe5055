"""`raybus get`, `list` and `status`: the state of RayServices and RayClusters."""
