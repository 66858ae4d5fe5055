"""Which specs are refused, and with what message; shared, because a RayService holds the spec of a RayCluster."""
