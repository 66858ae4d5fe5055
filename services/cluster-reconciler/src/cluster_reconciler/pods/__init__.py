"""Decisions about every creation and deletion of a pod; no I/O."""
