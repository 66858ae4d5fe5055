"""Compares raybus with KubeRay's own code on the same manifests and pods.

Differences of objects, decisions, statuses and Events are reported.
"""
