"""Publishes what changes in Kubernetes to the bus."""
