"""Builds the images of deploy/images/Dockerfile as archives, with or without Docker."""
