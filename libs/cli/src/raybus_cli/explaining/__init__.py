"""`explain`: why a RayService is not ready, or its upgrade does not get on."""
