"""Shifts traffic between the clusters of a RayService."""
