"""`raybus explain`: the blocking issues of a RayService or of its upgrade."""
