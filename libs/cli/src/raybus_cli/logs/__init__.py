"""`raybus logs`: logs of a cluster's pods, and of the replicas of Serve applications."""
