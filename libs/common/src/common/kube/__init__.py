"""Access to the Kubernetes API. No other package imports kubernetes-asyncio."""
