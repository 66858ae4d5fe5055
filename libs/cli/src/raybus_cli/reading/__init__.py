"""Reads the objects of a RayService or RayJob once, into a snapshot that commands show."""
