"""Bodies of the Kubernetes objects that this service owns, one module each. Does no I/O."""
