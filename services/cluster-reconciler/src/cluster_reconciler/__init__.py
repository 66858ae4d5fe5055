"""cluster-reconciler: creates the pods, Services and other children of RayClusters."""
