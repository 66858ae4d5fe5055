"""The status of a RayService; computed from scratch at every reconcile."""
