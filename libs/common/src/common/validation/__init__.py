"""Validation rules for specs; shared, because a RayService contains the spec of a RayCluster."""
