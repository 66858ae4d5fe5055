"""What the clusters, the Gateway and the route were seen to be."""
