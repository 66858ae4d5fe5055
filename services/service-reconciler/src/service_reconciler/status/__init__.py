"""What users read in a RayService status; computed from scratch at every look."""
