"""Manifests of the objects that this service owns, and patches of users' routes; no I/O."""
