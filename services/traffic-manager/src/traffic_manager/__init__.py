"""traffic-manager: shifts traffic between the clusters of a RayService."""
