"""KubeRay's own suites, run with raybus in place of KubeRay."""
