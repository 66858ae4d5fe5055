"""The manifests of a RayJob's Kubernetes objects, and the requests that are sent to Ray."""
