"""`raybus plan`: predicts the effect of a manifest with the services' own decision functions."""
