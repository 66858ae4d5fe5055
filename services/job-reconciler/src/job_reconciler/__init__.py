"""The decisions about RayJobs, from one look at their objects. No process runs them yet."""
