"""Publishes changes of Kubernetes objects to the bus."""
