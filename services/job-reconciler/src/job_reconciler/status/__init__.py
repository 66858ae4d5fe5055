"""Writes of the status of a RayJob."""
