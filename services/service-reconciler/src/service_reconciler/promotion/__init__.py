"""Which clusters a RayService has, which one it needs, and when traffic moves."""
