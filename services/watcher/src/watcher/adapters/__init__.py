"""Adapters for NATS and the Lease at the API server."""
