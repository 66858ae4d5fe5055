"""Runs a real Kubernetes on one machine: a cluster with one node, or a control plane for tests."""
