"""Manifests of the Kubernetes objects that service-reconciler owns, one module each; no I/O."""
