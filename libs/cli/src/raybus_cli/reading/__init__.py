"""What the cluster says of one RayService, read once; all that the verbs show is made from it."""
