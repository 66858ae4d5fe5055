"""The objects that a RayCluster owns, one module each: `name`, `build`, and nothing that reads or writes the world."""
