"""The status of a RayJob."""
