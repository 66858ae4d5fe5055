"""Builds every image of deploy/images/Dockerfile as an archive, with Docker where it answers and without an engine elsewhere."""
