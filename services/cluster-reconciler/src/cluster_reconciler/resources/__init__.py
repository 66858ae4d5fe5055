"""The objects that a RayCluster owns, one module each: `name`, `build`, and no I/O."""
