"""Turns RayClusters into pods, services and status."""
