"""The Kubernetes API as our services use it; the only place that imports kubernetes-asyncio."""
