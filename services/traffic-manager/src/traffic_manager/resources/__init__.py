"""Manifests of the objects that traffic-manager owns, and patches of users' routes; no I/O."""
