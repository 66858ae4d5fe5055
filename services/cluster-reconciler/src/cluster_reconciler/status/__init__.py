"""What the status of a RayCluster says, computed from scratch at each look: one condition, one file."""
