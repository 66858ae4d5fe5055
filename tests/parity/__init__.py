"""raybus beside KubeRay's own code: the same manifests and pods, and every difference of objects, decisions, statuses and Events."""
