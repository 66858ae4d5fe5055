"""Manifests as users write them: files with one or more documents, and where in the file each field stands."""
