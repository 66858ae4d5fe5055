"""Which pods are created and which go. Whatever makes or ends a pod is decided here; nothing here reads or writes the world."""
