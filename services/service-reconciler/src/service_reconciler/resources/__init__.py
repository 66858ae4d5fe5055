"""The Kubernetes objects that this service owns; one module for each, all pure."""
