"""`raybus migrate`: the effects of taking a cluster over from KubeRay's operator."""
