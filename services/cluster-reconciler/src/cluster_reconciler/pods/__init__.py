"""Decides every creation and deletion of a pod, without I/O."""
