"""A real Kubernetes on one machine: a whole node for end-to-end runs, or its control plane alone for tests."""
