"""Manifests as users write them: files with one or more documents, and the line of each field."""
