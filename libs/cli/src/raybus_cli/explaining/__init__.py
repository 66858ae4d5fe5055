"""`raybus explain`: why a RayService, its upgrade, a RayJob or a RayCronJob does not work."""
