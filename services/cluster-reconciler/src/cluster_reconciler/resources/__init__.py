"""Bodies of the objects that a RayCluster owns, one module each. Does no I/O."""
