"""Compares raybus with KubeRay's own code on the same manifests and pods.

Every difference of objects, decisions, statuses and Events is reported.
"""
