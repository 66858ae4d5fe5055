"""Reconcile RayClusters: create their pods, Services and other children, and report status."""
