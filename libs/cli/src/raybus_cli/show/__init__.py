"""`raybus get`, `list` and `status`: the state of RayServices, RayClusters and Ray jobs."""
