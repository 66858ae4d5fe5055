"""Decisions about which clusters a RayService has and needs, and when traffic moves."""
