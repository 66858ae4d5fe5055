"""The Kubernetes objects of a RayJob, and what is sent to Ray."""
