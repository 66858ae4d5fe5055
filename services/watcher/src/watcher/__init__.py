"""The watcher: publishes changes of Kubernetes objects to the bus."""
