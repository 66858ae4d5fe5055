"""`raybus up`: runs all of raybus as processes on this machine, for the cluster of a kubeconfig."""
