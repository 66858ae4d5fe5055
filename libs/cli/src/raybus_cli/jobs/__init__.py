"""Submits RayJobs, follows them to their end and stops them."""
