"""`raybus up`: all of raybus as processes of this machine, against the cluster of a kubeconfig."""
