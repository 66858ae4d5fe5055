"""The observed state of the clusters, the Gateway and the route."""
