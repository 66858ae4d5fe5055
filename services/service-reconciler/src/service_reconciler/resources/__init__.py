"""Bodies of the Kubernetes objects that this service owns, one module each. Pure."""
