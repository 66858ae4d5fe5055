"""`raybus migrate`: predicts the effects of taking a cluster over from KubeRay's operator."""
