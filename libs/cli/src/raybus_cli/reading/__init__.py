"""The objects of one RayService, read once; all that the verbs show is made from them."""
