"""The status of a RayService, computed anew at every reconcile."""
