"""The status of a RayCluster, computed from scratch at each reconcile."""
