"""Turns RayServices into RayClusters, promotes them, reports their status."""
