"""Which specs are refused, and in what words; shared, because a RayService holds the spec of a RayCluster."""
