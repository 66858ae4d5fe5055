"""Which pods are created and which are deleted. Every creation and deletion of a pod is decided here, without I/O."""
