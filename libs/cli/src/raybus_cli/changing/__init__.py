"""`restart` and `set image`: changes of a cluster spec that make a new cluster, or new pods."""
