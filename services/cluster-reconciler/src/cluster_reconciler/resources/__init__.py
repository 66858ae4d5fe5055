"""Manifests of the objects that a RayCluster owns, one module each; no I/O."""
