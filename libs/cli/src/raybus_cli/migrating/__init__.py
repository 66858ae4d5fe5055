"""`raybus migrate`: what it would mean to take a cluster over from KubeRay's operator."""
