"""Reconcile RayJobs and RayCronJobs: create their RayClusters, submit jobs, and report status."""
