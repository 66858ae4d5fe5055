"""The status of a RayCluster, computed anew at each reconcile."""
