"""Reconcile RayServices: create and promote their RayClusters, and report their status."""
