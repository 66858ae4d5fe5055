"""Runs KubeRay's own test suites with raybus in place of KubeRay."""
