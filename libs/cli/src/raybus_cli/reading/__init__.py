"""Reads the objects of one RayService once; all commands show what this snapshot contains."""
