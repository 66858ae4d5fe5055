"""Reads the objects of a RayService or RayJob once, as the snapshot that all commands show."""
