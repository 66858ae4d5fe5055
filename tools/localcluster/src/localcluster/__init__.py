"""A real Kubernetes cluster on one machine: a whole node, or a control plane for tests."""
