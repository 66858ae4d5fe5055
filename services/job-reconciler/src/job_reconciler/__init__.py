"""job-reconciler: creates the clusters of RayJobs, submits their jobs, and runs RayCronJobs."""
