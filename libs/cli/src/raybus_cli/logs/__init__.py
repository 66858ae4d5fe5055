"""`logs`: the logs of a cluster's pods, and of the replicas of Serve applications."""
